//! Messages of HTTP/1.1 in one direction of a connection (RFC 9112).

use std::collections::VecDeque;
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
    /// When the request of an answer was sent, if it is known.
    pub(super) asked_ns: Option<u64>,
}

/// A request without its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// When its last byte was sent.
    pub(super) at_ns: u64,
    /// Whether its answer has a length, but no body.
    pub(super) is_head: bool,
    /// Whether a part of its answer may be in a gap.
    pub(super) may_be_answered: bool,
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
    /// After a gap or something that is no message: segments are passed over until one begins a message.
    Lost,
}

/// Reads the messages of one direction.
#[derive(Debug, Default)]
pub(super) struct Parser {
    buffer: Vec<u8>,
    /// The arrival of the first byte in the buffer.
    began_ns: u64,
    /// The arrival of the latest.
    newest_ns: u64,
    state: State,
    /// Bytes without the end of a head.
    scanned: usize,
    /// The head of the message, once it is complete.
    head: Option<Head>,
}

/// The head of a message.
#[derive(Debug)]
struct Head {
    start: Start,
    content_type: String,
    coding: String,
    /// Its bytes.
    length: usize,
    body: Body,
}

/// How the body ends.
#[derive(Debug)]
enum Body {
    Bytes(usize),
    Chunks(Chunks),
    /// With the connection.
    Rest,
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
        let chunks = match &self.head {
            Some(Head {
                body: Body::Chunks(chunks),
                ..
            }) => chunks.body.len(),
            _ => 0,
        };
        self.buffer.len() + chunks
    }

    /// Bytes are missing: the rest of their message is passed over. Whether one had begun.
    pub(super) fn skip(&mut self) -> bool {
        let is_cut = !self.buffer.is_empty();
        *self = Self {
            state: State::Lost,
            ..Self::default()
        };
        is_cut
    }

    /// Takes bytes; calls `message` for each message that is complete. An answer takes its request from those asked.
    pub(super) fn take(
        &mut self,
        at_ns: u64,
        bytes: &[u8],
        asked: &mut VecDeque<Asked>,
        message: impl FnMut(HttpMessage),
    ) -> Result<(), Refused> {
        if self.state == State::Lost {
            // A later message begins with its own segment.
            match STARTS.iter().any(|start| bytes.starts_with(start)) {
                true => *self = Self::default(),
                false => return Ok(()),
            }
        }
        if self.buffer.is_empty() {
            self.began_ns = at_ns;
        }
        self.newest_ns = self.newest_ns.max(at_ns);
        self.buffer.extend_from_slice(bytes);
        self.read(at_ns, false, asked, message)
    }

    /// The connection ends: an answer without length is complete now. Whether a message lacks its end.
    pub(super) fn end(
        &mut self,
        asked: &mut VecDeque<Asked>,
        message: impl FnMut(HttpMessage),
    ) -> bool {
        let at_ns = self.newest_ns;
        let read = self.read(at_ns, true, asked, message);
        let is_cut = read.is_err() || !self.buffer.is_empty();
        *self = Self::default();
        is_cut
    }

    /// Reads all complete messages in the buffer.
    fn read(
        &mut self,
        at_ns: u64,
        is_ended: bool,
        asked: &mut VecDeque<Asked>,
        mut message: impl FnMut(HttpMessage),
    ) -> Result<(), Refused> {
        while !self.buffer.is_empty() {
            match self.parse(is_ended, asked) {
                Ok(Some((mut complete, used))) => {
                    self.buffer.drain(..used);
                    (self.began_ns, self.newest_ns) = (at_ns, at_ns);
                    self.scanned = 0;
                    match complete.start {
                        Start::Answer { status: 100..=199 } => continue,
                        Start::Answer { .. } => {
                            complete.asked_ns = asked.pop_front().map(|asked| asked.at_ns);
                        }
                        Start::Request { .. } => {}
                    }
                    message(complete);
                }
                Ok(None) => break,
                Err(refused) => {
                    self.skip();
                    return Err(refused);
                }
            }
        }
        Ok(())
    }

    fn parse(&mut self, is_ended: bool, asked: &VecDeque<Asked>) -> Parsed {
        if self.head.is_none() {
            self.head = self.read_head(asked)?;
        }
        let Some(head) = &mut self.head else {
            return Ok(None);
        };
        let rest = &self.buffer[head.length..];
        let (body, used) = match &mut head.body {
            Body::Bytes(length) => match rest.get(..*length) {
                Some(body) => (body.to_vec(), *length),
                None => return Ok(None),
            },
            Body::Chunks(chunks) => match chunks.read(rest)? {
                Some(used) => (std::mem::take(&mut chunks.body), used),
                None => {
                    let read = head.length..head.length + chunks.forget();
                    self.buffer.drain(read);
                    return Ok(None);
                }
            },
            Body::Rest if rest.len() > BODY_BYTES_MAX => return Err(Refused::Broken),
            Body::Rest if is_ended => (rest.to_vec(), rest.len()),
            Body::Rest => return Ok(None),
        };
        let used = head.length + used;
        let Some(head) = self.head.take() else {
            return Ok(None);
        };
        let body = match head.coding.as_str() {
            "gzip" | "x-gzip" => inflate(&body).ok_or(Refused::Broken)?,
            _ => body,
        };
        let message = HttpMessage {
            start: head.start,
            content_type: head.content_type,
            coding: head.coding,
            body,
            began_ns: self.began_ns,
            ended_ns: self.newest_ns,
            asked_ns: None,
        };
        Ok(Some((message, used)))
    }

    /// The head, or `None` before its end.
    fn read_head(&mut self, asked: &VecDeque<Asked>) -> Result<Option<Head>, Refused> {
        if !is_start(&self.buffer) {
            return Err(Refused::Other);
        }
        let from = self.scanned.min(self.buffer.len());
        let mut fours = self.buffer[from..].windows(4).take(HEAD_BYTES_MAX);
        let Some(end) = fours.position(|four| four == b"\r\n\r\n") else {
            self.scanned = self.buffer.len().saturating_sub(3);
            return match self.buffer.len() {
                HEAD_BYTES_MAX.. => Err(Refused::Broken),
                _ => Ok(None),
            };
        };
        let end = from + end;
        let text = String::from_utf8_lossy(&self.buffer[..end]);
        let mut lines = text.split("\r\n");
        let start = start(lines.next().unwrap_or_default()).ok_or(Refused::Broken)?;
        let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let header = |name: &str| {
            let mut found = headers
                .iter()
                .filter(|(key, _)| key.eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.trim())
        };
        let lower = |name: &str| header(name).unwrap_or_default().to_ascii_lowercase();
        let is_chunked = lower("transfer-encoding").contains("chunked");
        let length = header("content-length")
            .map(str::parse::<usize>)
            .transpose();
        let length = length.map_err(|_| Refused::Broken)?;
        let has_body = match start {
            Start::Request { .. } => is_chunked || length.is_some(),
            Start::Answer { status } => {
                let is_head = asked.front().is_some_and(|asked| asked.is_head);
                !is_head && !matches!(status, 100..=199 | 204 | 304)
            }
        };
        let body = match (has_body, is_chunked, length) {
            (false, ..) => Body::Bytes(0),
            (true, true, _) => Body::Chunks(Chunks::default()),
            (true, false, Some(length)) if length > BODY_BYTES_MAX => return Err(Refused::Broken),
            (true, false, Some(length)) => Body::Bytes(length),
            (true, false, None) => Body::Rest,
        };
        Ok(Some(Head {
            content_type: header("content-type").unwrap_or_default().to_owned(),
            coding: lower("content-encoding"),
            length: end + 4,
            start,
            body,
        }))
    }
}

