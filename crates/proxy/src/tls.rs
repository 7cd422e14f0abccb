//! Certificates: which one a client gets, and new ones without a new listener.

mod certificate;
mod files;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::ServerConfig;

use crate::control;
pub use certificate::Facts;
pub use files::{CertificateFiles, Contents};

use certificate::{Certificate, DAY};
use files::{stamp, Stamp};

/// The certificates of one listener.
#[derive(Debug, Default)]
pub struct Certificates {
    /// The first one is for clients that name no host, or a host without a certificate.
    loaded: RwLock<Vec<Certificate>>,
    source: Mutex<Source>,
    /// When warnings were last logged, in seconds since 1970; None: not since these certificates were loaded.
    warned_at: Mutex<Option<i64>>,
}

/// Where the certificates come from.
#[derive(Debug, Default)]
struct Source {
    /// The number of the last files that the master has read.
    number: u64,
    /// Files that this process reads itself, and their state when it last looked.
    own: Vec<(PathBuf, PathBuf)>,
    stamp: Stamp,
}

impl Certificates {
    /// The certificates of these files.
    pub fn of(contents: &Contents) -> Result<Arc<Self>, String> {
        let none = Arc::<Self>::default();
        none.set(contents)?;
        Ok(none)
    }

    /// The certificates of these files; if those cannot be used, of the `kept` ones, which could be used before; else none, so that handshakes
    /// are refused. Logs why.
    pub fn of_any(contents: &Contents, kept: Option<&Contents>, name: &str) -> Arc<Self> {
        let own = Arc::<Self>::default();
        if let Err(error) = own.set(contents) {
            match kept.map(|kept| own.set(kept)) {
                Some(Ok(())) => control::error(&stays(&error)),
                _ => control::error(&format!(
                    "no client can connect to {name} until this is repaired: {error}"
                )),
            }
            own.expect(contents);
        }
        own
    }

    /// Loads the files that this process reads itself if they have changed.
    pub fn look(&self) {
        let own = {
            let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
            let found = stamp(&source.own);
            if std::mem::replace(&mut source.stamp, found.clone()) == found {
                return;
            }
            source.own.clone()
        };
        self.set_or_tell(&Contents::read(own));
    }

    /// Takes files of new settings. Those of a reading that is known are not loaded again.
    pub fn take(&self, contents: &Contents) {
        let known = self.source.lock().unwrap_or_else(PoisonError::into_inner).number;
        if contents.is_own || contents.number != known {
            self.expect(contents);
            self.set_or_tell(contents);
        }
    }

    /// Logs warnings about certificates that have ended or end soon, once a day.
    pub fn warn(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        self.warnings(now).iter().for_each(|warning| control::warn(warning));
    }

    fn set_or_tell(&self, contents: &Contents) {
        match self.set(contents) {
            Ok(()) => self.warn(),
            Err(error) => control::error(&stays(&error)),
        }
    }

    /// Loads the files. After an error the certificates stay as they are.
    fn set(&self, contents: &Contents) -> Result<(), String> {
        let loaded = contents.certificates()?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        *self.warned_at.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.expect(contents);
        self.tell_stand_in();
        if !contents.is_own {
            control::loaded(contents.number);
        }
        Ok(())
    }

    fn tell_stand_in(&self) {
        if let Some(one) = self.read().iter().find(|one| self.is_stand_in(one)) {
            control::inform_seldom(&format!(
                "until the first certificate by ACME is there, clients get {}, which no authority has signed",
                one.path.display()
            ));
        }
    }

    /// Notes from where the next change is to come.
    fn expect(&self, contents: &Contents) {
        let own = if contents.is_own { contents.paths() } else { Vec::new() };
        let stamp = stamp(&own);
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) =
            Source { number: contents.number, own, stamp };
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<Certificate>> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of the certificate that ends first, in seconds since 1970.
    pub fn not_after(&self) -> Option<i64> {
        self.read().iter().map(|one| one.not_after).min()
    }

