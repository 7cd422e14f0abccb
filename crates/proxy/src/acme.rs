//! Certificates by ACME (RFC 8555), for domains: proof by TLS-ALPN-01 (RFC 8737) or HTTP-01, renewal at two thirds of a certificate's time.
//!
//! instant-acme speaks with the authority. What is here decides when, answers the challenges, and keeps account and certificates as files.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{Engine, BASE64_URL_SAFE_NO_PAD};
use instant_acme::{
    Account, AccountBuilder, AuthorizationStatus, ChallengeType, ExternalAccountKey, Identifier,
    KeyAuthorization, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use tokio::time::sleep;

use crate::acme_client::Client;
use crate::compress::random;
use crate::control;
use crate::local;
use crate::tls::{Contents, Facts, Proof};

/// The protocol of a TLS-ALPN-01 challenge.
pub const ALPN: &[u8] = b"acme-tls/1";

/// Where an HTTP-01 challenge asks (RFC 8555 §8.3).
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";

/// Seconds until a failed order is tried again: at first, and at most. Let's Encrypt allows five failures an hour.
const FIRST_PAUSE: u64 = 60;
const LONGEST_PAUSE: u64 = 6 * 3600;

/// The longest sleep: clocks may be set, and machines suspended.
const LONGEST_SLEEP: u64 = 3600;

/// How long the authority may take to check and to sign.
const AUTHORITY_TIME: Duration = Duration::from_secs(120);

/// The type of the error for an account that the authority does not know (RFC 8555 §6.7).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// The kinds of proof, the preferred one first.
const PROOFS: [ChallengeType; 2] = [ChallengeType::TlsAlpn01, ChallengeType::Http01];

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The authority has not found the proof.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// The authority, the account and the names to certify.
#[derive(Clone, Debug, Deserialize)]
pub struct Settings {
    /// The names of the certificate.
    pub domains: Vec<String>,
    /// The folder of account and certificates, which is one for each authority.
    pub folder: PathBuf,
    /// The URL of the authority's directory.
    pub server: String,
    /// An address for the authority's messages, `mailto:...`.
    #[serde(default)]
    pub contact: Option<String>,
    /// The id of an account elsewhere, and its key in Base64 for URLs (RFC 8555 §7.3.4).
    #[serde(default)]
    pub account: Option<(String, String)>,
}

impl Settings {
    /// The files of the certificate and its key.
    pub fn files(&self) -> (PathBuf, PathBuf) {
        let name = self.domains.first().map_or("none", String::as_str).replace(['/', '*'], "_");
        (self.folder.join(format!("{name}.pem")), self.folder.join(format!("{name}.key")))
    }
}

/// Answers to the challenges of the order in progress.
#[derive(Debug, Default)]
pub struct Challenges {
    /// Certificates by host.
    tls: RwLock<HashMap<String, Arc<CertifiedKey>>>,
    /// Texts by token.
    http: RwLock<HashMap<String, String>>,
}

impl Proof for Challenges {
    fn protocol(&self) -> &'static [u8] {
        ALPN
    }

    fn certificate(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        self.tls.read().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }
}

