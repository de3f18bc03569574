//! TLS with certificates at both ends: one certificate and one trust, for the server and the client of a device, and
//! for a client with its event sink.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chappe_identity::Key;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::trust::Trust;
use super::{Client, FileError, Fingerprint, Server, Usage, certificate, client, provider, server};
use crate::http::Security;
use crate::key_file;

/// The certificate that is shown at both ends, and what is trusted at both.
///
/// ```
/// use chappe_identity::Key;
/// use chappe_transport::tls::Mutual;
/// let device = Mutual::of_key(&Key::from_seed([7; 32]), "valve", "urn:uuid:0a", &[]);
/// let client = Mutual::anonymous().trust(device.fingerprint().into_iter().collect());
/// assert!(client.security().trusts());
/// ```
#[derive(Clone)]
pub struct Mutual {
    own: Option<CertifiedKey>,
    trust: Trust,
    requires_clients: bool,
}

impl Mutual {
    /// Shows no certificate: such a client receives no events.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            own: None,
            trust: Trust::default(),
            requires_clients: true,
        }
    }

    /// Shows the certificate (followed by its chain) in a PEM file. The key file must be readable by its owner
    /// only.
    ///
    /// # Errors
    /// A file cannot be used, or the key does not belong to the certificate.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, FileError> {
        Ok(Self {
            own: Some(own_from_files(certificate, key)?),
            ..Self::anonymous()
        })
    }

    /// Shows a certificate that is made from this key, for the endpoint `uri`, with these usages besides those of
    /// TLS. It is the same at each start.
    #[must_use]
    pub fn of_key(key: &Key, name: &str, uri: &str, usages: &[Usage]) -> Self {
        let certificate = certificate::of_key(key, name, uri, usages).into();
        let own = PrivateKeyDer::from_pem_slice(key.to_pem().as_bytes())
            .ok()
            .and_then(|secret| CertifiedKey::from_der(vec![certificate], secret, &provider()).ok());
        match own {
            Some(own) => Self {
                own: Some(own),
                ..Self::anonymous()
            },
            None => unreachable!("ring signs with every Ed25519 key"),
        }
    }

    /// Trusts the certificates that the authorities in this PEM file have signed, if they have these usages.
    ///
    /// # Errors
    /// The file cannot be read or contains no certificate.
    pub fn trust_authorities(mut self, path: &Path, usages: Vec<Usage>) -> Result<Self, FileError> {
        self.trust.authorities = Some(Arc::new(client::authorities(path)?));
        self.trust.usages = usages;
        Ok(self)
    }

    /// Trusts the certificates with these fingerprints, whatever their names and dates.
    #[must_use]
    pub fn trust(mut self, fingerprints: Vec<Fingerprint>) -> Self {
        self.trust.fingerprints.extend(fingerprints);
        self
    }

    /// Lets certificates of authorities prove no name: many of medical devices have none. One that names the
    /// endpoint of another device is refused still.
    #[must_use]
    pub fn any_name(mut self) -> Self {
        self.trust.any_name = true;
        self
    }

    /// Serves clients without a certificate, too. By default a server that trusts somebody serves only them.
    #[must_use]
    pub fn optional_clients(mut self) -> Self {
        self.requires_clients = false;
        self
    }

    /// The fingerprint of the own certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let own = self.own.as_ref()?;
        own.cert.first().map(Fingerprint::of)
    }

    /// Both ends, as HTTP uses them.
    #[must_use]
    pub fn security(&self) -> Security {
        let client = |trust: Trust| {
            let client = Client::trusting(trust);
            match self.own.clone() {
                Some(own) => client.showing(own),
                None => client,
            }
        };
        // A subscriber named its event sink, and has neither an endpoint nor, mostly, a name.
        let any_name = Trust {
            any_name: true,
            ..self.trust.clone()
        };
        let server = self.own.clone().map(|own| {
            let trust = (!self.trust.is_empty()).then(|| self.trust.clone());
            Server::mutual(own, trust, self.requires_clients)
        });
        Security::new(
            client(self.trust.clone()),
            client(any_name),
            server,
            !self.trust.is_empty(),
        )
    }
}

impl fmt::Debug for Mutual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutual")
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

/// The files of a [`Mutual`], as configurations and command lines name them.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// The certificate, followed by its chain. `None`: one is made from the key.
    pub certificate: Option<PathBuf>,
    /// The key, readable by its owner only. `None`: it is in the file of the certificate, or there is none. Without
    /// a certificate it is an Ed25519 key, which is created if it is missing.
    pub key: Option<PathBuf>,
    /// The authorities that are trusted.
    pub authorities: Option<PathBuf>,
    /// The certificates that are trusted.
    pub fingerprints: Vec<Fingerprint>,
    /// The usages that certificates of authorities must have, and that a made certificate has.
    pub usages: Vec<Usage>,
    /// Whether certificates of authorities prove no name.
    pub any_name: bool,
}

impl Files {
    /// Reads them. A certificate that is made from the key has this name and the endpoint `uri`.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn load(&self, name: &str, uri: &str) -> Result<Mutual, FileError> {
        let mut mutual = match (&self.certificate, &self.key) {
            (Some(certificate), key) => {
                Mutual::from_files(certificate, key.as_ref().unwrap_or(certificate))?
            }
            (None, Some(key)) => {
                let (key, _) = key_file::read_or_create(key)?;
                Mutual::of_key(&key, name, uri, &self.usages)
            }
            (None, None) => Mutual::anonymous(),
        };
        if let Some(authorities) = &self.authorities {
            mutual = mutual.trust_authorities(authorities, self.usages.clone())?;
        }
        if self.any_name {
            mutual = mutual.any_name();
        }
        Ok(mutual.trust(self.fingerprints.clone()))
    }
}

/// The certificate and key in these files.
pub(super) fn own_from_files(certificate: &Path, key: &Path) -> Result<CertifiedKey, FileError> {
    let wrong = |path: &Path, what: String| FileError::Content {
        path: path.to_owned(),
        what,
    };
    let text = server::read(certificate, server::CHAIN_BYTES_MAX)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| wrong(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(certificate, "it contains no certificate".to_owned()));
    }
    let secret = key_file::read_secret(key)?;
    let secret = PrivateKeyDer::from_pem_slice(secret.as_bytes())
        .map_err(|error| wrong(key, format!("it contains no private key: {error}")))?;
    let own = CertifiedKey::from_der(chain, secret, &provider());
    own.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong(key, "it is not the key of the certificate".to_owned())
        }
        other => wrong(certificate, other.to_string()),
    })
}
