//! Certificates: the one of this client, made at first use, and the one by which a server is known.
//!
//! A server is trusted by its certificate alone, which the file names: chains of authorities and names of hosts are not
//! looked at. The library keeps what it trusts in a directory of its own form (`own`, `private`, `trusted`, `rejected`).

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opcua_client::IdentityToken;
use opcua_core::sync::RwLock;
use opcua_crypto::{CertificateStore, PrivateKey, SecurityPolicy, X509, X509Data};
use opcua_types::ByteString;
use ring::digest::{SHA256, digest};

use super::settings::{Known, Target, User};
use crate::WrapperError;
use crate::kinds::http::peer::secret;

/// Bits of the key that is made: all policies take it.
const KEY_BITS: u32 = 2_048;
/// Days for which a certificate is made: ten years, for nobody is there to renew it.
const VALID_DAYS: u32 = 3_650;
/// Largest file with a certificate or a key; reason: a chain has some kilobytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What a connection needs of certificates.
pub(super) struct Security {
    pub(super) store: Arc<RwLock<CertificateStore>>,
    /// Certificate and key of this client; none without a policy.
    pub(super) own: Option<(X509, PrivateKey)>,
    /// The URI that the certificate has.
    pub(super) application_uri: String,
    pub(super) identity: IdentityToken,
}

