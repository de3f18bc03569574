//! The client end, and the certificates it trusts.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::{Refused, Why};
use super::{Error, FileError, Fingerprint, PROTOCOL, Stream, provider};
use crate::key_file;

/// The largest file of authorities; reason: the largest collections have 300 kB.
const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;

/// The authorities in a PEM file.
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
    Ok(roots)
}

/// The client end. Clones share their sessions.
#[derive(Clone)]
pub struct Client {
    connector: TlsConnector,
    name: Option<ServerName<'static>>,
}

impl Client {
    /// Trusts certificates in this PEM file, and those signed by the authorities in it.
    ///
    /// # Errors
    /// The file cannot be read or contains no certificate.
    pub fn with_authorities(path: &Path) -> Result<Self, FileError> {
        let content = |what: String| FileError::Content {
            path: path.to_owned(),
            what,
        };
        let roots = authorities(path)?;
        let provider = provider();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
        let verifier = verifier.build();
        let verifier = verifier.map_err(|_| content("it contains no certificate".to_owned()))?;
        Ok(Self::trusting(Trust::Authorities(verifier), provider))
    }

    /// Trusts only the certificate with this fingerprint, whatever its names and dates.
    #[must_use]
    pub fn with_fingerprint(fingerprint: Fingerprint) -> Self {
        Self::trusting(Trust::Fingerprint(fingerprint), provider())
    }

    /// Shows the certificate (followed by its chain) in this PEM file to servers that ask for one. The key file
    /// must be readable by its owner only.
    ///
    /// # Errors
    /// A file cannot be used, or the key does not belong to the certificate.
    pub fn with_certificate(self, certificate: &Path, key: &Path) -> Result<Self, FileError> {
        let wrong = |path: &Path, what: String| FileError::Content {
            path: path.to_owned(),
            what,
        };
        let text = super::server::read(certificate, AUTHORITIES_BYTES_MAX)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.map_err(|error| wrong(certificate, error.to_string()))?;
        let secret = key_file::read_secret(key)?;
        let secret = PrivateKeyDer::from_pem_slice(secret.as_bytes())
            .map_err(|error| wrong(key, format!("it contains no private key: {error}")))?;
        let own = CertifiedKey::from_der(chain, secret, &provider());
        let own = own.map_err(|error| wrong(certificate, error.to_string()))?;
        let mut config = ClientConfig::clone(self.connector.config());
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(own));
        Ok(Self {
            connector: Arc::new(config).into(),
            ..self
        })
    }

    fn trusting(trust: Trust, provider: Arc<CryptoProvider>) -> Self {
        let verifier = Arc::new(Verifier {
            trust,
            provider: provider.clone(),
        });
        let builder = ClientConfig::builder_with_provider(provider);
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
        self.name = ServerName::try_from(name.to_owned()).ok();
        self
    }

    /// Performs the handshake on a connection, within `deadline`.
    ///
    /// # Errors
    /// The peer does not speak TLS, or its certificate is not trusted.
    pub async fn connect(&self, stream: TcpStream, deadline: Duration) -> Result<Stream, Error> {
        let peer = stream.peer_addr().map_err(|source| Error::Io {
            // The address is unknown because the connection has failed, which the handshake reports.
            peer: SocketAddr::from(([0, 0, 0, 0], 0)),
            source,
        })?;
        let name = self.name.clone();
        let name = name.unwrap_or_else(|| ServerName::IpAddress(peer.ip().into()));
        match tokio::time::timeout(deadline, self.connector.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Stream::Client(Box::new(stream))),
            Ok(Err(error)) => Err(Error::of(peer, error)),
            Err(_) => Err(Error::Late { peer }),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Trust {
    Authorities(Arc<WebPkiServerVerifier>),
    Fingerprint(Fingerprint),
}

/// Verifies certificates, and reports the fingerprint of refused ones.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let presented = Fingerprint::of(certificate);
        let refuse = |why| Refused::new(why, presented, name).into_rustls();
        match &self.trust {
            Trust::Fingerprint(pinned) if *pinned == presented => {
                Ok(ServerCertVerified::assertion())
            }
            Trust::Fingerprint(pinned) => Err(refuse(Why::NotPinned(*pinned))),
            Trust::Authorities(verifier) => {
                let judged =
                    verifier.verify_server_cert(certificate, intermediates, name, ocsp, now);
                judged.map_err(|error| match error {
                    rustls::Error::InvalidCertificate(error) => refuse(Why::Invalid(error)),
                    _ => refuse(Why::Invalid(CertificateError::BadEncoding)),
                })
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
