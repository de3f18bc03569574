//! Messages of HTTP/1.1 in one direction of a connection (RFC 9112).

use std::io::Read;

/// Bytes of a head. Reason: twice what servers take.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Bytes of a body, also after decompression. Default 4 MiB, like XML documents.
const BODY_BYTES_MAX: usize = 4 << 20;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HttpMessage {
    pub(super) start: Start,
    pub(super) content_type: String,
    pub(super) coding: String,
    pub(super) body: Vec<u8>,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    Request { method: String, target: String },
    Answer { status: u16 },
}

/// Where the parser is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In front of a message.
    #[default]
    Ready,
    /// Behind something that is no message: the direction is passed over until it is cut.
    Lost,
}

/// Reads the messages of one direction.
#[derive(Debug, Default)]
pub(super) struct Parser {
    buffer: Vec<u8>,
    /// The arrival of the first byte in the buffer.
    began_ns: u64,
    state: State,
    /// Bytes that a further message needs at least; parsing before would be in vain.
    wanted: usize,
    /// Bytes without the end of a head.
    scanned: usize,
}

/// Why the bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Another protocol.
    Other,
    /// Too large, or a broken head or chunk.
    Broken,
}

/// A complete message and its bytes, or `None` before its end.
type Parsed = Result<Option<(HttpMessage, usize)>, Refused>;

impl Parser {
    pub(super) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes are missing: what follows is understood again from the start of a message.
    pub(super) fn cut(&mut self) {
        *self = Self::default();
    }

    /// Takes bytes; calls `message` for each message that is complete.
    pub(super) fn take(
        &mut self,
        at_ns: u64,
        bytes: &[u8],
        mut message: impl FnMut(HttpMessage),
    ) -> Result<(), Refused> {
        if self.state == State::Lost {
            // A later message begins with its own segment.
            match is_start(bytes) {
                true => self.cut(),
                false => return Ok(()),
            }
        }
        if self.buffer.is_empty() {
            self.began_ns = at_ns;
        }
        self.buffer.extend_from_slice(bytes);
        // The end of the last chunk, which is awaited in steps that grow with the buffer.
        let may_end = self.buffer.ends_with(b"\r\n\r\n");
        while !self.buffer.is_empty() && (may_end || self.buffer.len() >= self.wanted) {
            match self.parse(at_ns, false) {
                Ok(Some((complete, used))) => {
                    self.buffer.drain(..used);
                    self.began_ns = at_ns;
                    (self.wanted, self.scanned) = (0, 0);
                    let is_interim = matches!(complete.start, Start::Answer { status: 100..=199 });
                    if !is_interim {
                        message(complete);
                    }
                }
                Ok(None) => break,
                Err(refused) => {
                    self.cut();
                    self.state = State::Lost;
                    return Err(refused);
                }
            }
        }
        Ok(())
    }

    /// The connection ends: an answer without length is complete now.
    pub(super) fn end(&mut self, at_ns: u64) -> Option<HttpMessage> {
        let last = match self.state {
            State::Ready if !self.buffer.is_empty() => self.parse(at_ns, true).ok().flatten(),
            _ => None,
        };
        self.cut();
        last.map(|(message, _)| message)
    }

    fn parse(&mut self, at_ns: u64, is_ended: bool) -> Parsed {
        if !is_start(&self.buffer) {
            return Err(Refused::Other);
        }
        let from = self.scanned.min(self.buffer.len());
        let mut fours = self.buffer[from..].windows(4).take(HEAD_BYTES_MAX);
        let Some(head) = fours.position(|four| four == b"\r\n\r\n") else {
            self.wanted = self.buffer.len() + 1;
            self.scanned = self.buffer.len().saturating_sub(3);
            return match self.buffer.len() {
                HEAD_BYTES_MAX.. => Err(Refused::Broken),
                _ => Ok(None),
            };
        };
        let head = from + head;
        self.scanned = head;
        let text = String::from_utf8_lossy(&self.buffer[..head]).into_owned();
        let mut lines = text.split("\r\n");
        let start = start(lines.next().unwrap_or_default()).ok_or(Refused::Broken)?;
        let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let header = |name: &str| {
            let mut found = headers
                .iter()
                .filter(|(key, _)| key.eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.trim())
        };
        let begin = head + 4;
        let is_chunked = header("transfer-encoding").is_some_and(|value| value.contains("chunked"));
        let length = header("content-length")
            .map(str::parse::<usize>)
            .transpose();
        let length = length.map_err(|_| Refused::Broken)?;
        let has_body = match start {
            Start::Request { .. } => is_chunked || length.is_some(),
            Start::Answer { status } => !matches!(status, 100..=199 | 204 | 304),
        };
        let (body, end) = match (has_body, is_chunked, length) {
            (false, ..) => (Vec::new(), begin),
            (true, true, _) => match chunks(&self.buffer[begin..])? {
                Some((body, used)) => (body, begin + used),
                None => {
                    // Reading the chunks anew with each segment would cost the square of their bytes.
                    self.wanted = self.buffer.len() + self.buffer.len() / 8 + 1;
                    return Ok(None);
                }
            },
            (true, false, Some(length)) => {
                if length > BODY_BYTES_MAX {
                    return Err(Refused::Broken);
                }
                let end = begin + length;
                match self.buffer.get(begin..end) {
                    Some(body) => (body.to_vec(), end),
                    None => {
                        self.wanted = end;
                        return Ok(None);
                    }
                }
            }
            (true, false, None) => {
                let rest = &self.buffer[begin..];
                if rest.len() > BODY_BYTES_MAX {
                    return Err(Refused::Broken);
                }
                if !is_ended {
                    self.wanted = self.buffer.len() + 1;
                    return Ok(None);
                }
                (rest.to_vec(), self.buffer.len())
            }
        };
        let coding = header("content-encoding")
            .unwrap_or_default()
            .to_ascii_lowercase();
        let body = match coding.as_str() {
            "gzip" | "x-gzip" => inflate(&body).ok_or(Refused::Broken)?,
            _ => body,
        };
        let message = HttpMessage {
            start,
            content_type: header("content-type").unwrap_or_default().to_owned(),
            coding,
            body,
            began_ns: self.began_ns,
            ended_ns: at_ns,
        };
        Ok(Some((message, end)))
    }
}

