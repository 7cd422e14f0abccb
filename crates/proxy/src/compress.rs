//! Compression of the app's responses.
//!
//! tower-http's layer holds the parts of a stream back until its buffer is full, leaves a strong ETag on the changed bytes, and adds no
//! padding. The encoders are libraries'; what is here decides when, and flushes when the app pauses.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use brotli::enc::BrotliEncoderParams;
use brotli::CompressorWriter;
use flate2::write::GzEncoder;
use flate2::GzBuilder;
use hyper::body::{Body, Bytes, Frame};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::StatusCode;

use crate::stats;

/// Errors while a body is sent. The connection ends then, so that the client sees that the body is incomplete.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Bodies that are shorter stay as they are: the fields would cost more than is saved.
const LEAST: u64 = 1024;

/// Bytes of an encoder's output that become one part.
const PART: usize = 32 * 1024;

/// Levels, by bench/proxy: beyond them time grows faster than size shrinks. A page of 95 KB takes zstd 340 µs and 22.6 KB at level 1, 360 µs
/// and 21.6 KB at level 2, and 530 µs and 21.6 KB at level 3. Brotli takes half of level 4's memory at level 3, for a page that is 1 % longer.
const ZSTD_LEVEL: i32 = 2;
const GZIP_LEVEL: u32 = 5;
const BROTLI_LEVEL: i32 = 3;

/// Base-2 logarithm of the bytes that an encoder looks back.
const WINDOW_LOG: u32 = 19;
const BROTLI_WINDOW_LOG: i32 = 17;

/// The most bytes of padding (see [`padding`]).
const MOST_PADDING: u64 = 64;

/// A body is flushed once within so many of its first bytes (see [`Compressed::feed`]).
const FLUSHED_WITHIN: u64 = LEAST;

/// A content coding (RFC 9110 §8.4.1, RFC 8878, RFC 7932).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// zstd
    Zstd,
    /// br
    Brotli,
    /// gzip
    Gzip,
}

impl Coding {
    /// All codings, the preferred one first.
    pub const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    /// Its name in Content-Encoding.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    /// The extension of a compressed file beside another file.
    pub fn extension(self) -> &'static str {
        match self {
            Coding::Zstd => "zst",
            Coding::Brotli => "br",
            Coding::Gzip => "gz",
        }
    }
}

/// Weights that a client gives to content codings, in thousandths (RFC 9110 §12.5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    zstd: u16,
    br: u16,
    gzip: u16,
}

impl Accepted {
    /// Reads all Accept-Encoding fields.
    pub fn of(fields: &HeaderMap) -> Self {
        let mut named = [None; 4];
        for value in fields.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()) {
            for element in value.split(',') {
                let (name, weight) =
                    element.split_once(';').map_or((element, 1000), |(name, rest)| (name, weight(rest)));
                let index = match &name.trim().to_ascii_lowercase()[..] {
                    "zstd" => 0,
                    "br" => 1,
                    "gzip" | "x-gzip" => 2,
                    "*" => 3,
                    _ => continue,
                };
                named[index] = Some(weight);
            }
        }
        let rest = named[3].unwrap_or(0);
        let [zstd, br, gzip] = [named[0], named[1], named[2]].map(|weight| weight.unwrap_or(rest));
        Accepted { zstd, br, gzip }
    }

    fn weight(self, coding: Coding) -> u16 {
        match coding {
            Coding::Zstd => self.zstd,
            Coding::Brotli => self.br,
            Coding::Gzip => self.gzip,
        }
    }

    /// The codings that the client takes, the best one first.
    pub fn codings(self) -> impl Iterator<Item = Coding> {
        let mut codings = Coding::ALL;
        codings.sort_by_key(|coding| std::cmp::Reverse(self.weight(*coding)));
        codings.into_iter().filter(move |coding| self.weight(*coding) > 0)
    }
}

/// The weight after the semicolon, `q=0.5`. Anything else is no weight, and counts as 0: the coding is not used.
fn weight(text: &str) -> u16 {
    let Some((name, value)) = text.split_once('=') else { return 0 };
    let value: f32 = value.trim().parse().unwrap_or(0.0);
    let is_weight = name.trim().eq_ignore_ascii_case("q") && (0.0..=1.0).contains(&value);
    if is_weight {
        (value * 1000.0).round() as u16
    } else {
        0
    }
}

