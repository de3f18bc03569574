//! Messages of a broker with quality of service 1, from their publication until the last one is stored at level `power`,
//! next to a client that only counts and acknowledges them.
//!
//! mosquitto, its publisher and its subscriber share one processor. The subscriber is there before the first message,
//! and nothing limits how many messages the broker has on their way.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{STREAM, Wrappers, node};
use crate::exchange::mqtt::{head, packet, text};
use crate::timing::median;
use crate::{Error, Limit, Reference, Report};

/// Messages of a run, of the lines of other parts; reason: the broker takes most of the time.
const SHARE: usize = 5;
/// Runs of each, in turn; the median counts.
const REPEATS: usize = 3;
/// Messages of the publisher that wait for their acknowledgement.
const WINDOW: usize = 1_000;
/// Messages that the publisher writes at once.
const AT_ONCE: usize = 100;
/// Time in which the broker listens, and in which it sends something.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// The least share of the rate of the client that counts.
const LIMIT: f64 = 0.8;

const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH_QOS_1: u8 = 0x32;
const PUBACK: u8 = 0x40;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;

pub(super) fn run(bench: &Wrappers<'_>, quick: bool, report: &mut Report) -> Result<(), Error> {
    let broker = match Broker::start(bench.folder) {
        Ok(broker) => broker,
        Err(why) => {
            report.skipped.push(format!("messages of MQTT: {why}"));
            return Ok(());
        }
    };
    let (address, count) = (broker.address, bench.lines / SHARE);
    let (mut counted, mut own) = (Vec::new(), Vec::new());
    for repeat in 1..=if quick { 1 } else { REPEATS } {
        (bench.progress)(&format!("messages of MQTT, only counted, repeat {repeat}"));
        // A session of before gets nothing of the next run.
        let topic = format!("bench/{repeat}");
        counted.push(count_messages(address, &topic, count)?);
        (bench.progress)(&format!("messages of MQTT, stored, repeat {repeat}"));
        own.push(stored(bench, address, &topic, count)?);
    }
    let rate = |seconds: Vec<f64>| count as f64 / median(seconds);
    let (counted, own) = (rate(counted), rate(own));
    let note = "quality of service 1, only counted and acknowledged";
    report.row("messages of MQTT to a client", counted, "1/s", note);
    let note = "quality of service 1, acknowledged when stored";
    report.row("messages of MQTT to a node", own, "1/s", note);
    let reference = Reference::new("a client that only counts", counted);
    let name = "messages of MQTT acknowledged";
    report.target(name, (own, "1/s"), reference, Limit::AtLeast(LIMIT));
    Ok(())
}

/// Seconds until a client has counted all messages.
fn count_messages(address: SocketAddr, topic: &str, count: usize) -> Result<f64, Error> {
    let (ready, begun) = mpsc::channel();
    thread::scope(|scope| {
        let counting = scope.spawn(move || {
            let mut client = Client::connect(address, "counter")?;
            client.subscribe(topic)?;
            // The other end waits for it.
            let _ = ready.send(());
            let mut left = count;
            while left > 0 {
                let mut acknowledgements = Vec::new();
                client.receive(|kind, body| {
                    if kind & 0xf0 == PUBLISH_QOS_1 & 0xf0 {
                        left = left.saturating_sub(1);
                        acknowledgements.extend(packet(PUBACK, identifier(body)));
                    }
                })?;
                client.send(&acknowledgements)?;
            }
            Ok::<_, Error>(Instant::now())
        });
        // If it fails, so does the wait below.
        let _ = begun.recv();
        let start = Instant::now();
        publish(address, topic, count)?;
        let panicked = |_| Err(Error::Failed("the client panicked".to_owned()));
        Ok((counting.join().unwrap_or_else(panicked)? - start).as_secs_f64())
    })
}

/// Seconds until a node has stored all messages.
fn stored(
    bench: &Wrappers<'_>,
    address: SocketAddr,
    topic: &str,
    count: usize,
) -> Result<f64, Error> {
    let folder = node::fresh(bench.folder);
    let text = format!(
        "kind = \"mqtt\"\naddress = \"mqtt://{address}\"\nsubscribe = [\"{topic}\"]\n\
         format = {{ json = {{ time = \"$.source_time\" }} }}\n{STREAM}"
    );
    node::write(&folder, "wrappers/bench.toml", &text)?;
    let seconds = node::with(node::config(&folder), async |node| {
        let last = || node.stream("bench").map_or(0, |log| log.log().last());
        // One message shows that it has subscribed.
        while last() == 0 {
            let topic = topic.to_owned();
            on_thread(move || publish(address, &topic, 1)).await?;
            tokio::time::sleep(LOOK).await;
        }
        // Of those, some may be on their way.
        tokio::time::sleep(100 * LOOK).await;
        let (before, start) = (last(), Instant::now());
        let topic = topic.to_owned();
        on_thread(move || publish(address, &topic, count)).await?;
        while last() < before + count as u64 {
            tokio::time::sleep(LOOK).await;
        }
        Ok(start.elapsed().as_secs_f64())
    });
    // Each run has the disk to itself; a folder that is left is removed with its parent.
    let _ = fs::remove_dir_all(&folder);
    seconds
}