/// The SHA-256 fingerprint of a certificate, hexadecimal.
pub(super) fn fingerprint(der: &[u8]) -> String {
    let sum = digest(&SHA256, der);
    sum.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Security {
    /// Reads the files of a target, and makes the certificate of this client if there is none.
    ///
    /// # Errors
    /// A file is missing or is none of its kind.
    pub(super) fn of(target: &Target) -> Result<Self, WrapperError> {
        let uri = format!("urn:chappe:opcua:{}", target.name);
        if target.policy == SecurityPolicy::None {
            return Ok(Self {
                store: Arc::new(RwLock::new(CertificateStore::new(&target.directory))),
                own: None,
                application_uri: uri,
                identity: IdentityToken::Anonymous,
            });
        }
        let directory = &target.directory;
        let (certificate, key) = match &target.own {
            Some(own) => own.clone(),
            None => (
                directory.join("own/cert.der"),
                directory.join("private/private.pem"),
            ),
        };
        if target.own.is_none() && !(certificate.exists() && key.exists()) {
            make(&uri, &certificate, &key)?;
        }
        let own = (read_certificate(&certificate)?, read_key(&key)?);
        let (store, ..) = CertificateStore::new_with_x509_data(
            directory,
            false,
            Some(&absolute(&certificate)?),
            Some(&absolute(&key)?),
            None::<X509Data>,
        );
        let mut store = store;
        // The fingerprint decides, and the time is checked where the server is known by it.
        store.set_skip_verify_certs(true);
        let identity = match &target.user {
            User::Anonymous => IdentityToken::Anonymous,
            User::Password { user, file } => IdentityToken::new_user_name(user, secret(file)?),
            User::Certificate { certificate, key } => {
                IdentityToken::new_x509(read_certificate(certificate)?, read_key(key)?)
            }
        };
        Ok(Self {
            store: Arc::new(RwLock::new(store)),
            application_uri: own_uri(&own.0).unwrap_or(uri),
            own: Some(own),
            identity,
        })
    }

    /// Checks that a server has the certificate by which it is known, and lets the library trust it.
    ///
    /// # Errors
    /// It has another one, or it is not valid now.
    pub(super) fn check_server(
        &self,
        target: &Target,
        der: &ByteString,
    ) -> Result<(), WrapperError> {
        let Some(known) = &target.server else {
            return Ok(());
        };
        let found = fingerprint(der.as_ref());
        let wanted = match known {
            Known::Fingerprint(wanted) => wanted.clone(),
            Known::File(path) => {
                let certificate = read_certificate(path)?;
                let der = certificate.to_der();
                fingerprint(&der.map_err(|_| unreadable(path, "it is not a certificate"))?)
            }
        };
        if found != wanted {
            let text = format!("{} has the certificate {found}, not {wanted}", target.url);
            return Err(WrapperError::peer(text).with_hint(
                "if its certificate was renewed, set server_fingerprint to the one that the server itself shows; \
                    otherwise, someone intercepts the connection",
            ));
        }
        let wrong =
            |text: String| WrapperError::peer(format!("the certificate of {}: {text}", target.url));
        let certificate = X509::from_byte_string(der).map_err(|error| wrong(error.to_string()))?;
        certificate
            .is_time_valid(&SystemTime::now().into())
            .map_err(|error| {
                wrong(error.to_string()).with_hint("renew it at the server, and check the clocks")
            })?;
        let path = self.store.read().trusted_certs_dir();
        let path = path.join(CertificateStore::cert_file_name(&certificate));
        if fs::read(&path).is_ok_and(|bytes| bytes == der.as_ref()) {
            return Ok(());
        }
        fs::write(&path, der.as_ref()).map_err(|error| unwritable(&path, &error))
    }
}

fn absolute(path: &Path) -> Result<std::path::PathBuf, WrapperError> {
    std::path::absolute(path).map_err(|error| unreadable(path, &error.to_string()))
}

fn unreadable(path: &Path, text: &str) -> WrapperError {
    WrapperError::settings(format!("cannot read {}: {text}", path.display()))
}

fn unwritable(path: &Path, error: &std::io::Error) -> WrapperError {
    WrapperError::settings(format!("cannot write {}: {error}", path.display())).with_hint(
        "let the node write to its directory of wrappers, or set certificate and key_file",
    )
}

fn check_size(path: &Path) -> Result<(), WrapperError> {
    let found = fs::metadata(path).map_err(|error| unreadable(path, &error.to_string()))?;
    match found.is_file() && found.len() <= FILE_BYTES_MAX {
        true => Ok(()),
        false => Err(unreadable(path, "it is not a file of at most 64 KiB")),
    }
}

fn read_certificate(path: &Path) -> Result<X509, WrapperError> {
    check_size(path)?;
    CertificateStore::read_cert(path).map_err(|text| unreadable(path, &text))
}

fn read_key(path: &Path) -> Result<PrivateKey, WrapperError> {
    check_size(path)?;
    let key = PrivateKey::read_pem_file(path);
    key.map_err(|_| {
        unreadable(path, "it is not a key in PEM")
            .with_hint("openssl pkcs8 -topk8 -nocrypt -in KEY -out KEY.pem")
    })
}

/// The URI among the names of a certificate, which a session must tell, too.
fn own_uri(certificate: &X509) -> Option<String> {
    let der = certificate.to_der().ok()?;
    // Tag 6 of a general name (RFC 5280, section 4.2.1.6), of at most 127 bytes.
    let starts = der.windows(6).enumerate();
    let mut starts = starts.filter(|(_, it)| it[0] == 0x86 && it[1] < 0x80);
    starts.find_map(|(at, it)| {
        let text = der.get(at + 2..at + 2 + usize::from(it[1]))?;
        let text = str::from_utf8(text).ok()?;
        let is_uri = certificate.is_application_uri_valid(text).is_ok();
        is_uri.then(|| text.to_owned())
    })
}

/// Makes a certificate that it signs itself, and its key, which only the owner can read.
fn make(uri: &str, certificate: &Path, key: &Path) -> Result<(), WrapperError> {
    let data = X509Data {
        key_size: KEY_BITS,
        common_name: "Chappe".to_owned(),
        organization: "Chappe".to_owned(),
        organizational_unit: String::new(),
        country: String::new(),
        state: String::new(),
        alt_host_names: X509Data::alt_host_names(uri, None, false, true, false),
        certificate_duration_days: VALID_DAYS,
    };
    let failed =
        |text: String| WrapperError::settings(format!("cannot make a certificate: {text}"));
    let (made, private) = X509::cert_and_pkey(&data).map_err(failed)?;
    let der = made.to_der().map_err(|error| failed(error.to_string()))?;
    let private = private
        .to_der()
        .map_err(|error| failed(error.to_string()))?;
    let text = STANDARD.encode(private.as_bytes());
    let mut pem = "-----BEGIN PRIVATE KEY-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END PRIVATE KEY-----\n");
    for (path, bytes, mode) in [(key, pem.as_bytes(), 0o600), (certificate, &der, 0o644)] {
        let failed = |error: std::io::Error| unwritable(path, &error);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(mode);
        let mut file = options.open(path).map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
    }
    Ok(())
}
