//! A client of a node's REST interface.

mod transfer;

use std::net::SocketAddr;
use std::time::Duration;

use chappe_dpws::exchange::SOAP_CONTENT_TYPE;
use chappe_transport::{codes, tls};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::cli::NodeAddress;
use crate::output::Failure;

/// Bytes of one answer; a page of elements with waveforms is below 16 MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of one live event, or of one line.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// Time to connect to a node.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// A client of one node.
#[derive(Debug, Clone)]
pub(crate) struct NodeClient {
    scheme: &'static str,
    authority: String,
    tls: Option<tls::Client>,
    token: Option<String>,
}

impl NodeClient {
    /// The node that the flags name.
    pub(crate) fn new(address: &NodeAddress) -> Result<Self, Failure> {
        let (scheme, default_port) = match address.node.split_once("://") {
            Some(("https", _)) => ("https", "443"),
            _ => ("http", "80"),
        };
        let rest = address.node.strip_prefix(scheme);
        let rest = rest.and_then(|rest| rest.strip_prefix("://"));
        let authority = rest.map(|rest| rest.trim_end_matches('/'));
        let authority = authority.filter(|text| !text.is_empty() && !text.contains('/'));
        let authority = authority.ok_or_else(|| {
            Failure::new(format!("{:?} is not the address of a node", address.node))
                .coded("argument_invalid")
                .hint("write it as http://127.0.0.1:8470")
        })?;
        let port = authority.rsplit(':').next();
        let authority = match port.is_some_and(|port| port.parse::<u16>().is_ok()) {
            true => authority.to_owned(),
            false => format!("{authority}:{default_port}"),
        };
        let tls = match scheme {
            "https" => Some(trust(address, &authority)?),
            _ => None,
        };
        Ok(Self {
            scheme,
            authority,
            tls,
            // `export CHAPPE_TOKEN=$(cat FILE)` without that file sets an empty one.
            token: address.token.clone().filter(|token| !token.is_empty()),
        })
    }

    /// The address of the node, without a path.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// The addresses of a connection to the node: this side's and the node's.
    pub(crate) async fn addresses(&self) -> Result<(SocketAddr, SocketAddr), Failure> {
        let stream = self.dial().await?;
        Ok((stream.local_addr()?, stream.peer_addr()?))
    }

    async fn dial(&self) -> Result<TcpStream, Failure> {
        let connecting = TcpStream::connect(&self.authority);
        let connected = tokio::time::timeout(CONNECT_DEADLINE, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        connected.map_err(|error| {
            Failure::new(format!("no node answers at {}: {error}", self.url()))
                .coded("node_unreachable")
                .hint("start one: chappe up DIR, or chappe demo; or name another with --node")
        })
    }

    async fn connect(&self) -> Result<tls::Stream, Failure> {
        let stream = self.dial().await?;
        let Some(tls) = &self.tls else {
            return Ok(tls::Stream::Plain(stream));
        };
        tls.connect(stream, CONNECT_DEADLINE)
            .await
            .map_err(|error| {
                let hint = error.hint();
                Failure::from(error).hint_if(hint)
            })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<Value>,
    ) -> Result<Response<Incoming>, Failure> {
        let body = body.map(|body| ("application/json", Bytes::from(body.to_string())));
        let response = self.exchange(method, path, accept, body).await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(failure(&Reply::of(response).await?)),
        }
    }

