//! The protocol of NATS JetStream: one stream on files for all subjects, acknowledged publications, and a
//! durable pull consumer of all subjects. Acknowledgements are cumulative and go out with each packet that
//! was read: the cheapest for the server.

use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::watch;

use super::broker::{Client, Protocol, Traffic};
use super::latency::Latencies;
use super::message::Role;
use super::station::Due;
use super::tally::Received;
use crate::Error;

/// The server's address, within the namespace of the run.
pub(crate) const ADDRESS: &str = "127.0.77.201:4222";
/// Messages requested at once; requested again when half of them have arrived.
const PULL: u64 = 2_048;
/// The stream that holds everything.
const STREAM: &str = "EXCHANGE";

/// Subscriptions of the connection.
const ANSWERS: &str = "1";
const ELEMENTS: &str = "2";
const ACCEPTED: &str = "3";

/// A client's side of the protocol.
pub(crate) struct Nats {
    index: usize,
    answers: watch::Receiver<(u64, String)>,
}

/// A message of the server.
struct Message {
    subscription: String,
    subject: String,
    reply: Option<String>,
    payload: Vec<u8>,
    /// It has a status instead of an element.
    is_status: bool,
}

/// Connects to the server; the first client creates the stream.
pub(crate) async fn connect(role: &Role, latencies: Latencies) -> Result<Client<Nats>, Error> {
    let (traffic, read) = Traffic::connect(ADDRESS, role, latencies).await?;
    let (sender, answers) = watch::channel((0, String::new()));
    let index = role.index;
    let reading = Reading {
        index,
        traffic: traffic.clone(),
        answers: sender,
        asked: PULL,
    };
    tokio::spawn(reading.run(read));
    traffic.send(format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\
         \"no_responders\":true,\"lang\":\"rust\",\"version\":\"1\"}}\r\n\
         SUB a.{index}.answers {ANSWERS}\r\nSUB a.{index}.elements {ELEMENTS}\r\n\
         SUB a.{index}.accepted {ACCEPTED}\r\n"
    ));
    let mut protocol = Nats { index, answers };
    if index == 0 {
        let stream = format!(
            "{{\"name\":\"{STREAM}\",\"subjects\":[\"s.*\"],\"storage\":\"file\",\
             \"retention\":\"limits\",\"discard\":\"old\",\"num_replicas\":1}}"
        );
        let subject = format!("$JS.API.STREAM.CREATE.{STREAM}");
        protocol.ask(&traffic, &subject, &stream).await?;
    }
    Ok(Client { traffic, protocol })
}

impl Nats {
    /// Asks the server's interface for something.
    async fn ask(&mut self, traffic: &Traffic, subject: &str, body: &str) -> Result<(), Error> {
        let before = self.answers.borrow().0;
        let (index, length) = (self.index, body.len());
        traffic.send(format!(
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
    traffic: Traffic,
    answers: watch::Sender<(u64, String)>,
    /// Messages that were requested and have not arrived.
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
                self.traffic.send(write);
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
                if !answer.contains("\"error\"") {
                    self.traffic.accept();
                }
            }
            ELEMENTS if message.is_status => {
                // The request has expired.
                self.asked = 0;
                self.pull(write);
            }
            ELEMENTS => {
                let index = message.subject.strip_prefix("s.");
                let index = index.and_then(|index| index.parse().ok());
                if let Some(index) = index {
                    self.traffic.received.take(index, &message.payload);
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

/// The first message of the server in `bytes`, and its length; `None` when it is not complete.
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
        is_status: heads > 0 && body.len() == heads,
    };
    Some((begin + total + 2, Parsed::Message(message)))
}

impl Protocol for Nats {
    async fn subscribe(&mut self, traffic: &Traffic) -> Result<(), Error> {
        let index = self.index;
        let consumer = format!(
            "{{\"stream_name\":\"{STREAM}\",\"config\":{{\"durable_name\":\"node-{index:02}\",\
             \"ack_policy\":\"all\",\"deliver_policy\":\"all\",\"max_ack_pending\":100000,\
             \"ack_wait\":30000000000}}}}"
        );
        let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.node-{index:02}");
        self.ask(traffic, &subject, &consumer).await?;
        traffic.send(pull(index, PULL));
        Ok(())
    }

    fn publish(&mut self, due: Due, out: &mut Vec<u8>) {
        let index = self.index;
        let bytes = Received::encode(due);
        let length = bytes.len();
        out.extend(format!("PUB s.{index:02} a.{index}.accepted {length}\r\n").into_bytes());
        out.extend(bytes);
        out.extend(b"\r\n");
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
        assert!(message.is_status);
        assert!(matches!(parse(&rest[length..]), Some((6, Parsed::Ping))));
    }
}
