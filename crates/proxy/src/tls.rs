//! Certificates: which one a client gets, and new ones without a new listener.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::ServerConfig;
use webpki::EndEntityCert;
use yasna::tags::TAG_UTCTIME;
use yasna::{parse_der, ASN1Result, BERReader, Tag};

use crate::control;

/// Days before its end at which a certificate is worth a warning.
const WARN_DAYS: i64 = 14;

/// A certificate with its key, and the names that it is for.
#[derive(Debug)]
struct Certificate {
    key: Arc<CertifiedKey>,
    /// In lower case; `*.example.com` stands for one label.
    names: Vec<String>,
    /// Seconds since 1970.
    not_after: i64,
}

/// The certificates of one listener.
#[derive(Debug)]
pub struct Certificates {
    files: RwLock<Vec<(PathBuf, PathBuf)>>,
    loaded: RwLock<Vec<Certificate>>,
    /// The state of the files when they were last looked at.
    stamp: Mutex<Stamp>,
}

/// Times and inodes of files.
type Stamp = Vec<Option<(SystemTime, u64, u64)>>;

impl Certificates {
    /// Loads pairs of files. The first certificate is for clients that name no host, or a host without a certificate.
    pub fn load(files: Vec<(PathBuf, PathBuf)>) -> Result<Arc<Self>, String> {
        let none = Certificates::none(files.clone());
        none.reload(files)?;
        Ok(none)
    }

    /// No certificates, so that handshakes are refused until these files can be used.
    pub fn none(files: Vec<(PathBuf, PathBuf)>) -> Arc<Self> {
        let stamp = Mutex::new(stamp(&files));
        Arc::new(Certificates { files: RwLock::new(files), loaded: RwLock::default(), stamp })
    }

    /// Loads the files anew if they have changed.
    pub fn look(&self) {
        let files = self.files();
        let found = stamp(&files);
        let before =
            std::mem::replace(&mut *self.stamp.lock().unwrap_or_else(PoisonError::into_inner), found.clone());
        if found != before {
            self.reload_or_tell(files);
        }
    }

    /// Loads the files, and logs warnings and errors.
    pub fn reload_or_tell(&self, files: Vec<(PathBuf, PathBuf)>) {
        match self.reload(files) {
            Ok(()) => self.warn(),
            Err(error) => control::error(&format!("the certificates stay as they are: {error}")),
        }
    }

    /// Logs warnings about certificates that have ended or end soon.
    pub fn warn(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        self.warnings(now).iter().for_each(|warning| control::warn(warning));
    }

    /// Loads the files anew. After an error the certificates stay as they are.
    fn reload(&self, files: Vec<(PathBuf, PathBuf)>) -> Result<(), String> {
        let loaded = load_all(&files)?;
        *write(&self.loaded) = loaded;
        *write(&self.files) = files;
        Ok(())
    }

    /// The files.
    fn files(&self) -> Vec<(PathBuf, PathBuf)> {
        read(&self.files).clone()
    }

    /// The end of the certificate that ends first, in seconds since 1970.
    pub fn not_after(&self) -> Option<i64> {
        read(&self.loaded).iter().map(|one| one.not_after).min()
    }

    /// Warnings about certificates that have ended or end soon. `now` is in seconds since 1970.
    fn warnings(&self, now: i64) -> Vec<String> {
        let loaded = read(&self.loaded);
        let warning = |(one, (path, _)): (&Certificate, &(PathBuf, PathBuf))| {
            let days = (one.not_after - now).div_euclid(86_400);
            let path = path.display();
            match days {
                ..0 => Some(format!("the certificate {path} has expired")),
                0..WARN_DAYS => Some(format!("the certificate {path} expires in {days} days")),
                _ => None,
            }
        };
        loaded.iter().zip(read(&self.files).iter()).filter_map(warning).collect()
    }

    fn choose(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let loaded = read(&self.loaded);
        let name = name.map(str::to_ascii_lowercase);
        let fits = |one: &&Certificate| {
            name.as_deref().is_some_and(|name| one.names.iter().any(|own| is_for(own, name)))
        };
        loaded.iter().find(fits).or(loaded.first()).map(|one| Arc::clone(&one.key))
    }
}