/// Whether bytes may begin a message.
fn is_start(bytes: &[u8]) -> bool {
    const STARTS: [&[u8]; 7] = [
        b"HTTP/1.",
        b"POST ",
        b"GET ",
        b"HEAD ",
        b"PUT ",
        b"DELETE ",
        b"OPTIONS ",
    ];
    let begins = |start: &&[u8]| {
        let shared = start.len().min(bytes.len());
        bytes[..shared] == start[..shared]
    };
    STARTS.iter().any(begins)
}

fn start(line: &str) -> Option<Start> {
    let mut words = line.split(' ');
    let (first, second) = (words.next()?, words.next()?);
    if first.starts_with("HTTP/1.") {
        let status = second.parse().ok()?;
        return Some(Start::Answer { status });
    }
    Some(Start::Request {
        method: first.to_owned(),
        target: second.to_owned(),
    })
}

/// The content of chunks and their bytes; `None` before the last.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Refused> {
    /// Digits of the length of a chunk, with extensions.
    const LINE_BYTES_MAX: usize = 256;
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let line = rest
            .windows(2)
            .take(LINE_BYTES_MAX)
            .position(|two| two == b"\r\n");
        let Some(line) = line else {
            return match rest.len() {
                LINE_BYTES_MAX.. => Err(Refused::Broken),
                _ => Ok(None),
            };
        };
        let digits = rest[..line]
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default();
        let digits = std::str::from_utf8(digits).map_err(|_| Refused::Broken)?;
        let length = usize::from_str_radix(digits.trim(), 16).map_err(|_| Refused::Broken)?;
        at += line + 2;
        if length > BODY_BYTES_MAX - body.len() {
            return Err(Refused::Broken);
        }
        if length == 0 {
            return trailer(bytes, at).map(|end| end.map(|end| (body, end)));
        }
        let Some(chunk) = bytes.get(at..at + length) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        at += length;
        match bytes.get(at..at + 2) {
            Some(b"\r\n") => at += 2,
            Some(_) => return Err(Refused::Broken),
            None => return Ok(None),
        }
    }
}

/// The end of the trailer that begins here: an empty line.
fn trailer(bytes: &[u8], mut at: usize) -> Result<Option<usize>, Refused> {
    let begin = at;
    loop {
        let rest = &bytes[at..];
        match rest.windows(2).position(|two| two == b"\r\n") {
            Some(0) => return Ok(Some(at + 2)),
            Some(line) if at - begin + line <= HEAD_BYTES_MAX => at += line + 2,
            None if rest.len() <= HEAD_BYTES_MAX => return Ok(None),
            _ => return Err(Refused::Broken),
        }
    }
}

/// Decompresses gzip within the limit.
fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let decoder = flate2::read::GzDecoder::new(bytes);
    let read = decoder
        .take(BODY_BYTES_MAX as u64 + 1)
        .read_to_end(&mut body);
    (read.is_ok() && body.len() <= BODY_BYTES_MAX).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&str]) -> (Vec<HttpMessage>, Parser) {
        let mut parser = Parser::default();
        let mut messages = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let at = index as u64;
            parser
                .take(at, piece.as_bytes(), |message| messages.push(message))
                .unwrap();
        }
        (messages, parser)
    }

    #[test]
    fn messages_end_with_their_length_or_last_chunk() {
        let (messages, parser) = read(&[
            "POST /a HTTP/1.1\r\nContent-Length: 3\r\nContent-Type: x/y\r\n\r\nab",
            "cHTTP/1.1 100 Continue\r\n\r\nGET /b HTTP/1.1\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Enco",
            "ding: chunked\r\n\r\n2\r\nde\r\n1;x=y\r\nf\r\n0\r\nTrailer: z\r\n\r\n",
        ]);
        let bodies: Vec<_> = messages.iter().map(|one| one.body.as_slice()).collect();
        assert_eq!(bodies, [b"abc".as_slice(), b"", b"def"]);
        assert_eq!((messages[0].began_ns, messages[0].ended_ns), (0, 1));
        assert_eq!(messages[0].content_type, "x/y");
        assert_eq!(parser.bytes(), 0);
    }

    #[test]
    fn an_answer_without_length_ends_with_its_connection() {
        let (messages, mut parser) = read(&["HTTP/1.0 200 OK\r\n\r\nab", "c"]);
        assert!(messages.is_empty());
        assert_eq!(parser.end(2).unwrap().body, b"abc");
    }

    #[test]
    fn other_protocols_are_passed_over_until_a_message_begins() {
        let mut parser = Parser::default();
        let mut count = 0;
        let mut take = |bytes: &[u8]| parser.take(0, bytes, |_| count += 1);
        assert_eq!(take(b"\x16\x03\x01"), Err(Refused::Other));
        assert_eq!(take(b"\x17"), Ok(()));
        assert_eq!(take(b"GET / HTTP/1.1\r\n\r\n"), Ok(()));
        assert_eq!(
            take(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"),
            Err(Refused::Broken)
        );
        assert_eq!(count, 1);
    }
}