    /// Warnings about certificates that have ended or end soon, once a day. `now` is in seconds since 1970.
    fn warnings(&self, now: i64) -> Vec<String> {
        let mut warned_at = self.warned_at.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock may have been put back.
        if warned_at.is_some_and(|at| (at..at + DAY).contains(&now)) {
            return Vec::new();
        }
        *warned_at = Some(now);
        let loaded = self.read();
        loaded.iter().filter(|one| !self.is_stand_in(one)).filter_map(|one| one.warning(now)).collect()
    }

    /// Whether it is the one that clients get until the first one by ACME is there. Its end is not far, on purpose.
    fn is_stand_in(&self, one: &Certificate) -> bool {
        one.is_self_signed && !self.source.lock().unwrap_or_else(PoisonError::into_inner).own.is_empty()
    }

    fn choose(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let loaded = self.read();
        let name = name.map(str::to_ascii_lowercase);
        let fits = |one: &&Certificate| name.as_deref().is_some_and(|name| one.is_for(name));
        loaded.iter().find(fits).or(loaded.first()).map(|one| Arc::clone(&one.key))
    }
}

fn stays(error: &str) -> String {
    format!("the certificates stay as they are: {error}")
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
    use std::fs;
    use std::path::Path;

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
        let certificates = Certificates::of(&Contents::read(files)).expect("certificates");
        let chosen = |name| certificates.choose(name).expect("one").cert[0].clone();
        let [a, b] = [0, 1].map(|index| certificates.read()[index].key.cert[0].clone());
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
        let certificates =
            Certificates::of(&Contents::read(vec![(cert.clone(), key.clone())])).expect("certificates");
        let before = certificates.choose(None).expect("one").cert[0].clone();
        let missing = dir.path().join("missing");
        for (files, expected) in [
            ((cert.clone(), other), "b.key is not the key of the certificate"),
            ((missing.clone(), key.clone()), "missing: No such file"),
            ((cert.clone(), missing), "missing: No such file"),
            ((key, cert.clone()), "has no certificate"),
        ] {
            let error = certificates.set(&Contents::read(vec![files])).expect_err("an error");
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(certificates.choose(None).expect("one").cert[0], before);
        assert_eq!(certificates.read()[0].path, cert);
    }

    /// Files that the master has read: the copy has `texts` one after the other.
    fn handed(number: u64, texts: [Result<&[u8], &str>; 2]) -> Contents {
        let named = texts.map(|text| match text {
            Ok(text) => serde_json::json!({ "path": "a.pem", "size": text.len() }),
            Err(error) => serde_json::json!({ "path": "a.pem", "error": error }),
        });
        let files = serde_json::json!({ "number": number, "descriptor": 0, "pairs": [named] });
        let files: CertificateFiles = serde_json::from_value(files).expect("files");
        let mut copy = tempfile::tempfile().expect("a file");
        texts
            .iter()
            .flatten()
            .for_each(|text| std::io::Write::write_all(&mut copy, text).expect("its bytes"));
        files.contents(&mut crate::orders::Passed::of([copy.into()])).expect("contents")
    }

    #[test]
    fn files_that_the_master_has_read_need_no_right_to_read_them() {
        let dir = tempfile::tempdir().expect("a folder");
        let (cert, key) = pair(dir.path(), "a", &["a.example"]);
        let (cert, key) = (fs::read(cert).expect("a file"), fs::read(key).expect("a file"));
        let certificates = Certificates::of(&handed(1, [Ok(&cert), Ok(&key)])).expect("certificates");
        assert!(certificates.choose(None).is_some());
        for (texts, expected) in [
            ([Ok(&cert[..]), Err("permission denied")], "cannot read a.pem: permission denied"),
            ([Ok(&cert[..]), Ok(&key[..10])], "a.pem is no PEM file of its kind"),
            ([Ok(&key[..]), Ok(&cert[..])], "a.pem has no certificate"),
        ] {
            let error = Certificates::of(&handed(1, texts)).expect_err("an error");
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn kept_certificates_serve_until_others_can_be_used() {
        let dir = tempfile::tempdir().expect("a folder");
        let [a, b] = ["a", "b"].map(|name| {
            let (cert, key) = pair(dir.path(), name, &["a.example"]);
            (fs::read(cert).expect("a file"), fs::read(key).expect("a file"))
        });
        let broken = handed(2, [Err("no such file or directory"), Ok(&b.1)]);
        let end = |certificates: &Certificates| certificates.choose(None).map(|key| key.cert[0].clone());
        let a = handed(1, [Ok(&a.0), Ok(&a.1)]);
        assert_eq!(end(&Certificates::of_any(&broken, None, "[::]:443")), None, "it refuses handshakes");
        let kept = Certificates::of_any(&broken, Some(&a), "[::]:443");
        assert_eq!(end(&kept), end(&Certificates::of(&a).expect("certificates")));
        kept.take(&handed(3, [Ok(&b.0), Ok(&b.1)]));
        assert_ne!(end(&kept), end(&Certificates::of(&a).expect("certificates")));
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
            let error = Certificates::of(&Contents::read(vec![(cert.clone(), key.clone())])).expect_err("an error");
            assert!(error.contains("a.key is encrypted with a passphrase"), "{error}");
        }
    }

    /// The certificates of one that lasts for so many days, and its end.
    fn lasting(dir: &Path, days: i64) -> (Arc<Certificates>, i64) {
        let (cert, key) = (dir.join("a.crt"), dir.join("a.key"));
        let secret = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
        let start = SystemTime::now();
        params.not_before = start.into();
        params.not_after = (start + std::time::Duration::from_secs((days * DAY) as u64)).into();
        fs::write(&cert, params.self_signed(&secret).expect("a certificate").pem()).expect("a file");
        fs::write(&key, secret.serialize_pem()).expect("a file");
        let texts = [fs::read(cert).expect("a file"), fs::read(key).expect("a file")];
        let certificates =
            Certificates::of(&handed(1, [Ok(&texts[0]), Ok(&texts[1])])).expect("certificates");
        let end = certificates.not_after().expect("an end");
        (certificates, end)
    }

    #[test]
    fn an_end_that_is_near_is_told_once_a_day() {
        let dir = tempfile::tempdir().expect("a folder");
        let (certificates, end) = lasting(dir.path(), 90);
        let told = |left: i64| certificates.warnings(end - left).join("; ");
        let soon = |left: &str| format!("the certificate a.pem {left}");
        assert_eq!(told(14 * DAY), "");
        // The day after.
        assert_eq!(told(13 * DAY), soon("expires in 13 days"));
        assert_eq!((told(13 * DAY - 1), told(12 * DAY + 1)), (String::new(), String::new()));
        assert_eq!(told(12 * DAY), soon("expires in 12 days"));
        assert_eq!(told(DAY), soon("expires in 1 day"));
        assert_eq!(told(3600), String::new());
        assert_eq!(told(0), soon("expires within a day"));
        assert_eq!(told(-DAY), soon("has expired"));
        assert_eq!(told(-2 * DAY), soon("has expired"));
        // The clock was put back.
        assert_eq!(told(2 * DAY), soon("expires in 2 days"));
    }

    #[test]
    fn a_short_certificate_is_not_always_one_that_ends_soon() {
        let dir = tempfile::tempdir().expect("a folder");
        let (certificates, end) = lasting(dir.path(), 6);
        assert_eq!(certificates.warnings(end - 2 * DAY).len(), 0);
        assert_eq!(certificates.warnings(end - DAY + 1).len(), 1);
    }

    #[test]
    fn the_stand_in_for_the_first_certificate_by_acme_ends_without_a_warning() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = pair(dir.path(), "a", &["a.example"]);
        let certificates = Certificates::of(&Contents::read(vec![files])).expect("certificates");
        let end = certificates.not_after().expect("an end");
        assert_eq!(certificates.warnings(end + DAY).len(), 0);
    }
}
