//! The server end, and its certificate.

use std::cmp::Reverse;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chappe_identity::der::issued_at;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::trust::{ClientVerifier, Trust};
use super::{Error, FileError, Fingerprint, PROTOCOL, Stream, certificate, provider, validity};
use crate::{PRIVATE, key_file, replace_file};

/// The largest certificate file; reason: a chain has less than 20 kB.
pub(super) const CHAIN_BYTES_MAX: u64 = 256 << 10;
/// The largest file of revocation lists; reason: lists grow with time.
const REVOCATION_BYTES_MAX: u64 = 16 << 20;
/// The first byte of a TLS handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;
/// The answer to a client that uses plain HTTP.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 54\r\nconnection: close\r\n\r\nthis port speaks TLS: use https:// instead of http://\n";

/// The server end. Clones share the sessions.
#[derive(Clone)]
pub struct Server {
    acceptor: TlsAcceptor,
    fingerprint: Fingerprint,
    ends: Option<i64>,
}

impl Server {
    /// Uses the certificate (followed by its chain) and the key in these PEM files. The key file must be readable
    /// by its owner only.
    ///
    /// # Errors
    /// A file cannot be used, or the key does not belong to the certificate.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, FileError> {
        let chain = read(certificate, CHAIN_BYTES_MAX)?;
        let secret = key_file::read_text(key)?.ok_or_else(|| FileError::Io {
            path: key.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        Self::from_pem(&chain, secret.as_bytes(), certificate, key)
    }

    /// Uses a self-signed certificate, stored with its key in the file `path`. Creates it if it is missing: for
    /// `name`, for the node named by `uri`, for host names and addresses. Returns whether it was created.
    ///
    /// # Errors
    /// The file cannot be used or created.
    pub fn self_signed(
        path: &Path,
        name: &str,
        uri: &str,
        hosts: &[String],
    ) -> Result<(Self, bool), FileError> {
        if let Some(text) = key_file::read_text(path)? {
            let server = Self::from_pem(text.as_bytes(), text.as_bytes(), path, path)?;
            return Ok((server, false));
        }
        let failed = |source| FileError::Io {
            path: path.to_owned(),
            source,
        };
        let text = certificate::make(name, uri, hosts, certificate::FOREVER)
            .map_err(|_| failed(io::Error::other("the system provides no randomness")))?;
        replace_file(path, PRIVATE, text.as_bytes()).map_err(failed)?;
        let server = Self::from_pem(text.as_bytes(), text.as_bytes(), path, path)?;
        Ok((server, true))
    }

    /// Also accepts certificates of clients that an authority in this PEM file has signed, unless a revocation
    /// list in the other file names them. A list that has expired refuses all certificates of its issuer. A client
    /// without a certificate is accepted as well; [`Stream::client_certificate`] tells them apart.
    ///
    /// # Errors
    /// A file cannot be read, or contains no certificate or no list.
    pub fn with_client_authorities(
        self,
        path: &Path,
        revocation_lists: Option<&Path>,
    ) -> Result<Self, FileError> {
        let content = |what: String| FileError::Content {
            path: path.to_owned(),
            what,
        };
        let roots = super::client::authorities(path)?;
        let mut verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
        if let Some(path) = revocation_lists {
            verifier = verifier
                .with_crls(revocation_lists_of(path)?)
                .allow_unknown_revocation_status()
                .enforce_revocation_expiration();
        }
        let verifier = verifier.allow_unauthenticated().build();
        let verifier = verifier.map_err(|error| {
            content(match error {
                VerifierBuilderError::InvalidCrl(_) => "a revocation list is malformed".to_owned(),
                _ => "it contains no certificate".to_owned(),
            })
        })?;
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = match builder.with_safe_default_protocol_versions() {
            Ok(builder) => builder,
            Err(_) => unreachable!("ring has suites for TLS 1.2 and 1.3"),
        };
        let builder = builder.with_client_cert_verifier(verifier);
        let own = self.acceptor.config().cert_resolver.clone();
        let mut config = builder.with_cert_resolver(own);
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            acceptor: Arc::new(config).into(),
            ..self
        })
    }

    /// Shows this certificate, and serves the clients that `trust` allows, if it is given.
    pub(super) fn mutual(own: CertifiedKey, trust: Option<Trust>, requires_clients: bool) -> Self {
        let fingerprint = Fingerprint::of(&own.cert[0]);
        let ends = own.cert.iter().filter_map(|it| validity::end_of(it)).min();
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = match builder.with_safe_default_protocol_versions() {
            Ok(builder) => builder,
            Err(_) => unreachable!("ring has suites for TLS 1.2 and 1.3"),
        };
        let builder = match trust {
            Some(trust) => {
                let verifier = ClientVerifier::new(trust, requires_clients, provider());
                builder.with_client_cert_verifier(Arc::new(verifier))
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Self {
            acceptor: Arc::new(config).into(),
            fingerprint,
            ends,
        }
    }

    fn from_pem(
        chain: &[u8],
        secret: &[u8],
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, FileError> {
        let wrong = |path: &Path, what: String| FileError::Content {
            path: path.to_owned(),
            what,
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|error| wrong(certificate, error.to_string()))?;
        // A chain is valid until its first certificate ends.
        let ends = chain.iter().filter_map(|it| validity::end_of(it)).min();
        let first = chain.first();
        let fingerprint = first
            .map(Fingerprint::of)
            .ok_or_else(|| wrong(certificate, "it contains no certificate".to_owned()))?;
        let secret = PrivateKeyDer::from_pem_slice(secret)
            .map_err(|error| wrong(key, format!("it contains no private key: {error}")))?;
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = match builder.with_safe_default_protocol_versions() {
            Ok(builder) => builder,
            Err(_) => unreachable!("ring has suites for TLS 1.2 and 1.3"),
        };
        let config = builder
            .with_no_client_auth()
            .with_single_cert(chain, secret);
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                wrong(key, "it is not the key of the certificate".to_owned())
            }
            other => wrong(certificate, other.to_string()),
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            acceptor: Arc::new(config).into(),
            fingerprint,
            ends,
        })
    }

    /// The fingerprint of its certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The end of the first certificate of its chain, in seconds since 1970. `None`: never.
    #[must_use]
    pub fn ends_s(&self) -> Option<i64> {
        self.ends
    }

    /// Performs the handshake on an accepted connection, within `deadline`. A client that uses plain HTTP gets an
    /// explanation in HTTP.
    ///
    /// # Errors
    /// The peer does not speak TLS, takes too long or disconnects.
    pub async fn accept(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        deadline: Duration,
    ) -> Result<Stream, Error> {
        match tokio::time::timeout(deadline, self.handshake(stream, peer)).await {
            Ok(done) => done,
            Err(_) => Err(Error::Late { peer }),
        }
    }

    async fn handshake(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<Stream, Error> {
        let failed = |source| Error::Io { peer, source };
        let mut first = [0];
        let peeked = stream.peek(&mut first).await.map_err(failed)?;
        if peeked == 0 {
            return Err(Error::Unused { peer });
        }
        if first[0] != HANDSHAKE {
            // Delivery is not guaranteed.
            let _ = stream.write_all(PLAIN).await;
            let _ = stream.shutdown().await;
            return Err(Error::NotTls { peer });
        }
        let accepted = self.acceptor.accept(stream).await;
        let accepted = accepted.map_err(|error| Error::of(peer, error))?;
        Ok(Stream::Server(Box::new(accepted)))
    }
}