/// Whether a response may be compressed at all, whoever asks: then Vary says so.
pub fn is_eligible(status: StatusCode, fields: &HeaderMap, length: Option<u64>) -> bool {
    let has = |name| fields.contains_key(name);
    let is_plain = !has(header::CONTENT_ENCODING) && !has(header::CONTENT_RANGE);
    let is_whole = !status.is_informational()
        && !matches!(status, StatusCode::NO_CONTENT | StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED);
    let is_text = fields.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_text);
    is_plain
        && is_whole
        && is_text
        && length.is_none_or(|length| length >= LEAST)
        && !forbids_transform(fields)
}

/// Whether the page that a 304 is about may be one that is compressed. A 304 need not name the page's type.
pub fn may_be_page(fields: &HeaderMap) -> bool {
    let media_type = fields.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media_type.is_none_or(is_text) && !forbids_transform(fields)
}

/// Whether the bytes must stay as they are (RFC 9111 §5.2.2.6).
pub fn forbids_transform(fields: &HeaderMap) -> bool {
    let values = fields.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("no-transform"))
}

/// Whether a media type is text, which compresses well.
pub fn is_text(media_type: &str) -> bool {
    let name = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (kind, subtype) = name.split_once('/').unwrap_or_default();
    let has_suffix = ["+json", "+xml", "+text"].iter().any(|suffix| subtype.ends_with(suffix));
    let is_known = matches!(
        &name[..],
        "application/json"
            | "application/javascript"
            | "application/xml"
            | "application/wasm"
            | "application/x-javascript"
            | "application/x-ndjson"
            | "application/graphql"
            | "application/vnd.ms-fontobject"
            | "font/ttf"
            | "font/otf"
            | "image/bmp"
            | "image/x-icon"
            | "image/vnd.microsoft.icon"
    );
    kind == "text" || has_suffix || is_known
}

/// Says in the fields that the body is compressed.
pub fn set_fields(fields: &mut HeaderMap, coding: Coding) {
    fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    fields.remove(header::CONTENT_LENGTH);
    // The app's ranges and digests are those of the uncompressed bytes.
    fields.remove(header::ACCEPT_RANGES);
    ["content-md5", "digest", "content-digest"].iter().for_each(|name| drop(fields.remove(*name)));
    let weak = fields.get(header::ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    if let Some(weak) = weak.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok()) {
        fields.insert(header::ETAG, weak);
    }
}

/// Says in the fields that another client may get other bytes.
pub fn set_vary(fields: &mut HeaderMap) {
    let values = fields.get_all(header::VARY).iter().filter_map(|value| value.to_str().ok());
    let mut names = values.flat_map(|value| value.split(',')).map(str::trim);
    if !names.any(|name| name == "*" || name.eq_ignore_ascii_case("accept-encoding")) {
        fields.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
}

enum Encoder {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// An encoder for a body of this length; None: unknown.
    fn new(coding: Coding, length: Option<u64>) -> io::Result<Self> {
        Ok(match coding {
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                // The window is what each stream takes of memory, here and in the client (RFC 8878 §3.1.1.1.2: at most 8 MB).
                encoder.window_log(WINDOW_LOG)?;
                // The tables of a short body are small, and stay in the processor's cache.
                encoder.set_pledged_src_size(length)?;
                Encoder::Zstd(encoder)
            }
            Coding::Brotli => {
                let params = BrotliEncoderParams {
                    quality: BROTLI_LEVEL,
                    lgwin: BROTLI_WINDOW_LOG,
                    ..Default::default()
                };
                Encoder::Brotli(Box::new(CompressorWriter::with_params(Vec::new(), 4096, &params)))
            }
            Coding::Gzip => Encoder::Gzip(
                GzBuilder::new().comment(padding()).write(Vec::new(), flate2::Compression::new(GZIP_LEVEL)),
            ),
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Encoder::Zstd(encoder) => encoder,
            Encoder::Brotli(encoder) => &mut **encoder,
            Encoder::Gzip(encoder) => encoder,
        }
    }

    fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Encoder::Zstd(encoder) => encoder.get_mut(),
            Encoder::Brotli(encoder) => encoder.get_mut(),
            Encoder::Gzip(encoder) => encoder.get_mut(),
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Encoder::Zstd(encoder) => encoder.finish(),
            Encoder::Brotli(encoder) => Ok(encoder.into_inner()),
            Encoder::Gzip(encoder) => encoder.finish(),
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encoder::Zstd(_) => "Zstd",
            Encoder::Brotli(_) => "Brotli",
            Encoder::Gzip(_) => "Gzip",
        })
    }
}