impl Challenges {
    /// The text that a path asks for.
    pub fn text(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(WELL_KNOWN)?;
        self.http.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    fn add(&self, host: &str, token: &str, proof: &KeyAuthorization) -> Result<(), Failure> {
        let certificate = Arc::new(proving(host, proof)?);
        self.tls
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(host.to_ascii_lowercase(), certificate);
        self.http
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(token.to_owned(), proof.as_str().to_owned());
        Ok(())
    }

    fn clear(&self) {
        self.tls.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.http.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The certificate of RFC 8737 §3.
fn proving(host: &str, proof: &KeyAuthorization) -> Result<CertifiedKey, Failure> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(proof.digest().as_ref())];
    let chain = vec![CertificateDer::from(params.self_signed(&key)?)];
    let secret = PrivateKeyDer::try_from(key.serialize_der())?;
    // from_der would refuse the extension, which is critical.
    Ok(CertifiedKey::new(chain, ring::default_provider().key_provider.load_private_key(secret)?))
}

/// Makes the folder, and a stand-in for the first certificate: the listener needs a certificate, and the authority asks at the listener.
pub fn prepare(settings: &Settings) -> Result<(), String> {
    let (cert, key) = settings.files();
    // A crash may have left one without the other, or an empty file.
    if Contents::read(vec![settings.files()]).certificates().is_ok() {
        return Ok(());
    }
    local::make_stand_in(&settings.folder, &settings.domains, &cert, &key).map_err(|error| {
        format!("cannot use the folder {} for certificates: {error}", settings.folder.display())
    })
}

/// Keeps the certificate valid, for ever. A failure leaves the old one in use.
pub async fn keep(settings: Settings, challenges: Arc<Challenges>) {
    let mut failures: u32 = 0;
    let mut proof = 0;
    // Whether this try follows the first proof's failure at once, with the second proof.
    let mut is_second = false;
    loop {
        let left = seconds_until_order(&settings);
        if left > 0 {
            sleep(Duration::from_secs(left.min(LONGEST_SLEEP))).await;
            continue;
        }
        let result = obtain(&settings, &challenges, proof).await;
        challenges.clear();
        match result {
            Ok(()) => {
                failures = 0;
                is_second = false;
                control::inform(&format!("new certificate of {}", settings.domains.join(", ")));
            }
            Err(error) => {
                let names = settings.domains.join(", ");
                // One of the two ports may be closed.
                proof = 1 - proof;
                if failures == 0 && error.is::<Refused>() && !is_second {
                    is_second = true;
                    control::warn(&format!(
                        "no new certificate of {names}: {error}; trying the other kind of proof"
                    ));
                    continue;
                }
                let pause = pause_after(failures);
                failures += 1;
                control::error(&failed(&settings, &reason(&*error), pause));
                // A random part of the pause keeps servers from coming back at the same time.
                sleep(Duration::from_secs(pause + random() % (pause / 10 + 1))).await;
            }
        }
    }
}

/// What the log says of a failure.
fn failed(settings: &Settings, error: &str, pause: u64) -> String {
    let names = settings.domains.join(", ");
    let meanwhile = if Facts::of(&settings.files().0).is_some_and(|facts| facts.is_self_signed) {
        "clients get one that no authority has signed until then"
    } else {
        "with the old one until then"
    };
    format!("no new certificate of {names}: {error}; trying again in {pause} s, {meanwhile}")
}

/// An error with its causes.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    causes.collect::<Vec<_>>().join(": ")
}

/// Seconds until the next order. 0 if the certificate lacks a domain, for example one that was just added.
fn seconds_until_order(settings: &Settings) -> u64 {
    let Some(facts) = Facts::of(&settings.files().0) else { return 0 };
    let is_named = |domain: &String| facts.names.iter().any(|name| name.eq_ignore_ascii_case(domain));
    if settings.domains.iter().all(is_named) {
        seconds_until_renewal(facts.not_before, facts.not_after, now())
    } else {
        0
    }
}

/// Two thirds of the time are over.
fn seconds_until_renewal(start: i64, end: i64, now: i64) -> u64 {
    let renewal = start + (end - start) / 3 * 2;
    u64::try_from(renewal - now).unwrap_or(0)
}

/// Doubles from failure to failure.
fn pause_after(failures: u32) -> u64 {
    FIRST_PAUSE.saturating_mul(1 << failures.min(20)).min(LONGEST_PAUSE)
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Orders a certificate, with the proof of this index in [`PROOFS`] where the authority offers it, else the other one.
async fn obtain(settings: &Settings, challenges: &Challenges, proof: usize) -> Result<(), Failure> {
    let kinds = [&PROOFS[proof], &PROOFS[1 - proof]];
    let mut order = order(settings).await?;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let offered =
            |kind: &&&ChallengeType| authorization.challenges.iter().any(|one| one.r#type == ***kind);
        let kind = kinds
            .iter()
            .find(offered)
            .map(|kind| (*kind).clone())
            .ok_or("the authority offers neither TLS-ALPN-01 nor HTTP-01")?;
        let host = authorization.identifier().to_string();
        let mut challenge = authorization.challenge(kind).ok_or("the challenge is gone")?;
        challenges.add(&host, &challenge.token, &challenge.key_authorization())?;
        challenge.set_ready().await?;
    }
    let retries = RetryPolicy::default().timeout(AUTHORITY_TIME);
    match order.poll_ready(&retries).await {
        Ok(OrderStatus::Ready | OrderStatus::Valid) => {}
        Ok(_) => return Err(Refused(refusal(&mut order).await).into()),
        Err(instant_acme::Error::Api(problem)) => return Err(Refused(problem.to_string()).into()),
        Err(error) => return Err(error.into()),
    }
    let secret = order.finalize().await?;
    let chain = order.poll_certificate(&retries).await?;
    let (cert, key) = settings.files();
    local::write(&key, &secret, 0o600)?;
    local::write(&cert, &chain, 0o644)?;
    // Without a pause, the next order would follow at once, and the next.
    if seconds_until_order(settings) == 0 {
        return Err(
            "the new certificate is not one for these names and this time: is the clock right?".into()
        );
    }
    Ok(())
}

/// The authority's reasons for refusing an order.
async fn refusal(order: &mut Order) -> String {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(authorization)) = authorizations.next().await {
        reasons.extend(
            authorization.challenges.iter().filter_map(|one| one.error.as_ref()).map(ToString::to_string),
        );
    }
    if reasons.is_empty() {
        "the authority refuses the order".to_owned()
    } else {
        reasons.join("; ")
    }
}