    /// Sends a request, with a body and its media type; the response has any status.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<(&str, Bytes)>,
    ) -> Result<Response<Incoming>, Failure> {
        let stream = self.connect().await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.authority)
            .header("accept", accept);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let bytes = match body {
            Some((kind, bytes)) => {
                request = request.header("content-type", kind);
                bytes
            }
            None => Bytes::new(),
        };
        let response = sender.send_request(request.body(Full::new(bytes))?).await;
        // A ZeroMQ port sends first: hyper reports a cancellation or a parse error.
        let foreign = |error: &hyper::Error| error.is_parse() || error.is_canceled();
        response.map_err(|error| match foreign(&error) {
            true => Failure::new(format!(
                "{} does not answer in HTTP: {error}",
                self.authority
            ))
            .coded("node_unreachable")
            .hint("name the node's http.listen with --node, not a port of ZeroMQ"),
            false => error.into(),
        })
    }

    /// Opens a connection for several requests.
    pub(crate) async fn open(&self) -> Result<Connection, Failure> {
        let stream = self.connect().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection {
            sender,
            authority: self.authority.clone(),
            token: self.token.clone(),
        })
    }

    /// Gets a JSON document.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        let response = self
            .send(Method::GET, path, "application/json, */*;q=0.5", None)
            .await?;
        Ok(serde_json::from_slice(&read(response).await?)?)
    }

    /// Gets a text in one of the accepted formats, with its media type.
    pub(crate) async fn get_text(
        &self,
        path: &str,
        accept: &str,
    ) -> Result<(String, String), Failure> {
        let response = self.send(Method::GET, path, accept, None).await?;
        let kind = response.headers().get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.to_owned();
        let text = read(response).await?;
        Ok((kind, String::from_utf8_lossy(&text).into_owned()))
    }

    /// Posts a JSON document and gets one.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Result<Value, Failure> {
        let response = self
            .send(Method::POST, path, "application/json", Some(body))
            .await?;
        Ok(serde_json::from_slice(&read(response).await?)?)
    }

    /// Posts a message of SOAP 1.2 and gets one, which may be a fault.
    pub(crate) async fn post_soap(&self, path: &str, message: String) -> Result<Bytes, Failure> {
        let body = Some((SOAP_CONTENT_TYPE, Bytes::from(message)));
        let response = self
            .exchange(Method::POST, path, SOAP_CONTENT_TYPE, body)
            .await?;
        let kind = response.headers().get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match kind.starts_with("application/soap+xml") {
            true => read(response).await,
            false => Err(failure(&Reply::of(response).await?)),
        }
    }

    /// Puts a JSON document and gets one.
    pub(crate) async fn put(&self, path: &str, body: Value) -> Result<Value, Failure> {
        let response = self
            .send(Method::PUT, path, "application/json", Some(body))
            .await?;
        Ok(serde_json::from_slice(&read(response).await?)?)
    }

    /// Deletes the resource at `path`.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), Failure> {
        let response = self
            .send(Method::DELETE, path, "application/json", None)
            .await?;
        read(response).await?;
        Ok(())
    }

    /// Opens an answer of lines of JSON.
    pub(crate) async fn lines(&self, path: &str) -> Result<Lines, Failure> {
        let accept = "application/x-ndjson";
        let response = self.send(Method::GET, path, accept, None).await?;
        Ok(Lines {
            body: response.into_body(),
            buffer: Vec::new(),
            at: 0,
        })
    }

    /// Opens a stream of server-sent events.
    pub(crate) async fn events(&self, path: &str) -> Result<Events, Failure> {
        let response = self
            .send(Method::GET, path, "text/event-stream", None)
            .await?;
        Ok(Events {
            body: response.into_body(),
            buffer: Vec::new(),
            last_id: None,
        })
    }
}

/// An answer of any status.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The status.
    pub(crate) status: u16,
    /// The pause that the node asks for.
    pub(crate) retry_after: Option<Duration>,
    /// The node ends the connection.
    pub(crate) closes: bool,
    /// The document; null when it is none.
    pub(crate) body: Value,
}

impl Reply {
    async fn of(response: Response<Incoming>) -> Result<Self, Failure> {
        let header = |name: &str| response.headers().get(name)?.to_str().ok();
        let seconds = header("retry-after").and_then(|text| text.parse().ok());
        let retry_after = seconds.map(Duration::from_secs);
        let closes = header("connection").is_some_and(|text| text.eq_ignore_ascii_case("close"));
        let status = response.status().as_u16();
        let text = read(response).await?;
        Ok(Self {
            status,
            retry_after,
            closes,
            body: serde_json::from_slice(&text).unwrap_or(Value::Null),
        })
    }
}

/// The error that an answer names.
pub(crate) fn failure(reply: &Reply) -> Failure {
    let problem = &reply.body;
    let words = ["title", "detail"]
        .iter()
        .filter_map(|key| problem[*key].as_str());
    let message = words.collect::<Vec<_>>().join(": ");
    let message = match message.is_empty() {
        true => format!("the node answers with status {}", reply.status),
        false => message,
    };
    // What is not a problem of a node may be the answer of a server that expects TLS.
    let other = problem.is_null().then_some(
        "a node answers otherwise: check the address, and whether it starts with http:// or https://",
    );
    let failure = Failure::new(message)
        .coded("error")
        .hint_if(problem["hint"].as_str().or(other));
    // A newer node may have codes that this program does not explain.
    match problem["code"].as_str().and_then(codes::find) {
        Some(known) => failure.coded(known.code),
        None => failure,
    }
}

/// A connection to a node.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    authority: String,
    token: Option<String>,
}

impl Connection {
    /// Posts a body and gets the answer, whatever its status.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Reply, Failure> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("host", &self.authority)
            .header("accept", "application/json")
            .header("content-type", content_type);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.sender.ready().await?;
        let request = request.body(Full::new(Bytes::from(body)))?;
        Reply::of(self.sender.send_request(request).await?).await
    }
}