fn stamp(files: &[(PathBuf, PathBuf)]) -> Stamp {
    let stamp = |path: &PathBuf| {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
    };
    files.iter().flat_map(|(cert, key)| [stamp(cert), stamp(key)]).collect()
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(std::sync::PoisonError::into_inner)
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
}

impl Facts {
    /// Those of the first certificate in a file; None: it cannot be read.
    pub fn of(path: &Path) -> Option<Facts> {
        let bytes = fs::read(path).ok()?;
        facts(&CertificateDer::from_pem_slice(&bytes).ok()?).ok()
    }
}

/// The validity of a certificate (RFC 5280 §4.1), in seconds since 1970.
fn times(der: &[u8]) -> ASN1Result<(i64, i64)> {
    parse_der(der, |certificate| {
        certificate.read_sequence(|parts| {
            let times = parts.next().read_sequence(|signed| {
                signed.read_optional(|version| {
                    version.read_tagged(Tag::context(0), |number| number.read_der())
                })?;
                for _serial_algorithm_issuer in 0..3 {
                    signed.next().read_der()?;
                }
                let times =
                    signed.next().read_sequence(|times| Ok((time(times.next())?, time(times.next())?)))?;
                while signed.read_optional(|rest| rest.read_der())?.is_some() {}
                Ok(times)
            });
            while parts.read_optional(|rest| rest.read_der())?.is_some() {}
            times
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

fn load_all(files: &[(PathBuf, PathBuf)]) -> Result<Vec<Certificate>, String> {
    files.iter().map(|(cert, key)| load(cert, key)).collect()
}

fn load(cert: &Path, key: &Path) -> Result<Certificate, String> {
    let chain = pem(cert, |bytes| CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>())?;
    let first = chain.first().ok_or_else(|| format!("{} has no certificate", cert.display()))?;
    let Facts { names, not_after, .. } =
        facts(first).map_err(|error| format!("{} {error}", cert.display()))?;
    refuse_encrypted(key)?;
    let secret = pem(key, PrivateKeyDer::from_pem_slice)?;
    let certified = CertifiedKey::from_der(chain, secret, &ring::default_provider());
    let key = certified.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("{} is not the key of the certificate {}", key.display(), cert.display())
        }
        error => format!("{} cannot be used: {error}", key.display()),
    })?;
    Ok(Certificate { key: Arc::new(key), names, not_after })
}

fn pem<T, E: std::fmt::Display>(path: &Path, parse: impl Fn(&[u8]) -> Result<T, E>) -> Result<T, String> {
    let bytes =
        fs::read(path).map_err(|error| format!("cannot read {}: {}", path.display(), reason(&error)))?;
    parse(&bytes).map_err(|error| format!("{} is no PEM file of its kind: {error}", path.display()))
}

/// A proxy that starts by itself has nobody to ask for a passphrase.
fn refuse_encrypted(key: &Path) -> Result<(), String> {
    let text = fs::read(key).unwrap_or_default();
    let has = |words: &[u8]| text.windows(words.len()).any(|part| part == words);
    if !has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") && !has(b"Proc-Type: 4,ENCRYPTED") {
        return Ok(());
    }
    let key = key.display();
    Err(format!(
        "{key} is encrypted with a passphrase, and nobody is asked for it: write the key without one, by `openssl pkey -in {key} -out NEW`"
    ))
}

/// The error's text without "(os error 2)".
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

fn facts(der: &CertificateDer<'_>) -> Result<Facts, String> {
    let unusable = |error: &dyn std::fmt::Display| format!("cannot be used: {error}");
    let (not_before, not_after) = times(der).map_err(|error| unusable(&error))?;
    let certificate = EndEntityCert::try_from(der).map_err(|error| match error {
        webpki::Error::UnsupportedCertVersion => {
            "is a certificate of version 1, which browsers refuse: make one of version 3, with subjectAltName"
                .to_owned()
        }
        error => unusable(&error),
    })?;
    let names = certificate.valid_dns_names().map(str::to_ascii_lowercase).collect();
    Ok(Facts { names, not_before, not_after })
}

/// Proves a host to an authority that asks by a protocol of its own.
pub trait Proof: std::fmt::Debug + Send + Sync {
    /// The protocol.
    fn protocol(&self) -> &'static [u8];
    /// The certificate for a host.
    fn certificate(&self, host: &str) -> Option<Arc<CertifiedKey>>;
}

/// Chooses between the certificates and proofs.
#[derive(Debug)]
struct Resolver {
    certificates: Arc<Certificates>,
    proof: Arc<dyn Proof>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asks_for_proof =
            hello.alpn().is_some_and(|mut offered| offered.any(|one| one == self.proof.protocol()));
        if asks_for_proof {
            return self.proof.certificate(&hello.server_name()?.to_ascii_lowercase());
        }
        self.certificates.choose(hello.server_name())
    }
}

