//! Requests to an origin that the operator chose: resolves names, uses TLS as configured, and
//! allows endless responses.

use std::time::Duration;

use bytes::Bytes;
use chappe_transport::tls;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::SECRET_HEADER;
use crate::session::ConnectionError;
use crate::{LinkConfig, LinkError};

/// Time limit for the connection, and for the head of the response.
const DEADLINE: Duration = Duration::from_secs(10);
/// Largest response that is read whole.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The address of an origin.
#[derive(Clone)]
pub(super) struct Origin {
    authority: String,
    host: String,
    port: u16,
    tls: Option<tls::Client>,
    token: Option<String>,
}

/// A request to an origin.
pub(super) struct OriginRequest {
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: String,
    pub(super) content_type: Option<&'static str>,
    /// The secret of the subscription in question.
    pub(super) secret: Option<String>,
    pub(super) body: Bytes,
}

impl OriginRequest {
    pub(super) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            content_type: None,
            secret: None,
            body: Bytes::new(),
        }
    }
}

impl Origin {
    pub(super) fn of(config: &LinkConfig) -> Result<Self, LinkError> {
        let wrong = |key, why: String| LinkError::Config { key, why };
        let (scheme, rest) = config.address.split_once("://").unwrap_or_default();
        let authority = rest.trim_end_matches('/');
        if authority.contains(['/', '?', '#', '@']) {
            return Err(wrong(
                "address",
                "use a scheme, a host and a port only".into(),
            ));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let port = port
                    .parse()
                    .map_err(|_| wrong("address", "invalid port".into()))?;
                (host, port)
            }
            _ => (authority, if scheme == "https" { 443 } else { 80 }),
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let tls = match (scheme, &config.fingerprint, &config.authorities) {
            ("https", Some(fingerprint), _) => {
                let fingerprint = fingerprint.parse();
                let fingerprint = fingerprint.map_err(|error: tls::FingerprintError| {
                    wrong("fingerprint", error.to_string())
                })?;
                Some(tls::Client::with_fingerprint(fingerprint).named(&host))
            }
            ("https", None, Some(path)) => {
                let client = tls::Client::with_authorities(path);
                let client = client.map_err(|error| wrong("authorities", error.to_string()))?;
                Some(client.named(&host))
            }
            _ => None,
        };
        Ok(Self {
            authority: authority.to_owned(),
            host,
            port,
            tls,
            token: config.token.clone(),
        })
    }

    /// Sends a request over a new connection; returns when the head of the response has arrived.
    pub(super) async fn send(
        &self,
        ask: OriginRequest,
    ) -> Result<Response<Incoming>, ConnectionError> {
        let refused = |text: String| ConnectionError { text, hint: None };
        let mut request = Request::builder()
            .method(ask.method)
            .uri(ask.path)
            .header(HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(content_type) = ask.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if let Some(secret) = ask.secret {
            request = request.header(SECRET_HEADER, secret);
        }
        let request = request
            .body(Full::new(ask.body))
            .map_err(|error| refused(error.to_string()))?;
        let stream = self.connect().await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| refused(error.to_string()))?;
        tokio::spawn(async move {
            // The reader of the response sees how the connection ended.
            if let Err(error) = connection.await {
                tracing::trace!(%error, "connection ended");
            }
        });
        let answer = timeout(DEADLINE, sender.send_request(request)).await;
        let answer = answer.map_err(|_| refused(format!("{} does not answer", self.authority)))?;
        // ZeroMQ ports send a greeting first, which hyper reports as cancelled or unparsable.
        let foreign = |error: &hyper::Error| error.is_parse() || error.is_canceled();
        answer.map_err(|error| ConnectionError {
            hint: foreign(&error).then(|| {
                "is it the origin's http.listen? A port of ZeroMQ (exchange.listen) is written \
                 tcp://HOST:PORT"
                    .to_owned()
            }),
            text: match foreign(&error) {
                true => format!("{} does not answer in HTTP: {error}", self.authority),
                false => error.to_string(),
            },
        })
    }

    /// Sends a request and reads the whole response.
    pub(super) async fn ask(
        &self,
        ask: OriginRequest,
    ) -> Result<(StatusCode, Bytes), ConnectionError> {
        let answer = self.send(ask).await?;
        self.whole(answer).await
    }

    /// Reads a whole response.
    pub(super) async fn whole(
        &self,
        answer: Response<Incoming>,
    ) -> Result<(StatusCode, Bytes), ConnectionError> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
        let body = timeout(DEADLINE, body).await;
        let text = match body {
            Ok(Ok(body)) => return Ok((status, body.to_bytes())),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("{} does not send its whole response", self.authority),
        };
        Err(ConnectionError { text, hint: None })
    }

    async fn connect(&self) -> Result<tls::Stream, ConnectionError> {
        let place = (self.host.as_str(), self.port);
        let stream = match timeout(DEADLINE, TcpStream::connect(place)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Err(ConnectionError {
                    text: format!("cannot connect to {}: {error}", self.authority),
                    hint: Some("check that the origin runs there".to_owned()),
                });
            }
            Err(_) => {
                return Err(ConnectionError {
                    text: format!("connecting to {} timed out", self.authority),
                    hint: Some("a firewall may block the connection".to_owned()),
                });
            }
        };
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return Ok(tls::Stream::Plain(stream));
        };
        tls.connect(stream, DEADLINE)
            .await
            .map_err(|error| ConnectionError {
                text: error.to_string(),
                hint: error.hint(),
            })
    }
}

/// The explanation of a Chappe node: the detail of a problem document (RFC 9457).
pub(super) fn detail(body: &[u8]) -> Option<String> {
    let problem: serde_json::Value = serde_json::from_slice(body).ok()?;
    problem["detail"].as_str().map(str::to_owned)
}

/// The error for a response without success.
pub(super) fn unwanted(status: StatusCode, body: &[u8]) -> ConnectionError {
    let reason = detail(body).unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let reason: String = reason.trim().chars().take(300).collect();
    let colon = if reason.is_empty() { "" } else { ": " };
    ConnectionError {
        text: format!("the origin responds with {status}{colon}{reason}"),
        hint: match status.as_u16() {
            401 | 403 => Some("check the link's token".to_owned()),
            _ => None,
        },
    }
}