/// The revocation lists in a PEM file, the latest first: of those that cover a certificate the first one counts.
pub(super) fn revocation_lists_of(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
    let content = |what: String| FileError::Content {
        path: path.to_owned(),
        what,
    };
    let text = read(path, REVOCATION_BYTES_MAX)?;
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    let mut lists = lists.map_err(|error| content(error.to_string()))?;
    lists.sort_by_cached_key(|list| Reverse(issued_at(list)));
    match lists.is_empty() {
        true => Err(content("it contains no revocation list".to_owned())),
        false => Ok(lists),
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Server");
        shown
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// Reads a file that is not secret, if it is not longer than this.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    key_file::read_within(path, bytes_max).map_err(|source| FileError::Io {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Client;
    use super::*;

    /// The client's error, if the server has the certificate `shown` and the client trusts the file `trusted`.
    async fn refused(shown: &str, trusted: &Path) -> Error {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let path = Path::new("shown.pem");
        let server = Server::from_pem(shown.as_bytes(), shown.as_bytes(), path, path).unwrap();
        let deadline = Duration::from_secs(300);
        let accepting = async {
            let (stream, peer) = listener.accept().await.unwrap();
            server.accept(stream, peer, deadline).await
        };
        let stream = TcpStream::connect(address).await.unwrap();
        let client = Client::with_authorities(trusted).unwrap();
        let (_, connected) = tokio::join!(accepting, client.connect(stream, deadline));
        connected.unwrap_err()
    }

    #[tokio::test]
    async fn expired_and_strange_certificates_are_named_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = ["127.0.0.1".to_owned()];
        let make = |until| certificate::make("node", "urn:n", &hosts, until).unwrap();
        let (expired, other) = (make("20200102000000Z"), make(certificate::FOREVER));
        let path = directory.path().join("trusted.pem");
        replace_file(&path, PRIVATE, expired.as_bytes()).unwrap();
        let error = refused(&expired, &path).await;
        assert!(error.to_string().contains("it has expired"), "{error}");
        assert!(error.hint().unwrap().contains("clock"));
        let error = refused(&other, &path).await;
        let text = error.to_string();
        assert!(text.contains("signed by a trusted authority"), "{text}");
        assert!(error.hint().unwrap().contains("pin the fingerprint"));
    }
}
