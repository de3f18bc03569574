//! TLS with certificates at both ends: one certificate and one trust, for the server and the client of a device, and
//! for a client with its event sink.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chappe_identity::Key;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;

use super::trust::Trust;
use super::{Client, FileError, Fingerprint, Server, Usage, certificate, client, provider, server};
use crate::http::{Clients, Security};
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
    /// The usages by which a discovery proxy is recognized.
    proxy_usages: Vec<Usage>,
}

impl Mutual {
    /// Shows no certificate: such a client receives no events.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            own: None,
            trust: Trust::default(),
            requires_clients: true,
            proxy_usages: Vec::new(),
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

    /// Trusts no certificate that a revocation list in this PEM file names: a list of the authorities that are trusted
    /// already. An expired list refuses all certificates of its authority, and one that is missing refuses none.
    /// Certificates that are trusted by their fingerprints are not looked up.
    ///
    /// # Errors
    /// The file cannot be read, contains no list or a malformed one, or no authority is trusted.
    pub fn revocation_lists(mut self, path: &Path) -> Result<Self, FileError> {
        let content = |what: &str| FileError::Content {
            path: path.to_owned(),
            what: what.to_owned(),
        };
        let authorities = self.trust.authorities.clone();
        let authorities =
            authorities.ok_or_else(|| content("no authority is trusted that could revoke"))?;
        let lists = server::revocation_lists_of(path)?;
        let builder = WebPkiClientVerifier::builder_with_provider(authorities, provider());
        let built = builder.with_crls(lists.iter().cloned()).build();
        built.map_err(|_| content("a revocation list is malformed"))?;
        self.trust.revocation_lists = lists.into();
        Ok(self)
    }

    /// Recognizes discovery proxies by these usages: one that announces itself counts like a configured one if its
    /// trusted certificate has all of them. Without any, none does.
    #[must_use]
    pub fn proxy_usages(mut self, usages: Vec<Usage>) -> Self {
        self.proxy_usages = usages;
        self
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

    #[cfg(test)]
    pub(super) fn trust_of_both_ends(&self) -> Trust {
        self.trust.clone()
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
        let to_proxies = (!self.proxy_usages.is_empty()).then(|| {
            client(Trust {
                usages: self.proxy_usages.clone(),
                pinned_have_usages: true,
                ..self.trust.clone()
            })
        });
        let clients = Clients {
            to_devices: client(self.trust.clone()),
            to_sinks: client(any_name),
            to_proxies,
        };
        Security::new(clients, server, !self.trust.is_empty())
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
    /// The lists by which the authorities revoke certificates.
    pub revocation_lists: Option<PathBuf>,
    /// The usages that certificates of authorities must have, and that a made certificate has.
    pub usages: Vec<Usage>,
    /// The usages by which a discovery proxy that announces itself is recognized.
    pub proxy_usages: Vec<Usage>,
    /// Whether a made certificate has the usages of discovery proxies, too.
    pub is_proxy: bool,
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
                let of_proxy = self.proxy_usages.iter().filter(|_| self.is_proxy);
                let usages: Vec<_> = self.usages.iter().chain(of_proxy).cloned().collect();
                Mutual::of_key(&key, name, uri, &usages)
            }
            (None, None) => Mutual::anonymous(),
        };
        if let Some(authorities) = &self.authorities {
            mutual = mutual.trust_authorities(authorities, self.usages.clone())?;
        }
        if let Some(lists) = &self.revocation_lists {
            mutual = mutual.revocation_lists(lists)?;
        }
        if self.any_name {
            mutual = mutual.any_name();
        }
        let mutual = mutual.proxy_usages(self.proxy_usages.clone());
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::time::Duration;

    use rustls::{ClientConfig, SupportedProtocolVersion, version};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;

    use super::super::certificate::{FOREVER, file_of_key, oid};
    use super::super::extension::has_usage;
    use super::super::trust::ServerVerifier;
    use super::super::{Error, Stream};
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(300);

    /// A file with a key of its own and a certificate for this usage, which is its own authority.
    fn file(folder: &Path, usage: &[u8], until: &str) -> PathBuf {
        use std::io::Write as _;
        let key = Key::from_seed(crate::seed().unwrap());
        let path = folder.join(key.public().to_string());
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .unwrap();
        let text = file_of_key(&key, usage, until);
        file.write_all(text.as_bytes()).unwrap();
        path
    }

    /// The result of the server end with this client, and what the client reads from it.
    async fn meet(
        server: &Server,
        client: &Client,
    ) -> (Result<Stream, Error>, std::io::Result<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (accepted, peer) = listener.accept().await.unwrap();
        let serving = async {
            let mut accepted = server.accept(accepted, peer, DEADLINE).await;
            if let Ok(stream) = &mut accepted {
                stream.write_all(&[7]).await.unwrap();
                stream.flush().await.unwrap();
            }
            accepted
        };
        let reading = async {
            match client.connect(stream, DEADLINE).await {
                Ok(mut stream) => stream.read_u8().await,
                Err(error) => Err(std::io::Error::other(error.to_string())),
            }
        };
        tokio::join!(serving, reading)
    }

