//! Certificates for developers: an authority of this user's own, and a certificate for this machine, as mkcert makes them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

/// Days of the certificate. Apple's systems take none that lasts longer than 825.
const DAYS: u64 = 820;

/// Days of the authority.
const AUTHORITY_DAYS: u64 = 3650;

/// Makes what is missing in `folder`, and a certificate for these hosts. Returns the paths of the authority, the certificate and its key.
pub fn make(folder: &Path, hosts: &[String]) -> Result<[PathBuf; 3], Box<dyn std::error::Error>> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let [authority, authority_key, cert, key] =
        ["authority.pem", "authority.key", "localhost.pem", "localhost.key"].map(|name| folder.join(name));
    if !authority.exists() || !authority_key.exists() {
        let secret = KeyPair::generate()?;
        let made = authority_params()?.self_signed(&secret)?;
        write(&authority_key, &secret.serialize_pem(), 0o600)?;
        write(&authority, &made.pem(), 0o644)?;
    }
    let issuer = Issuer::new(authority_params()?, KeyPair::from_pem(&fs::read_to_string(&authority_key)?)?);
    let secret = KeyPair::generate()?;
    let made = host_params(hosts)?.signed_by(&secret, &issuer)?;
    write(&key, &secret.serialize_pem(), 0o600)?;
    write(&cert, &made.pem(), 0o644)?;
    Ok([authority, cert, key])
}

fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = name("Fastrack local authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    last(&mut params, AUTHORITY_DAYS);
    Ok(params)
}

fn host_params(hosts: &[String]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    for host in hosts {
        params.subject_alt_names.push(match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.as_str().try_into()?),
        });
    }
    params.distinguished_name = name("Fastrack local certificate");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    last(&mut params, DAYS);
    Ok(params)
}

fn name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

/// From yesterday on: clocks differ.
fn last(params: &mut CertificateParams, days: u64) {
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now();
    params.not_before = (now - day).into();
    params.not_after = (now + day * days as u32).into();
}

/// Makes a certificate that will be over soon, as a stand-in for one to come.
pub fn make_stand_in(
    folder: &Path,
    hosts: &[String],
    cert: &Path,
    key: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let secret = KeyPair::generate()?;
    let mut params = host_params(hosts)?;
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(30 * 86_400)).into();
    params.not_after = (now + Duration::from_secs(86_400)).into();
    write(key, &secret.serialize_pem(), 0o600)?;
    Ok(write(cert, &params.self_signed(&secret)?.pem(), 0o644)?)
}

/// Replaces a file as a whole.
pub fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    // An earlier process with the same pid may have left this file: in a container, pids recur.
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Contents;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_authority_stays_and_the_keys_are_for_their_owner_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("fastrack");
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let [authority, cert, key] = make(&folder, &hosts).expect("certificates");
        let before = fs::read_to_string(&authority).expect("a file");
        Contents::read(vec![(cert.clone(), key.clone())]).certificates().expect("a certificate and its key");
        make(&folder, &hosts).expect("certificates");
        assert_eq!(fs::read_to_string(&authority).expect("a file"), before);
        let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&key), mode(&folder.join("authority.key"))), (0o700, 0o600, 0o600));
    }
}