async fn on_thread(work: impl FnOnce() -> Result<(), Error> + Send + 'static) -> Result<(), Error> {
    let panicked = |_| Err(Error::Failed("the publisher panicked".to_owned()));
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(panicked)
}

/// Publishes messages; returns when the broker has acknowledged all.
fn publish(address: SocketAddr, topic: &str, count: usize) -> Result<(), Error> {
    let mut client = Client::connect(address, "publisher")?;
    let (mut sent, mut acknowledged) = (0, 0);
    while acknowledged < count {
        let mut packets = Vec::new();
        while sent < count && sent - acknowledged < WINDOW && packets.len() < AT_ONCE * 100 {
            packets.extend(message(topic, sent));
            sent += 1;
        }
        client.send(&packets)?;
        let is_full = sent == count || sent - acknowledged >= WINDOW;
        if is_full {
            client.receive(|kind, _| acknowledged += usize::from(kind & 0xf0 == PUBACK))?;
        }
    }
    Ok(())
}

fn message(topic: &str, number: usize) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, topic);
    body.extend(((number % usize::from(u16::MAX)) as u16 + 1).to_be_bytes());
    // Without properties.
    body.push(0);
    let temperature = number % 40;
    body.extend(
        format!(
            "{{\"source_time\":\"2026-11-21T10:00:00Z\",\"temperature\":{temperature}.25,\"people\":{number}}}"
        )
        .into_bytes(),
    );
    packet(PUBLISH_QOS_1, &body)
}

/// A client of MQTT 5.0 whose session ends with its connection.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr, name: &str) -> Result<Self, Error> {
        let failed = || Error::io("connecting to mosquitto");
        let stream = TcpStream::connect(address).map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
        let mut client = Self {
            stream,
            received: Vec::new(),
            buffer: vec![0; 64 << 10],
        };
        let mut body = Vec::new();
        text(&mut body, "MQTT");
        // Version 5.0, a clean start, no keep-alive, no properties.
        body.extend([5, 2, 0, 0, 0]);
        text(&mut body, name);
        client.send(&packet(CONNECT, &body))?;
        client.wait_for(CONNACK)?;
        Ok(client)
    }

    fn subscribe(&mut self, filter: &str) -> Result<(), Error> {
        let mut body = vec![0, 1, 0];
        text(&mut body, filter);
        body.push(1);
        self.send(&packet(SUBSCRIBE, &body))?;
        self.wait_for(SUBACK)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(Error::io("writing to mosquitto"))
    }

    fn wait_for(&mut self, wanted: u8) -> Result<(), Error> {
        let mut is_there = false;
        while !is_there {
            self.receive(|kind, _| is_there |= kind == wanted)?;
        }
        Ok(())
    }

    /// Waits for bytes, and passes the type and the body of each packet that is complete.
    fn receive(&mut self, mut take: impl FnMut(u8, &[u8])) -> Result<(), Error> {
        let count = self.stream.read(&mut self.buffer);
        let count = count.map_err(Error::io("reading from mosquitto"))?;
        if count == 0 {
            return Err(Error::Failed("mosquitto ends the connection".to_owned()));
        }
        self.received.extend_from_slice(&self.buffer[..count]);
        let mut rest = &self.received[..];
        while let Some((head, length)) = head(rest)
            && let Some(body) = rest.get(head..head + length)
        {
            take(rest[0], body);
            rest = &rest[head + length..];
        }
        let used = self.received.len() - rest.len();
        self.received.drain(..used);
        Ok(())
    }
}

/// The packet identifier of a message.
fn identifier(body: &[u8]) -> &[u8] {
    let length = match body {
        [high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    };
    body.get(2 + length..4 + length).unwrap_or_default()
}

/// mosquitto with what it takes for clients that are not slow.
struct Broker {
    server: Child,
    address: SocketAddr,
}

impl Broker {
    fn start(folder: &Path) -> Result<Self, String> {
        let shown = |error: std::io::Error| error.to_string();
        // A port that is free now; it has no way to name one that it has chosen.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(shown)?;
        let address = free.local_addr().map_err(shown)?;
        drop(free);
        let text = format!(
            "listener {} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 0\nmax_queued_messages 0\n\
             max_queued_bytes 0\nset_tcp_nodelay true\nuser root\nlog_type none\n",
            address.port()
        );
        let file = folder.join("mosquitto.conf");
        fs::write(&file, text).map_err(shown)?;
        let mut command = Command::new("mosquitto");
        command.arg("-c").arg(&file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "mosquitto is not installed".to_owned(),
            _ => format!("mosquitto: {error}"),
        })?;
        let broker = Self { server, address };
        let begun = Instant::now();
        while let Err(error) = TcpStream::connect(address) {
            if begun.elapsed() > PATIENCE {
                return Err(shown(error));
            }
            thread::sleep(LOOK);
        }
        Ok(broker)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