/// The client of TLS with the trust that the flags name.
fn trust(address: &NodeAddress, authority: &str) -> Result<tls::Client, Failure> {
    let client = match (&address.fingerprint, &address.authorities) {
        (Some(fingerprint), _) => tls::Client::with_fingerprint(*fingerprint),
        (None, Some(path)) => tls::Client::with_authorities(path).map_err(|error| {
            let hint = error.hint();
            Failure::from(error).hint_if(hint)
        })?,
        (None, None) => {
            let text = format!("no trusted certificate for {authority}");
            let hint = "give --fingerprint, which `chappe key show` prints on the node's host, or \
                        --authorities FILE";
            return Err(Failure::new(text).coded("argument_invalid").hint(hint));
        }
    };
    let client = match (&address.client_certificate, &address.client_key) {
        (Some(certificate), Some(key)) => {
            let shown = client.with_certificate(certificate, key);
            shown.map_err(|error| {
                let hint = error.hint();
                Failure::from(error).hint_if(hint)
            })?
        }
        _ => client,
    };
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    Ok(client.named(host.trim_matches(['[', ']'])))
}

async fn read(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let limited = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let collected = limited.collect().await;
    collected
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| Failure::new(error.to_string()).coded("connection_broken"))
}

/// Lines of an answer.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
    /// Where the next line begins in the buffer.
    at: usize,
}

impl Lines {
    /// The next line; `None` at the end of the answer.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Failure> {
        let mut searched = self.at;
        loop {
            let end = self.buffer[searched..]
                .iter()
                .position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let end = searched + end;
                let line = String::from_utf8_lossy(&self.buffer[self.at..end]).into_owned();
                self.at = end + 1;
                return Ok(Some(line));
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            searched = self.buffer.len();
            if searched > EVENT_BYTES_MAX {
                let text = format!("a line of the node exceeds {EVENT_BYTES_MAX} bytes");
                return Err(Failure::new(text).coded("answer_incomplete"));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    /// Its type; `message` when none is given.
    pub name: String,
    /// Its data.
    pub data: String,
}

/// A stream of server-sent events.
#[derive(Debug)]
pub(crate) struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    last_id: Option<String>,
}

impl Events {
    /// The last id that the node gave, by which a later connection resumes.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The next event; `None` when the node ends the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<ServerEvent>, Failure> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let block = String::from_utf8_lossy(&block);
                // A block without data has no event, but may have an id.
                let id = block.lines().find_map(|line| line.strip_prefix("id:"));
                self.last_id = id.map(|id| id.trim().to_owned()).or(self.last_id.take());
                if let Some(event) = parse(&block) {
                    return Ok(Some(event));
                }
                continue;
            }
            if self.buffer.len() > EVENT_BYTES_MAX {
                return Err(Failure::new(format!(
                    "an event of the node exceeds {EVENT_BYTES_MAX} bytes"
                ))
                .coded("answer_incomplete"));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }
}

/// One block of an event stream (HTML Living Standard, section 9.2.6); `None` for a comment.
fn parse(block: &str) -> Option<ServerEvent> {
    let mut name = String::from("message");
    let mut data = Vec::new();
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value.to_owned(),
            "data" => data.push(value),
            _ => {}
        }
    }
    (!data.is_empty()).then(|| ServerEvent {
        name,
        data: data.join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_comments_skipped() {
        let event = parse("event: elements\nid: a@1:2\ndata: {\ndata: }\n\n");
        let wanted = ServerEvent {
            name: "elements".into(),
            data: "{\n}".into(),
        };
        assert_eq!(event, Some(wanted));
        assert_eq!(parse(": keep-alive\n\n"), None);
    }

    #[test]
    fn addresses_of_nodes_are_checked() {
        let address = |node: &str| NodeAddress::at(node);
        assert_eq!(
            NodeClient::new(&address("http://127.0.0.1:1/"))
                .unwrap()
                .authority,
            "127.0.0.1:1"
        );
        assert_eq!(
            NodeClient::new(&address("http://h")).unwrap().authority,
            "h:80"
        );
        let mut trusted = address("https://h");
        trusted.fingerprint = Some("ab".repeat(32).parse().unwrap());
        assert_eq!(NodeClient::new(&trusted).unwrap().authority, "h:443");
        for wrong in ["https://x", "x:1", "http://", "http://a/b", "httpx://a"] {
            assert!(NodeClient::new(&address(wrong)).is_err(), "{wrong}");
        }
    }
}
