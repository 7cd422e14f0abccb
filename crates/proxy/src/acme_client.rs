//! Requests to an ACME authority: a connection for each, HTTP/1.1 over TLS.
//!
//! instant-acme's own client would do, too. It adds HTTP/2 and a pool to the program, and on macOS it takes Apple's frameworks.

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HeaderValue, HOST};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use openssl_probe::ProbeResult;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long the authority may take for the head of a response.
const RESPONSE_TIME: Duration = Duration::from_secs(30);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Trusts the authorities that the system trusts.
pub struct Client(TlsConnector);

impl Client {
    /// Reads the system's authorities.
    pub fn new() -> Result<Self, Failure> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(trusted(openssl_probe::probe())?)
            .with_no_client_auth();
        Ok(Client(TlsConnector::from(Arc::new(config))))
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let response = timeout(RESPONSE_TIME, send(self.0.clone(), request));
        Box::pin(async {
            let response = response.await.unwrap_or_else(|_| Err("the authority does not answer".into()));
            Ok(response.map_err(Error::Other)?.into())
        })
    }
}

async fn send(
    tls: TlsConnector,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<Response<Incoming>, Failure> {
    let uri = std::mem::take(request.uri_mut());
    let authority = uri.authority().filter(|_| uri.scheme() == Some(&Scheme::HTTPS));
    let authority = authority.ok_or_else(|| format!("{uri} is no https:// URL"))?;
    // An IPv6 address has brackets in a URL (RFC 3986 §3.2.2).
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(443))).await?;
    let stream = tls.connect(ServerName::try_from(host)?.to_owned(), stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The request fails with the connection's error.
    tokio::spawn(connection);
    request.headers_mut().insert(HOST, HeaderValue::from_str(authority.as_str())?);
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    Ok(sender.send_request(request).await?)
}

/// The authorities where OpenSSL looks for them: SSL_CERT_FILE and SSL_CERT_DIR, else the system's file and folders.
fn trusted(places: ProbeResult) -> Result<RootCertStore, Failure> {
    let in_folders = places.cert_dir.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let in_folders = in_folders.filter_map(|entry| Some(entry.ok()?.path()));
    let files: Vec<PathBuf> = places.cert_file.into_iter().chain(in_folders).collect();
    let mut trusted = RootCertStore::empty();
    for file in files {
        // A folder has other files, too.
        let Ok(found) = CertificateDer::pem_file_iter(&file) else { continue };
        trusted.add_parsable_certificates(found.flatten());
    }
    if trusted.is_empty() {
        return Err("the system has no certificates of authorities".into());
    }
    Ok(trusted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_come_from_a_file_and_from_folders_which_have_other_files_too() {
        let dir = tempfile::tempdir().expect("a folder");
        let made = |name: &str| {
            rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate").cert.pem()
        };
        let (file, folder) = (dir.path().join("all.pem"), dir.path().join("certs"));
        fs::create_dir(&folder).expect("a folder");
        fs::write(&file, made("a.example") + &made("b.example")).expect("a file");
        fs::write(folder.join("c.pem"), made("c.example")).expect("a file");
        fs::write(folder.join("README"), "none").expect("a file");
        let count = |cert_file: Option<&PathBuf>, cert_dir: &[PathBuf]| {
            trusted(ProbeResult { cert_file: cert_file.cloned(), cert_dir: cert_dir.to_vec() })
                .map(|all| all.len())
        };
        assert_eq!(count(Some(&file), &[]).expect("authorities"), 2);
        assert_eq!(count(Some(&file), std::slice::from_ref(&folder)).expect("authorities"), 3);
        assert_eq!(count(None, &[folder, dir.path().join("none")]).expect("authorities"), 1);
        assert!(count(None, &[]).is_err());
    }

    #[tokio::test]
    async fn nothing_is_asked_without_tls() {
        let request = Request::get("http://127.0.0.1:1/").body(BodyWrapper::default()).expect("a request");
        let error = send(Client::new().expect("a client").0, request).await.expect_err("an error");
        assert_eq!(error.to_string(), "http://127.0.0.1:1/ is no https:// URL");
    }
}
