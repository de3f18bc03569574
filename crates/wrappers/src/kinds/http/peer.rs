//! A server that the operator chose: its address, its trust, its credentials.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use chappe_identity::{Contact, Proof, Scheme};
use chappe_stream::DescriptorError;
use chappe_transport::http::{Answer, Client, ClientLimits, Error};
use chappe_transport::tls;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{HeaderMap, Method};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{CommonKeys, PeerFile, WrapperError};

/// Time to connect, and for the head of the answer, and for its body.
const DEADLINE: Duration = Duration::from_secs(20);
/// The authorities that the host trusts: the first of these files that exists.
const HOST_AUTHORITIES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // the same, newer
    "/etc/ssl/ca-bundle.pem",             // openSUSE
    "/etc/ssl/cert.pem",                  // Alpine without `ca-certificates`
];
/// Longest secret in bytes.
const SECRET_BYTES_MAX: u64 = 8 << 10;

/// How a server is reached.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::kinds) struct Server {
    /// File of the authorities (PEM) that sign the server's certificate. Default: those that the host
    /// trusts. Relative to this file.
    authorities: Option<PathBuf>,
    /// The fingerprint of the server's certificate, instead of authorities.
    fingerprint: Option<String>,
    /// File with the bearer token that the server requires. Relative to this file.
    token_file: Option<PathBuf>,
}

/// How a server is trusted.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::kinds) struct Trust {
    /// File of the authorities (PEM) that sign the server's certificate. Default: those that the host
    /// trusts. Relative to this file.
    authorities: Option<PathBuf>,
    /// The fingerprint of the server's certificate, instead of authorities.
    fingerprint: Option<String>,
}

impl From<Trust> for Server {
    fn from(trust: Trust) -> Self {
        Self {
            authorities: trust.authorities,
            fingerprint: trust.fingerprint,
            token_file: None,
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(in crate::kinds) enum Failure {
    /// The answer is longer than the limit.
    TooLong(WrapperError),
    /// Any other reason.
    Other(WrapperError),
}

impl From<Failure> for WrapperError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::TooLong(error) | Failure::Other(error) => error,
        }
    }
}

/// An address and the server at it.
pub(in crate::kinds) struct HttpPeer {
    address: Address,
    client: Client,
    authorization: Option<HeaderValue>,
}

/// The parts of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Address {
    scheme: Scheme,
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl Address {
    /// Its path, with a query if it has one.
    pub(in crate::kinds) fn path(&self) -> &str {
        &self.path
    }

    /// Whether others on the network can read what is exchanged with it.
    pub(in crate::kinds) fn is_exposed(&self) -> bool {
        let is_loopback = match self.host.parse::<std::net::IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        };
        self.scheme == Scheme::Http && !is_loopback
    }

    /// Reads an http or https address.
    pub(in crate::kinds) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let (scheme, default_port) = match scheme {
            "http" => (Scheme::Http, 80),
            "https" => (Scheme::Https, 443),
            _ => return Err("write it as http://HOST:PORT/PATH or https://…".to_owned()),
        };
        let is_plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>');
        if !rest.bytes().all(is_plain) {
            return Err("it has characters that an address cannot have".to_owned());
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err("a password does not belong into an address; use token_file".to_owned());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let port = port
                    .parse()
                    .map_err(|_| format!("{port:?} is not a port"))?;
                (host, port)
            }
            _ => (authority, default_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || port == 0 {
            return Err("it names no host or no port".to_owned());
        }
        let path = path.split('#').next().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            scheme,
            authority: authority.to_owned(),
            host: host.to_owned(),
            port,
            path: format!("{slash}{path}"),
        })
    }
}