    #[tokio::test]
    async fn a_client_is_refused_with_the_reason_of_its_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let own = Mutual::of_key(&Key::from_seed([1; 32]), "device", "urn:uuid:0a", &[]);
        let pinned = own.fingerprint().unwrap();
        for (usage, until, demanded, reason) in [
            (oid::CLIENT_AUTH, FOREVER, &[][..], None),
            (
                oid::CLIENT_AUTH,
                "20200102000000Z",
                &[],
                Some("it has expired"),
            ),
            (
                oid::SERVER_AUTH,
                FOREVER,
                &[],
                Some("not made for this usage"),
            ),
            (
                oid::CLIENT_AUTH,
                FOREVER,
                &["1.2.3"],
                Some("not made for this usage"),
            ),
        ] {
            let path = file(folder.path(), usage, until);
            let demanded = demanded.iter().map(|it| it.parse().unwrap()).collect();
            let device = own.clone().trust_authorities(&path, demanded).unwrap();
            let server = Server::mutual(device.own.unwrap(), Some(device.trust), true);
            let client = Client::with_fingerprint(pinned);
            let client = client.with_certificate(&path, &path).unwrap();
            let (served, read) = meet(&server, &client).await;
            match reason {
                None => {
                    let served = served.unwrap();
                    assert!(served.client_certificate().is_some());
                    assert_eq!(read.unwrap(), 7);
                }
                Some(reason) => {
                    let error = served.unwrap_err();
                    assert!(error.to_string().contains(reason), "{error}");
                    assert!(error.hint().is_some());
                    read.unwrap_err();
                }
            }
        }
    }

    #[test]
    fn a_made_certificate_has_the_usages_of_proxies_only_at_a_proxy() {
        let folder = tempfile::tempdir().unwrap();
        // Of the numbers for documentation (RFC 5612).
        let usage: Usage = "1.3.6.1.4.1.32473.1".parse().unwrap();
        for is_proxy in [true, false] {
            let files = Files {
                key: Some(folder.path().join("key.pem")),
                proxy_usages: vec![usage.clone()],
                is_proxy,
                ..Files::default()
            };
            let own = files.load("node", "urn:x:y").unwrap().own.unwrap();
            assert_eq!(has_usage(&own.cert[0], &usage), is_proxy);
        }
    }

    #[tokio::test]
    async fn a_client_without_a_certificate_is_served_only_where_it_is_optional() {
        let other = Mutual::of_key(&Key::from_seed([2; 32]), "client", "urn:uuid:0b", &[]);
        let own = Mutual::of_key(&Key::from_seed([1; 32]), "device", "urn:uuid:0a", &[]);
        let own = own.trust(other.fingerprint().into_iter().collect());
        let client = Client::with_fingerprint(own.fingerprint().unwrap());
        for (device, is_served) in [(own.clone(), false), (own.optional_clients(), true)] {
            let required = device.requires_clients;
            let server = Server::mutual(device.own.unwrap(), Some(device.trust), required);
            let (served, read) = meet(&server, &client).await;
            assert_eq!((served.is_ok(), read.is_ok()), (is_served, is_served));
        }
    }

    #[tokio::test]
    async fn both_versions_are_spoken_with_certificates_at_both_ends() {
        let keys = [[1; 32], [2; 32]].map(Key::from_seed);
        let [device, client] = keys.map(|key| Mutual::of_key(&key, "a", "urn:uuid:0a", &[]));
        let pinned = |it: &Mutual| it.fingerprint().into_iter().collect();
        let device = device.clone().trust(pinned(&client));
        let client = client.trust(pinned(&device));
        let server = Server::mutual(device.own.unwrap(), Some(device.trust), true);
        let versions: [&'static SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];
        for version in versions {
            let verifier = ServerVerifier::new(client.trust.clone(), provider());
            let own = rustls::sign::SingleCertAndKey::from(client.own.clone().unwrap());
            let config = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[version])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_client_cert_resolver(Arc::new(own));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            let (accepted, peer) = listener.accept().await.unwrap();
            let connector = TlsConnector::from(Arc::new(config));
            let name = std::net::IpAddr::from([127, 0, 0, 1]).into();
            let (served, connected) = tokio::join!(
                server.accept(accepted, peer, DEADLINE),
                connector.connect(rustls::pki_types::ServerName::IpAddress(name), stream)
            );
            assert!(served.unwrap().client_certificate().is_some());
            let spoken = connected.unwrap().get_ref().1.protocol_version();
            assert_eq!(spoken, Some(version.version));
        }
    }
}