/// The settings of a TLS listener: TLS 1.2 and 1.3, HTTP/2 and 1.1. Its tickets outlive new certificates.
pub fn server_config(
    certificates: Arc<Certificates>,
    proof: Arc<dyn Proof>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Resolver { certificates, proof: Arc::clone(&proof) }));
    config.alpn_protocols =
        [b"h2", &b"http/1.1"[..], b"http/1.0", proof.protocol()].map(<[u8]>::to_vec).to_vec();
    // Tickets take no memory here, other than stored sessions, and are valid in all threads.
    config.ticketer = ring::Ticketer::new()?;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(dir: &Path, name: &str, hosts: &[&str]) -> (PathBuf, PathBuf) {
        let made =
            rcgen::generate_simple_self_signed(hosts.iter().map(|host| host.to_string()).collect::<Vec<_>>())
                .expect("a certificate");
        let files = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        fs::write(&files.0, made.cert.pem()).expect("a file");
        fs::write(&files.1, made.signing_key.serialize_pem()).expect("a file");
        files
    }

    #[test]
    fn a_client_gets_the_certificate_of_the_host_that_it_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let files =
            vec![pair(dir.path(), "a", &["a.example"]), pair(dir.path(), "b", &["*.b.example", "b.example"])];
        let certificates = Certificates::load(files).expect("certificates");
        let chosen = |name| certificates.choose(name).expect("one").cert[0].clone();
        let [a, b] = [0, 1].map(|index| read(&certificates.loaded)[index].key.cert[0].clone());
        for (name, expected) in [
            (None, &a),
            (Some("a.example"), &a),
            (Some("other.example"), &a),
            (Some("B.example"), &b),
            (Some("www.b.example"), &b),
            (Some("a.www.b.example"), &a),
        ] {
            assert_eq!(&chosen(name), expected, "{name:?}");
        }
    }

    #[test]
    fn files_that_do_not_fit_are_named_and_change_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let (cert, key) = pair(dir.path(), "a", &["a.example"]);
        let (_, other) = pair(dir.path(), "b", &["b.example"]);
        let certificates = Certificates::load(vec![(cert.clone(), key.clone())]).expect("certificates");
        let before = certificates.choose(None).expect("one").cert[0].clone();
        let missing = dir.path().join("missing");
        for (files, expected) in [
            ((cert.clone(), other), "b.key is not the key of the certificate"),
            ((missing.clone(), key.clone()), "missing: No such file"),
            ((cert.clone(), missing), "missing: No such file"),
            ((key, cert.clone()), "has no certificate"),
        ] {
            let error = certificates.reload(vec![files]).expect_err("an error");
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(certificates.choose(None).expect("one").cert[0], before);
        assert_eq!(certificates.files()[0].0, cert);
    }

    #[test]
    fn an_encrypted_key_is_named_so() {
        let dir = tempfile::tempdir().expect("a folder");
        let (cert, key) = pair(dir.path(), "a", &["a.example"]);
        for text in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAA==\n-----END RSA PRIVATE KEY-----\n",
        ] {
            fs::write(&key, text).expect("a file");
            let error = Certificates::load(vec![(cert.clone(), key.clone())]).expect_err("an error");
            assert!(error.contains("a.key is encrypted with a passphrase"), "{error}");
        }
    }

    #[test]
    fn an_end_that_is_near_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let certificates =
            Certificates::load(vec![pair(dir.path(), "a", &["a.example"])]).expect("certificates");
        let end = certificates.not_after().expect("an end");
        assert_eq!(certificates.warnings(end - 30 * 86_400).len(), 0);
        assert!(certificates.warnings(end - 3 * 86_400)[0].ends_with("a.crt expires in 3 days"));
        assert!(certificates.warnings(end + 1)[0].ends_with("a.crt has expired"));
    }
}