const STARTS: [&[u8]; 7] = [
    b"HTTP/1.",
    b"POST ",
    b"GET ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
];

/// Whether bytes may begin a message.
fn is_start(bytes: &[u8]) -> bool {
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

/// Chunks, read as far as they have arrived.
#[derive(Debug, Default)]
struct Chunks {
    body: Vec<u8>,
    /// The end of the last chunk that was read, or of the last line of the trailer.
    at: usize,
    /// Bytes of the trailer that were read, once it is reached.
    trailer: Option<usize>,
    /// The end of the bytes that have no end of the line.
    scanned: usize,
}

impl Chunks {
    /// Reads on; returns the bytes of all, or `None` before the last.
    fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        /// Digits of the length of a chunk, with extensions.
        const LINE_BYTES_MAX: usize = 256;
        while self.trailer.is_none() {
            let rest = &bytes[self.at..];
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
            if length > BODY_BYTES_MAX - self.body.len() {
                return Err(Refused::Broken);
            }
            let begin = line + 2;
            if length == 0 {
                self.at += begin;
                self.trailer = Some(0);
                break;
            }
            let end = begin + length;
            match rest.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(Refused::Broken),
                None => return Ok(None),
            }
            self.body.extend_from_slice(&rest[begin..end]);
            self.at += end + 2;
        }
        self.read_trailer(bytes)
    }

    /// The end of the trailer: an empty line.
    fn read_trailer(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        loop {
            let from = self.scanned.max(self.at);
            let mut twos = bytes[from.min(bytes.len())..].windows(2);
            let line = twos.position(|two| two == b"\r\n").map(|at| from + at);
            let line_bytes = line.unwrap_or(bytes.len()) - self.at;
            let trailer = self.trailer.get_or_insert(0);
            if *trailer + line_bytes > HEAD_BYTES_MAX {
                return Err(Refused::Broken);
            }
            let Some(end) = line else {
                // The carriage return of the end may be there.
                self.scanned = bytes.len().saturating_sub(1);
                return Ok(None);
            };
            if line_bytes == 0 {
                return Ok(Some(end + 2));
            }
            *trailer += line_bytes + 2;
            self.at = end + 2;
        }
    }

    /// The caller removes the bytes that were read, of this number.
    fn forget(&mut self) -> usize {
        let read = std::mem::take(&mut self.at);
        self.scanned = self.scanned.saturating_sub(read);
        read
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
        let mut asked = VecDeque::new();
        for (index, piece) in pieces.iter().enumerate() {
            let at = index as u64;
            parser
                .take(at, piece.as_bytes(), &mut asked, |message| {
                    messages.push(message);
                })
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
        let mut bodies = Vec::new();
        let is_cut = parser.end(&mut VecDeque::new(), |message| bodies.push(message.body));
        assert_eq!((bodies, is_cut), (vec![b"abc".to_vec()], false));
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let request = |at_ns, is_head| Asked {
            at_ns,
            is_head,
            may_be_answered: false,
        };
        let mut asked = VecDeque::from([request(1, true), request(2, false)]);
        let mut messages = Vec::new();
        let answers = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        let mut parser = Parser::default();
        let taken = parser.take(5, answers, &mut asked, |message| {
            messages.push((message.asked_ns, message.body));
        });
        assert_eq!(taken, Ok(()));
        assert_eq!(messages, [(Some(1), vec![]), (Some(2), b"ab".to_vec())]);
    }

    #[test]
    fn chunks_end_where_they_end_however_they_are_cut() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n".to_owned()
            + &"1\r\nx\r\n".repeat(1_000)
            + "0\r\na: b\r\n\r\n";
        let whole = chunked + "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        for size in [1, 7, 1_400, whole.len()] {
            let pieces: Vec<&str> = whole
                .as_bytes()
                .chunks(size)
                .map(|piece| std::str::from_utf8(piece).unwrap())
                .collect();
            let (messages, parser) = read(&pieces);
            let bodies: Vec<_> = messages.iter().map(|one| one.body.len()).collect();
            assert_eq!((bodies, parser.bytes()), (vec![1_000, 3], 0), "{size}");
        }
    }

    #[test]
    fn the_rest_of_a_message_after_a_gap_is_passed_over() {
        let (_, mut parser) = read(&["POST /a HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"]);
        assert!(parser.skip());
        let mut count = 0;
        let mut take = |bytes: &[u8]| parser.take(0, bytes, &mut VecDeque::new(), |_| count += 1);
        assert_eq!(take(b"defghi"), Ok(()));
        assert_eq!(take(b"GET / HTTP/1.1\r\n\r\n"), Ok(()));
        assert_eq!(count, 1);
    }

    #[test]
    fn other_protocols_are_passed_over_until_a_message_begins() {
        let mut parser = Parser::default();
        let mut count = 0;
        let mut take = |bytes: &[u8]| parser.take(0, bytes, &mut VecDeque::new(), |_| count += 1);
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