impl HttpPeer {
    /// The server of a file.
    ///
    /// # Errors
    /// The address is none, or a file cannot be read.
    pub(in crate::kinds) fn new(
        address: Address,
        server: &Server,
        directory: impl Fn(&Path) -> PathBuf,
        answer_bytes: usize,
    ) -> Result<Self, WrapperError> {
        let limits = ClientLimits {
            connect_deadline: DEADLINE,
            header_deadline: DEADLINE,
            body_deadline: DEADLINE,
            body_bytes: answer_bytes,
            ..ClientLimits::default()
        };
        let client = match address.scheme {
            Scheme::Http => Client::new(limits),
            Scheme::Https => Client::with_tls(limits, trust(server, &directory, &address.host)?),
        };
        let token = server
            .token_file
            .as_ref()
            .map(|path| secret(&directory(path)));
        let authorization = match token.transpose()? {
            Some(token) => {
                let value = HeaderValue::try_from(format!("Bearer {token}"));
                let mut value = value
                    .map_err(|_| WrapperError::settings("the token has characters of no token"))?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        Ok(Self {
            address,
            client,
            authorization,
        })
    }

    /// Sends a request to the address; returns the complete answer, whatever its status.
    ///
    /// # Errors
    /// There is no answer.
    pub(in crate::kinds) async fn request(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, WrapperError> {
        let path = self.address.path.clone();
        Ok(self.request_at(path, method, headers, body).await?)
    }

    /// Sends a request to another path of the same server.
    ///
    /// # Errors
    /// There is no answer.
    pub(in crate::kinds) async fn request_at(
        &self,
        path: String,
        method: Method,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Failure> {
        let Address {
            scheme,
            authority,
            host,
            port,
            ..
        } = &self.address;
        let failed = |error: std::io::Error| {
            let text = format!("cannot find the address of {host}: {error}");
            Failure::Other(WrapperError::peer(text))
        };
        let resolving = tokio::net::lookup_host((host.as_str(), *port));
        let mut addresses = resolving.await.map_err(failed)?;
        let none = || Failure::Other(WrapperError::peer(format!("{host} has no address")));
        let address = addresses.next().ok_or_else(none)?;
        let value = HeaderValue::try_from(authority.as_str());
        let value =
            value.map_err(|_| Failure::Other(WrapperError::settings("the host is none")))?;
        headers.insert(HOST, value);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let contact = Contact {
            scheme: *scheme,
            address,
            path,
            proof: Proof::default(),
        };
        let answer = self.client.request(&contact, method, headers, body).await;
        answer.map_err(|error| {
            let failed = WrapperError::peer(error.to_string());
            match error {
                Error::TooLarge { .. } => Failure::TooLong(failed),
                _ => Failure::Other(failed),
            }
        })
    }
}

/// Whom to trust as the server.
pub(in crate::kinds) fn trust(
    server: &Server,
    directory: impl Fn(&Path) -> PathBuf,
    host: &str,
) -> Result<tls::Client, WrapperError> {
    let client = match &server.fingerprint {
        Some(fingerprint) => {
            let parsed = fingerprint.parse();
            let parsed = parsed.map_err(|error: tls::FingerprintError| {
                WrapperError::settings(error.to_string())
            })?;
            tls::Client::with_fingerprint(parsed)
        }
        None => {
            let path = match &server.authorities {
                Some(path) => directory(path),
                None => host_authorities()?,
            };
            tls::Client::with_authorities(&path)
                .map_err(|error| WrapperError::settings(error.to_string()))?
        }
    };
    Ok(client.named(host))
}

fn host_authorities() -> Result<PathBuf, WrapperError> {
    let found = HOST_AUTHORITIES
        .iter()
        .map(Path::new)
        .find(|path| path.exists());
    found.map(Path::to_owned).ok_or_else(|| {
        WrapperError::settings(format!(
            "this host has no file of authorities, such as {} (install ca-certificates, or set `authorities`)",
            HOST_AUTHORITIES[0]
        ))
    })
}

/// The first line of a file.
pub(in crate::kinds) fn secret(path: &Path) -> Result<String, WrapperError> {
    let shown = path.display();
    let failed =
        |error: std::io::Error| WrapperError::settings(format!("cannot read {shown}: {error}"));
    if std::fs::metadata(path).map_err(failed)?.len() > SECRET_BYTES_MAX {
        return Err(WrapperError::settings(format!(
            "{shown} is longer than a secret"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    match text.lines().next().map(str::trim) {
        Some(secret) if !secret.is_empty() => Ok(secret.to_owned()),
        _ => Err(WrapperError::settings(format!("{shown} is empty"))),
    }
}

/// The address of a file under `key`.
pub(in crate::kinds) fn address<C: CommonKeys>(
    file: &PeerFile<C>,
    key: &str,
    text: &str,
) -> Result<Address, DescriptorError> {
    Address::parse(text).map_err(|message| file.fault(key, message, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_divided() {
        let address = Address::parse("https://plant.example/a?b=c#d").unwrap();
        assert_eq!((address.port, &*address.path), (443, "/a?b=c"));
        let address = Address::parse("http://[::1]:8080").unwrap();
        assert_eq!(
            (&*address.host, address.port, &*address.path),
            ("::1", 8080, "/")
        );
        for wrong in [
            "",
            "plant.example",
            "ftp://a/",
            "http://",
            "http://:80/",
            "http://a:0/",
            "http://a:b/",
            "http://u:p@a/",
            "http://a/ b",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in ".{0,60}") {
            let _ = Address::parse(&text);
            let _ = Address::parse(&format!("http://{text}"));
        }
    }
}

/// A server that gives prepared answers, for tests.
#[cfg(test)]
pub(in crate::kinds) mod tests_server {
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Answers one request on each connection; returns its address and the requests.
    pub(crate) async fn serve(answers: Vec<&'static str>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let noted = requests.clone();
        tokio::spawn(async move {
            for answer in answers {
                let (mut peer, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                let mut buffer = [0; 4096];
                while !is_complete(&request) {
                    let count = peer.read(&mut buffer).await.unwrap();
                    assert!(count > 0, "a whole request");
                    request.extend_from_slice(&buffer[..count]);
                }
                noted
                    .lock()
                    .unwrap()
                    .push(String::from_utf8(request).unwrap());
                let answer = answer.replacen("\r\n", "\r\nConnection: close\r\n", 1);
                peer.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (address, requests)
    }

    fn is_complete(request: &[u8]) -> bool {
        let text = String::from_utf8_lossy(request).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return false;
        };
        let length = head.split_once("content-length: ").map_or(0, |(_, rest)| {
            let digits = rest.split("\r\n").next().unwrap_or_default();
            digits.parse().unwrap_or(0)
        });
        body.len() >= length
    }
}