/// A number that nobody can foretell: each RandomState has keys of its own.
pub fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(COUNT.fetch_add(1, Relaxed));
    hasher.finish()
}

/// Padding of a random length against BREACH: if a compressed page has an attacker's words and a secret, the page's length helps to guess
/// the secret. With random lengths the guess takes far more requests. zstd and Brotli have no room for padding that all clients skip.
fn padding() -> Vec<u8> {
    vec![b'x'; (1 + random() % MOST_PADDING) as usize]
}

/// A body that is compressed while it passes.
#[derive(Debug)]
pub struct Compressed<B> {
    body: B,
    /// None after the last part.
    encoder: Option<Encoder>,
    /// Whether the encoder holds bytes back.
    is_holding: bool,
    /// Fields after the body.
    trailers: Option<HeaderMap>,
    received: u64,
    sent: u64,
    /// The byte after which the encoder is flushed.
    flush_at: u64,
}

impl<B: Body<Data = Bytes> + Unpin> Compressed<B>
where
    B::Error: Into<Error>,
{
    /// Compresses `body`. Returns the body as it is if there is no memory for an encoder.
    pub fn new(body: B, coding: Coding) -> Result<Self, B> {
        let Ok(encoder) = Encoder::new(coding, body.size_hint().exact()) else { return Err(body) };
        let flush_at = 1 + random() % FLUSHED_WITHIN;
        let encoder = Some(encoder);
        Ok(Compressed { body, encoder, is_holding: false, trailers: None, received: 0, sent: 0, flush_at })
    }

    /// The body that is compressed.
    pub fn inner(&mut self) -> &mut B {
        &mut self.body
    }

    /// Compresses more. A flush at a random place makes the length one that nobody can foretell, in all codings (see [`padding`]).
    fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        let until = self.flush_at.checked_sub(self.received).filter(|until| *until < bytes.len() as u64);
        let (first, rest) = bytes.split_at(until.unwrap_or(0) as usize);
        self.received += bytes.len() as u64;
        if !first.is_empty() {
            encoder.writer().write_all(first)?;
            encoder.writer().flush()?;
        }
        encoder.writer().write_all(rest)?;
        self.is_holding = true;
        Ok(())
    }

    /// The output so far.
    fn part(&mut self, bytes: Vec<u8>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.sent += bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }

    fn last_part(&mut self, encoder: Encoder) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let bytes = encoder.finish()?;
        let part = self.part(bytes);
        stats::BYTES_SAVED.fetch_add(self.received.saturating_sub(self.sent), Relaxed);
        part
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Compressed<B>
where
    B::Error: Into<Error>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        loop {
            let Some(encoder) = &mut this.encoder else {
                return Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            };
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                // The app pauses: its client gets all that is there.
                if !std::mem::take(&mut this.is_holding) {
                    return Poll::Pending;
                }
                encoder.writer().flush()?;
                let bytes = std::mem::take(encoder.output());
                return this.part(bytes);
            };
            let Some(frame) = frame.transpose().map_err(Into::into)? else {
                let Some(encoder) = this.encoder.take() else { return Poll::Ready(None) };
                return this.last_part(encoder);
            };
            match frame.into_data() {
                Ok(bytes) => {
                    this.feed(&bytes)?;
                    let output = this.encoder.as_mut().map(Encoder::output);
                    if let Some(output) = output.filter(|output| output.len() >= PART) {
                        let bytes = std::mem::take(output);
                        return this.part(bytes);
                    }
                }
                Err(frame) => this.trailers = frame.into_trailers().ok(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
