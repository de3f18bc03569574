//! The client end, and the certificates it trusts.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chappe_identity::Proof;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::trust::{ServerVerifier, Trust, server_name};
use super::{Error, FileError, Fingerprint, PROTOCOL, Stream, mutual, provider};

/// The largest file of authorities; reason: the largest collections have 300 kB.
const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;

/// The authorities in a PEM file, at least one.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, FileError> {
    let text = super::server::read(path, AUTHORITIES_BYTES_MAX)?;
    let content = |what: String| FileError::Content {
        path: path.to_owned(),
        what,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| content(error.to_string()))?;
        let added = roots.add(certificate);
        added.map_err(|error| content(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(content("it contains no certificate".to_owned())),
        false => Ok(roots),
    }
}

/// The client end. Clones share their sessions.
#[derive(Clone)]
pub struct Client {
    connector: TlsConnector,
    trust: Trust,
    name: Option<String>,
}

impl Client {
    /// Trusts certificates in this PEM file, and those signed by the authorities in it.
    ///
    /// # Errors
    /// The file cannot be read or contains no certificate.
    pub fn with_authorities(path: &Path) -> Result<Self, FileError> {
        Ok(Self::trusting(Trust {
            authorities: Some(Arc::new(authorities(path)?)),
            ..Trust::default()
        }))
    }

    /// Trusts only the certificate with this fingerprint, whatever its names and dates.
    #[must_use]
    pub fn with_fingerprint(fingerprint: Fingerprint) -> Self {
        Self::trusting(Trust {
            fingerprints: vec![fingerprint],
            ..Trust::default()
        })
    }

    /// Shows the certificate (followed by its chain) in this PEM file to servers that ask for one. The key file
    /// must be readable by its owner only.
    ///
    /// # Errors
    /// A file cannot be used, or the key does not belong to the certificate.
    pub fn with_certificate(self, certificate: &Path, key: &Path) -> Result<Self, FileError> {
        Ok(self.showing(mutual::own_from_files(certificate, key)?))
    }

    /// Shows this certificate to servers that ask for one.
    pub(super) fn showing(self, own: CertifiedKey) -> Self {
        let mut config = ClientConfig::clone(self.connector.config());
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(own));
        Self {
            connector: Arc::new(config).into(),
            ..self
        }
    }

    pub(super) fn trusting(trust: Trust) -> Self {
        let verifier = Arc::new(ServerVerifier::new(trust.clone(), provider()));
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = match builder.with_safe_default_protocol_versions() {
            Ok(builder) => builder,
            Err(_) => unreachable!("ring has suites for TLS 1.2 and 1.3"),
        };
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Self {
            connector: Arc::new(config).into(),
            trust,
            name: None,
        }
    }

    /// Names no protocol in the handshake; by default it names HTTP.
    #[must_use]
    pub fn without_protocol(self) -> Self {
        let mut config = ClientConfig::clone(self.connector.config());
        config.alpn_protocols.clear();
        Self {
            connector: Arc::new(config).into(),
            ..self
        }
    }

    /// Requires a certificate for this name instead of the address.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Performs the handshake on a connection, within `deadline`.
    ///
    /// # Errors
    /// The peer does not speak TLS, or its certificate is not trusted.
    pub async fn connect(&self, stream: TcpStream, deadline: Duration) -> Result<Stream, Error> {
        self.connect_to(stream, &Proof::default(), deadline).await
    }

    /// Like [`Client::connect`]; the certificate has to prove this.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub async fn connect_to(
        &self,
        stream: TcpStream,
        proof: &Proof,
        deadline: Duration,
    ) -> Result<Stream, Error> {
        let peer = stream.peer_addr().map_err(|source| Error::Io {
            // The address is unknown because the connection has failed, which the handshake reports.
            peer: SocketAddr::from(([0, 0, 0, 0], 0)),
            source,
        })?;
        let proof = Proof {
            name: self.name.clone().or_else(|| proof.name.clone()),
            endpoint: proof.endpoint.clone(),
        };
        let name = server_name(&proof, peer);
        let connecting = self.connector.connect(name, stream);
        let stream = match tokio::time::timeout(deadline, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Error::of(peer, error)),
            Err(_) => return Err(Error::Late { peer }),
        };
        let shown = stream.get_ref().1.peer_certificates();
        let source = rustls::Error::NoCertificatesPresented;
        let certificate = shown.and_then(<[_]>::first);
        let certificate = certificate.ok_or(Error::Protocol { peer, source })?;
        let proven = self.trust.proves(certificate, &proof, peer);
        proven.map_err(|refused| Error::Certificate { peer, refused })?;
        Ok(Stream::Client(Box::new(stream)))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
