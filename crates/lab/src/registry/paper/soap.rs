//! UDDI over SOAP 1.1: a client that waits for each answer on connections that stay open.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::service::{Requests, Step};
use super::signed::Signing;
use super::under_test::{Keys, UnderTest, between};
use crate::Error;
use crate::floor::Synced;

/// A message in an envelope.
pub(super) fn envelope(inner: &str) -> String {
    format!(
        "<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\"><s:Body>{inner}</s:Body></s:Envelope>"
    )
}

/// A connection to a server, by its host and port.
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    host: String,
}

impl Connection {
    pub(super) fn open(host: &str) -> Result<Self, Error> {
        let failed = || Error::io(format!("connecting to {host}"));
        let stream = TcpStream::connect(host).map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        let timeout = Some(Duration::from_secs(120));
        stream.set_read_timeout(timeout).map_err(failed())?;
        Ok(Self {
            reader: BufReader::new(stream),
            host: host.to_owned(),
        })
    }

    /// Sends a request with these fields of the head, and reads the answer; one of success is wanted.
    pub(super) fn request(
        &mut self,
        method: &str,
        path: &str,
        fields: &str,
        body: &str,
    ) -> Result<String, Error> {
        let failed = || Error::io(format!("asking {}", self.host));
        let (host, length) = (&self.host, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        );
        let stream = self.reader.get_mut();
        stream.write_all(request.as_bytes()).map_err(failed())?;
        let (status, body) = read(&mut self.reader).map_err(failed())?;
        let text = String::from_utf8_lossy(&body);
        match status.contains(" 200 ") || status.contains(" 201 ") {
            true => Ok(text.into_owned()),
            false => {
                let short: String = text.chars().take(800).collect();
                Err(Error::Failed(format!("{host} answers {status}: {short}")))
            }
        }
    }

    /// Posts a SOAP message.
    pub(super) fn post(&mut self, path: &str, envelope: &str) -> Result<String, Error> {
        let fields = "Content-Type: text/xml; charset=utf-8\r\nSOAPAction: \"\"\r\n";
        self.request("POST", path, fields, envelope)
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<(String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.trim_end().to_owned();
    let (mut length, mut is_chunked) = (0, false);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "transfer-encoding" => is_chunked = value.contains("chunked"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if !is_chunked {
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        return Ok((status, body));
    }
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        let from = body.len();
        body.resize(from + size, 0);
        reader.read_exact(&mut body[from..])?;
        line.clear();
        reader.read_line(&mut line)?;
        if size == 0 {
            return Ok((status, body));
        }
    }
}

/// The addresses of a registry and the credentials of a publisher.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) inquiry: &'static str,
    pub(super) publish: &'static str,
    /// The process, whose memory is read.
    pub(super) process: Option<u32>,
}

/// A registry over SOAP.
pub(super) struct Soap {
    pub(super) connection: Connection,
    pub(super) address: Address,
    pub(super) token: String,
    requests: Requests,
    /// Signs requests and checks answers.
    pub(super) signing: Option<Signing>,
    /// The disk alone, written between the requests.
    floor: Option<Synced>,
}

impl Soap {
    /// A client of a publisher, who gets a token; with signatures there is none.
    pub(super) fn connect(
        address: &Address,
        (user, credential): (&str, &str),
        signing: Option<Signing>,
    ) -> Result<Self, Error> {
        let connection = Connection::open(&address.host)?;
        let mut client = Self {
            connection,
            address: address.clone(),
            token: String::new(),
            requests: Requests::new()?,
            signing,
            floor: None,
        };
        if client.signing.is_none() {
            let request = format!(
                "<get_authToken generic=\"2.0\" xmlns=\"urn:uddi-org:api_v2\" userID=\"{user}\" cred=\"{credential}\"/>"
            );
            let (answer, _) = client.call(address.publish, &request)?;
            let token = between(&answer, "authInfo>", "<")?;
            token.clone_into(&mut client.token);
        }
        Ok(client)
    }

    /// A client like this one with a connection of its own.
    pub(super) fn another(&self) -> Result<Self, Error> {
        Ok(Self {
            connection: Connection::open(&self.address.host)?,
            address: self.address.clone(),
            token: self.token.clone(),
            requests: Requests::new()?,
            signing: None,
            floor: None,
        })
    }

    /// The same client, which writes to the floor after each publication.
    pub(super) fn with_floor(self, floor: Synced) -> Self {
        Self {
            floor: Some(floor),
            ..self
        }
    }

    /// Sends what is in a body; returns the answer and the time until it was there, signing and checking included.
    pub(super) fn call(&mut self, path: &str, inner: &str) -> Result<(String, Duration), Error> {
        let message = envelope(inner);
        let start = Instant::now();
        let answer = match &self.signing {
            None => self.connection.post(path, &message)?,
            Some(signing) => {
                let signed = signing.sign(&message)?;
                let answer = self.connection.post(path, &signed)?;
                signing.check(&answer)?
            }
        };
        Ok((answer, start.elapsed()))
    }
}

impl UnderTest for Soap {
    fn save(&mut self, step: Step, name: &str, keys: &mut Keys) -> Result<Duration, Error> {
        let request = self.requests.save(step, name, keys, &self.token);
        let (answer, time) = self.call(self.address.publish, &request)?;
        let key = between(&answer, Requests::key_of(step), "\"")?;
        keys.set(step, key.to_owned());
        Ok(time)
    }

    fn inquire(&mut self, name: &str) -> Result<Duration, Error> {
        let (found, time) = self.call(self.address.inquiry, &Requests::find(name))?;
        let key = between(&found, "serviceKey=\"", "\"")?;
        let (detail, more) = self.call(self.address.inquiry, &Requests::detail(key))?;
        match detail.contains(&format!("Pulse of ward {name}")) {
            true => Ok(time + more),
            false => Err(Error::Failed(format!("{name} is not in {detail}"))),
        }
    }

    fn floor(&mut self) -> Result<Option<Duration>, Error> {
        self.floor.as_mut().map(Synced::once).transpose()
    }

    fn resident(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.address.process?));
        let status = status.ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes * 1024)
    }
}
