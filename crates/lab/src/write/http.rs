//! A client that waits for each answer on one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::Error;

/// The path of the elements that are written.
pub(super) const ELEMENTS: &str = "/api/v1/streams/bench/elements";

pub(crate) struct Client {
    reader: BufReader<TcpStream>,
    host: SocketAddr,
    token: String,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr, token: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).map_err(Error::io("connecting to the node"))?;
        stream
            .set_nodelay(true)
            .map_err(Error::io("connecting to the node"))?;
        Ok(Self {
            reader: BufReader::new(stream),
            host: address,
            token: token.to_owned(),
        })
    }

    /// Posts a body, all of which must be stored.
    pub(super) fn post(&mut self, path: &str, content_type: &str, body: &str) -> Result<(), Error> {
        let kind = format!("Content-Type: {content_type}\r\n");
        self.post_bytes(path, &kind, body.as_bytes())
    }

    /// The same with these header fields.
    pub(crate) fn post_bytes(
        &mut self,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Result<(), Error> {
        self.exchange("POST", path, headers, body).map(drop)
    }

    /// Reads a resource.
    pub(crate) fn get(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        self.exchange("GET", path, "", &[])
    }

    /// Sends a request; returns the body of the answer.
    fn exchange(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let failed = || Error::io("writing to the node");
        let (host, token, length) = (self.host, &self.token, body.len());
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             {headers}Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.extend(body);
        let stream = self.reader.get_mut();
        stream.write_all(&request).map_err(failed())?;
        let mut line = String::new();
        self.reader.read_line(&mut line).map_err(failed())?;
        let status = line.trim_end().to_owned();
        let mut length = 0;
        loop {
            line.clear();
            self.reader.read_line(&mut line).map_err(failed())?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().unwrap_or(0);
            }
        }
        let mut answer = vec![0; length];
        self.reader.read_exact(&mut answer).map_err(failed())?;
        match [" 200 ", " 201 ", " 204 "]
            .iter()
            .any(|good| status.contains(good))
        {
            true => Ok(answer),
            false => {
                let text = String::from_utf8_lossy(&answer);
                Err(Error::Failed(format!("the node answers {status}: {text}")))
            }
        }
    }
}
