//! One certificate: what its files say.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;
use yasna::tags::TAG_UTCTIME;
use yasna::{parse_der, ASN1Result, BERReader, Tag};

use super::files::Content;

/// Seconds.
pub const DAY: i64 = 86_400;

/// Days before its end at which a certificate is worth a warning, and the part of its time, if that is shorter: others renew it by then.
const WARN_DAYS: i64 = 14;
const WARN_PART: i64 = 6;

/// A certificate with its key, and the names that it is for.
#[derive(Debug)]
pub struct Certificate {
    pub key: Arc<CertifiedKey>,
    /// In lower case; `*.example.com` stands for one label.
    names: Vec<String>,
    not_before: i64,
    /// Seconds since 1970.
    pub not_after: i64,
    /// Whether no authority has signed it.
    pub is_self_signed: bool,
    /// The file of the certificate.
    pub path: PathBuf,
}

impl Certificate {
    /// The certificate in `cert` with the key in `key`.
    pub fn load(cert: &Content, key: &Content) -> Result<Self, String> {
        let chain = pem(cert, |bytes| CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>())?;
        let path = cert.path.display();
        let first = chain.first().ok_or_else(|| format!("{path} has no certificate"))?;
        let Facts { names, not_before, not_after, is_self_signed } =
            facts(first).map_err(|error| format!("{path} {error}"))?;
        refuse_encrypted(key)?;
        let secret = pem(key, PrivateKeyDer::from_pem_slice)?;
        let certified = CertifiedKey::from_der(chain, secret, &ring::default_provider());
        let key = certified.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("{} is not the key of the certificate {path}", key.path.display())
            }
            error => format!("{} cannot be used: {error}", key.path.display()),
        })?;
        let (key, path) = (Arc::new(key), cert.path.clone());
        Ok(Certificate { key, names, not_before, not_after, is_self_signed, path })
    }

    /// A warning where it has ended, or ends soon. A short one has not ended soon for most of its time. `now` is in seconds since 1970.
    pub fn warning(&self, now: i64) -> Option<String> {
        let (left, path) = (self.not_after - now, self.path.display());
        if left < 0 {
            return Some(format!("the certificate {path} has expired"));
        }
        let soon = (WARN_DAYS * DAY).min((self.not_after - self.not_before) / WARN_PART);
        (left < soon).then(|| match left / DAY {
            0 => format!("the certificate {path} expires within a day"),
            1 => format!("the certificate {path} expires in 1 day"),
            days => format!("the certificate {path} expires in {days} days"),
        })
    }

    /// Whether it is for this host, which is in lower case.
    pub fn is_for(&self, host: &str) -> bool {
        self.names.iter().any(|own| is_for(own, host))
    }
}

/// Whether a name of a certificate is one for this host (RFC 6125 §6.4.3).
fn is_for(own: &str, host: &str) -> bool {
    match own.strip_prefix("*.") {
        Some(parent) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent),
        None => own == host,
    }
}

/// Facts of a certificate.
#[derive(Debug)]
pub struct Facts {
    /// The hosts that it is for, in lower case.
    pub names: Vec<String>,
    /// Its start, in seconds since 1970.
    pub not_before: i64,
    /// Its end, in seconds since 1970.
    pub not_after: i64,
    /// Whether no authority has signed it: its issuer is itself.
    pub is_self_signed: bool,
}

impl Facts {
    /// Those of the first certificate in a file; None: it cannot be read.
    pub fn of(path: &Path) -> Option<Facts> {
        let bytes = std::fs::read(path).ok()?;
        facts(&CertificateDer::from_pem_slice(&bytes).ok()?).ok()
    }
}

/// Start and end of a certificate (RFC 5280 §4.1), in seconds since 1970, and whether its issuer is its subject.
fn signed_facts(der: &[u8]) -> ASN1Result<(i64, i64, bool)> {
    parse_der(der, |certificate| {
        certificate.read_sequence(|parts| {
            let facts = parts.next().read_sequence(|signed| {
                signed.read_optional(|version| {
                    version.read_tagged(Tag::context(0), |number| number.read_der())
                })?;
                for _serial_algorithm in 0..2 {
                    signed.next().read_der()?;
                }
                let issuer = signed.next().read_der()?;
                let (start, end) =
                    signed.next().read_sequence(|times| Ok((time(times.next())?, time(times.next())?)))?;
                let subject = signed.next().read_der()?;
                while signed.read_optional(|rest| rest.read_der())?.is_some() {}
                Ok((start, end, issuer == subject))
            });
            while parts.read_optional(|rest| rest.read_der())?.is_some() {}
            facts
        })
    })
}

fn time(reader: BERReader<'_, '_>) -> ASN1Result<i64> {
    if reader.lookahead_tag()? == TAG_UTCTIME {
        Ok(reader.read_utctime()?.datetime().unix_timestamp())
    } else {
        Ok(reader.read_generalized_time()?.datetime().unix_timestamp())
    }
}

fn pem<T, E: std::fmt::Display>(file: &Content, parse: impl Fn(&[u8]) -> Result<T, E>) -> Result<T, String> {
    parse(file.bytes()?)
        .map_err(|error| format!("{} is no PEM file of its kind: {error}", file.path.display()))
}

/// A proxy that starts by itself has nobody to ask for a passphrase.
fn refuse_encrypted(key: &Content) -> Result<(), String> {
    let text = key.bytes()?;
    let has = |words: &[u8]| text.windows(words.len()).any(|part| part == words);
    if !has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") && !has(b"Proc-Type: 4,ENCRYPTED") {
        return Ok(());
    }
    let key = key.path.display();
    Err(format!(
        "{key} is encrypted with a passphrase, and nobody is asked for it: write the key without one, by `openssl pkey -in {key} -out NEW`"
    ))
}

fn facts(der: &CertificateDer<'_>) -> Result<Facts, String> {
    let unusable = |error: &dyn std::fmt::Display| format!("cannot be used: {error}");
    let (not_before, not_after, is_self_signed) = signed_facts(der).map_err(|error| unusable(&error))?;
    let certificate = EndEntityCert::try_from(der).map_err(|error| match error {
        webpki::Error::UnsupportedCertVersion => {
            "is a certificate of version 1, which browsers refuse: make one of version 3, with subjectAltName"
                .to_owned()
        }
        error => unusable(&error),
    })?;
    let names = certificate.valid_dns_names().map(str::to_ascii_lowercase).collect();
    Ok(Facts { names, not_before, not_after, is_self_signed })
}
