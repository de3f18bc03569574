//! A client of NATS JetStream: one stream on files for all subjects, publications that are
//! acknowledged, a durable pull consumer of all subjects that acknowledges what it has taken.
//!
//! A small client of our own over the text protocol: it does no more than the comparison needs.
//! Acknowledgements are cumulative and go out with each packet that was read: the cheapest for the
//! server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};

use super::latency::Latencies;
use super::message::{Counted, Role};
use super::tally::Received;
use super::worker::{Due, Station};
use crate::Error;

/// Where the server listens, within the namespace of the run.
pub(crate) const ADDRESS: &str = "127.0.77.201:4222";
/// Messages asked for at once; asked again when half of them have come.
const PULL: u64 = 2_048;
/// What is written together at most.
const TOGETHER: usize = 256;
/// The stream that holds everything.
const STREAM: &str = "EXCHANGE";

/// Subscriptions of the connection.
const ANSWERS: &str = "1";
const ELEMENTS: &str = "2";
const ACCEPTED: &str = "3";

/// A connected client.
pub(crate) struct Client {
    index: usize,
    write: mpsc::UnboundedSender<Vec<u8>>,
    received: Received,
    produced: Arc<AtomicU64>,
    answers: watch::Receiver<(u64, String)>,
}

/// A message of the server.
struct Message {
    subscription: String,
    subject: String,
    reply: Option<String>,
    payload: Vec<u8>,
    /// It bears a status instead of an element.
    status: bool,
}

impl Client {
    /// Connects to the server; the first client makes the stream.
    pub(crate) async fn start(role: &Role, latencies: Latencies) -> Result<Self, Error> {
        let failed = || Error::io("talking to nats-server");
        let stream = TcpStream::connect(ADDRESS).await.map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        let (read, write) = stream.into_split();
        let (sender, queue) = mpsc::unbounded_channel();
        tokio::spawn(writing(write, queue));
        let (told, answers) = watch::channel((0, String::new()));
        let reading = Reading {
            index: role.index,
            received: Received::new(role, latencies),
            produced: Arc::default(),
            write: sender.clone(),
            answers: told,
            asked: PULL,
        };
        let mut client = Self {
            index: role.index,
            write: sender,
            received: reading.received.clone(),
            produced: reading.produced.clone(),
            answers,
        };
        tokio::spawn(reading.run(read));
        let index = role.index;
        client.send(format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\
             \"no_responders\":true,\"lang\":\"rust\",\"version\":\"1\"}}\r\n\
             SUB a.{index}.answers {ANSWERS}\r\nSUB a.{index}.elements {ELEMENTS}\r\n\
             SUB a.{index}.accepted {ACCEPTED}\r\n"
        ));
        if index == 0 {
            let stream = format!(
                "{{\"name\":\"{STREAM}\",\"subjects\":[\"s.*\"],\"storage\":\"file\",\
                 \"retention\":\"limits\",\"discard\":\"old\",\"num_replicas\":1}}"
            );
            client
                .ask(&format!("$JS.API.STREAM.CREATE.{STREAM}"), &stream)
                .await?;
        }
        Ok(client)
    }

    fn send(&self, text: String) {
        // A connection that is gone shows as elements that do not come.
        let _ = self.write.send(text.into_bytes());
    }

    /// Asks the server's interface for something.
    async fn ask(&mut self, subject: &str, body: &str) -> Result<(), Error> {
        let before = self.answers.borrow().0;
        let (index, length) = (self.index, body.len());
        self.send(format!(
            "PUB {subject} a.{index}.answers {length}\r\n{body}\r\n"
        ));
        let answered = self.answers.wait_for(|(number, _)| *number > before).await;
        let answer = answered.map_err(Error::failed("asking nats-server"))?;
        if answer.1.contains("\"error\"") {
            return Err(Error::Failed(format!("nats-server: {}", answer.1)));
        }
        Ok(())
    }
}

struct Reading {
    index: usize,
    received: Received,
    produced: Arc<AtomicU64>,
    write: mpsc::UnboundedSender<Vec<u8>>,
    answers: watch::Sender<(u64, String)>,
    /// Messages that were asked for and have not come.
    asked: u64,
}