/// A new order. An account that the authority does not know any more is replaced.
async fn order(settings: &Settings) -> Result<Order, Failure> {
    let names: Vec<Identifier> = settings.domains.iter().cloned().map(Identifier::Dns).collect();
    let wanted = NewOrder::new(&names);
    match account(settings).await?.new_order(&wanted).await {
        Err(instant_acme::Error::Api(problem)) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => {
            fs::remove_file(account_file(settings))?;
            Ok(account(settings).await?.new_order(&wanted).await?)
        }
        result => Ok(result?),
    }
}

/// The account in the folder, or a new one.
async fn account(settings: &Settings) -> Result<Account, Failure> {
    let file = account_file(settings);
    if let Ok(text) = fs::read_to_string(&file) {
        return Ok(builder()?.from_credentials(serde_json::from_str(&text)?).await?);
    }
    let contact: Vec<&str> = settings.contact.as_deref().into_iter().collect();
    let wanted = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let elsewhere = settings.account.as_ref().map(|(id, key)| {
        let key = BASE64_URL_SAFE_NO_PAD.decode(key.trim_end_matches('='))?;
        Ok::<_, Failure>(ExternalAccountKey::new(id.clone(), &key))
    });
    let elsewhere = elsewhere.transpose()?;
    let (account, credentials) =
        builder()?.create(&wanted, settings.server.clone(), elsewhere.as_ref()).await?;
    local::write(&file, &serde_json::to_string(&credentials)?, 0o600)?;
    Ok(account)
}

fn builder() -> Result<AccountBuilder, Failure> {
    Ok(Account::builder_with_http(Box::new(Client::new()?)))
}

fn account_file(settings: &Settings) -> PathBuf {
    settings.folder.join("account.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_of_its_time() {
        assert_eq!(seconds_until_renewal(0, 90, 0), 60);
        assert_eq!(seconds_until_renewal(0, 90, 59), 1);
        assert_eq!(seconds_until_renewal(0, 90, 60), 0);
        assert_eq!(seconds_until_renewal(0, 90, 1000), 0);
    }

    #[test]
    fn failures_are_tried_again_ever_more_seldom() {
        let pauses: Vec<u64> = (0..12).map(pause_after).collect();
        assert_eq!(pauses[..4], [60, 120, 240, 480]);
        assert_eq!((pauses[11], pause_after(u32::MAX)), (LONGEST_PAUSE, LONGEST_PAUSE));
    }

    fn settings(folder: &std::path::Path, domains: &[&str]) -> Settings {
        Settings {
            domains: domains.iter().map(ToString::to_string).collect(),
            folder: folder.join("acme"),
            server: "https://localhost/dir".into(),
            contact: None,
            account: None,
        }
    }

    #[test]
    fn the_stand_in_is_due_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = settings(dir.path(), &["a.example"]);
        prepare(&settings).expect("a stand-in");
        let facts = Facts::of(&settings.files().0).expect("a certificate");
        assert_eq!(seconds_until_order(&settings), 0);
        assert!(facts.not_after > now());
        Contents::read(vec![settings.files()]).certificates().expect("a certificate and its key");
    }

    #[test]
    fn a_certificate_that_lacks_a_domain_is_due_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let own = settings(dir.path(), &["a.example"]);
        let made = rcgen::generate_simple_self_signed(own.domains.clone()).expect("a certificate");
        prepare(&own).expect("a folder");
        fs::write(own.files().0, made.cert.pem()).expect("a file");
        assert!(seconds_until_order(&own) > 0);
        assert_eq!(seconds_until_order(&settings(dir.path(), &["a.example", "www.a.example"])), 0);
    }

    #[test]
    fn files_that_fit_nothing_are_replaced_by_a_stand_in() {
        let dir = tempfile::tempdir().expect("a folder");
        let settings = settings(dir.path(), &["a.example"]);
        prepare(&settings).expect("a stand-in");
        let (cert, key) = settings.files();
        let before = fs::read(&key).expect("a key");
        prepare(&settings).expect("the same");
        assert_eq!(fs::read(&key).expect("a key"), before);
        fs::write(&cert, "").expect("a file");
        prepare(&settings).expect("a stand-in");
        Contents::read(vec![settings.files()]).certificates().expect("a certificate and its key");
    }
}