impl Reading {
    async fn run(mut self, mut read: OwnedReadHalf) {
        let mut buffer = Vec::new();
        loop {
            let mut taken = 0;
            let mut write = Vec::new();
            let mut last = None;
            while let Some((length, message)) = parse(&buffer[taken..]) {
                taken += length;
                match message {
                    Parsed::Message(message) => self.take(message, &mut last, &mut write),
                    Parsed::Ping => write.extend(b"PONG\r\n"),
                    Parsed::Other => {}
                }
            }
            buffer.drain(..taken);
            if let Some(reply) = last {
                write.extend(format!("PUB {reply} 4\r\n+ACK\r\n").into_bytes());
            }
            if !write.is_empty() {
                let _ = self.write.send(write);
            }
            match read.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn take(&mut self, message: Message, last: &mut Option<String>, write: &mut Vec<u8>) {
        match message.subscription.as_str() {
            ANSWERS => self.answers.send_modify(|(number, text)| {
                *number += 1;
                *text = String::from_utf8_lossy(&message.payload).into_owned();
            }),
            ACCEPTED => {
                let answer = String::from_utf8_lossy(&message.payload);
                let accepted = !answer.contains("\"error\"");
                self.produced
                    .fetch_add(u64::from(accepted), Ordering::Relaxed);
            }
            ELEMENTS if message.status => {
                // The request has expired.
                self.asked = 0;
                self.pull(write);
            }
            ELEMENTS => {
                let index = message.subject.strip_prefix("s.");
                let index = index.and_then(|index| index.parse().ok());
                if let Some(index) = index {
                    self.received.take(index, &message.payload);
                }
                *last = message.reply.or(last.take());
                self.asked = self.asked.saturating_sub(1);
                if self.asked <= PULL / 2 {
                    self.pull(write);
                }
            }
            _ => {}
        }
    }

    fn pull(&mut self, write: &mut Vec<u8>) {
        let count = PULL - self.asked.min(PULL);
        self.asked += count;
        write.extend(pull(self.index, count).into_bytes());
    }
}

fn pull(index: usize, count: u64) -> String {
    let body = format!("{{\"batch\":{count},\"expires\":60000000000}}");
    let length = body.len();
    format!(
        "PUB $JS.API.CONSUMER.MSG.NEXT.{STREAM}.node-{index:02} a.{index}.elements \
         {length}\r\n{body}\r\n"
    )
}

enum Parsed {
    Message(Message),
    Ping,
    Other,
}

/// The first thing that the server says in `bytes`, and its length; `None` when it is not whole.
fn parse(bytes: &[u8]) -> Option<(usize, Parsed)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let line = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let begin = end + 2;
    if verb != "MSG" && verb != "HMSG" {
        let what = if verb == "PING" {
            Parsed::Ping
        } else {
            Parsed::Other
        };
        return Some((begin, what));
    }
    let mut words: Vec<&str> = words.collect();
    let total: usize = words.pop()?.parse().ok()?;
    let heads: usize = if verb == "HMSG" {
        words.pop()?.parse().ok()?
    } else {
        0
    };
    let body = bytes.get(begin..begin + total)?;
    bytes.get(begin + total..begin + total + 2)?;
    let message = Message {
        subject: (*words.first()?).to_owned(),
        subscription: (*words.get(1)?).to_owned(),
        reply: words.get(2).map(|reply| (*reply).to_owned()),
        payload: body.get(heads..)?.to_vec(),
        status: heads > 0 && body.len() == heads,
    };
    Some((begin + total + 2, Parsed::Message(message)))
}

async fn writing(mut write: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Vec<u8>>) {
    let mut pieces = Vec::new();
    while queue.recv_many(&mut pieces, TOGETHER).await > 0 {
        if write.write_all(&pieces.concat()).await.is_err() {
            return;
        }
        pieces.clear();
    }
}

impl Station for Client {
    async fn connect(&mut self) -> Result<(), Error> {
        let index = self.index;
        let consumer = format!(
            "{{\"stream_name\":\"{STREAM}\",\"config\":{{\"durable_name\":\"node-{index:02}\",\
             \"ack_policy\":\"all\",\"deliver_policy\":\"all\",\"max_ack_pending\":100000,\
             \"ack_wait\":30000000000}}}}"
        );
        let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.node-{index:02}");
        self.ask(&subject, &consumer).await?;
        self.send(pull(index, PULL));
        Ok(())
    }

    fn produce(&mut self, due: &[Due]) {
        let mut out = Vec::new();
        let index = self.index;
        for due in due {
            let bytes = Received::encode(*due);
            let length = bytes.len();
            out.extend(format!("PUB s.{index:02} a.{index}.accepted {length}\r\n").into_bytes());
            out.extend(bytes);
            out.extend(b"\r\n");
        }
        let _ = self.write.send(out);
    }

    fn produced(&self) -> u64 {
        self.produced.load(Ordering::Relaxed)
    }

    fn outputs(&self) -> Vec<u64> {
        self.received.outputs()
    }

    fn reached(&mut self) -> Vec<u64> {
        self.received.reached()
    }

    async fn count(self, before: &[u64], produced: &[u64]) -> Result<Counted, Error> {
        Ok(self.received.count(before, produced))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_or_not_there() {
        let bytes =
            b"MSG s.07 2 $JS.ACK.x 5\r\nhello\r\nHMSG a 2 14 14\r\nNATS/1.0 408\r\n\r\nPING\r\n";
        for length in 0..31 {
            assert!(parse(&bytes[..length]).is_none(), "{length}");
        }
        let Some((31, Parsed::Message(message))) = parse(bytes) else {
            panic!("no message");
        };
        assert_eq!(
            (message.subject.as_str(), &message.payload[..]),
            ("s.07", &b"hello"[..])
        );
        assert_eq!(message.reply.as_deref(), Some("$JS.ACK.x"));
        let rest = &bytes[31..];
        let Some((length, Parsed::Message(message))) = parse(rest) else {
            panic!("no status");
        };
        assert!(message.status);
        assert!(matches!(parse(&rest[length..]), Some((6, Parsed::Ping))));
    }
}
