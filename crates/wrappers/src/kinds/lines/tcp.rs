//! Lines over TCP, which nobody acknowledges.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chappe_identity::Host;
use chappe_stream::{DescriptorError, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::AbortHandle;

use super::commands::{Commands, Order, WRITE_TIME};
use super::seats::{Seats, Silence};
use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    BATCH_BYTES_MAX, Batch, Command, Condition, Delivery, Lost, Step, Wrapper, WrapperError,
    WrapperFile, WrapperKind, WrapperOpening,
};

/// Longest line in bytes; a longer one becomes a dead letter.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a longer line that are kept.
const KEPT_BYTES: usize = 4 << 10;
/// Lines that wait to be decoded; further ones stay in the sockets.
const LINES_MAX: usize = 256;
/// Ended connections that are counted in one batch; reason: each is a loss of its own.
const LOST_MAX: u64 = 64;
/// Time after which they are counted without a line; reason: each batch is written to the log.
const COUNT_PERIOD: Duration = Duration::from_secs(1);
/// Commands that wait for a connection.
const ORDERS_MAX: usize = 16;
/// Pause after a connection that cannot be accepted; reason: while the process has no file for it, each attempt
/// fails at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time to connect.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Seconds without a byte after which the kernel asks a peer whether it is there, and between two questions; reason:
/// a peer that lost its power says nothing, and is to be connected to again within half a minute.
const PROBE_AFTER_S: u32 = 15;
const PROBE_PERIOD_S: u32 = 5;
/// Questions without an answer that end a connection.
const PROBES: u32 = 3;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "tcp",
    about: "lines over TCP, one message each",
    delivery: Delivery {
        acknowledges: "never: the protocol has no acknowledgement",
        resumes: "the next line",
        may_double: "no",
        may_miss: "lines that are sent while no connection exists, or lost with one that breaks or is ended for another",
        back_pressure: "TCP: the sockets are not read",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `tcp`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Address and port to listen on. Either this or `connect`.
    #[schemars(with = "Option<String>", extend("format" = "socket-address"))]
    listen: Option<SocketAddr>,
    /// Host and port to connect to. Either this or `listen`.
    connect: Option<String>,
}

/// Which end opens the connection.
#[derive(Debug, Clone)]
enum End {
    Listen(SocketAddr),
    Connect(String),
}

fn settings(file: &WrapperFile) -> Result<(End, Decoder, Commands), DescriptorError> {
    let settings: Settings = file.settings()?;
    let wrong = |key: &str, text: &str| Err(file.fault(key, text.to_owned(), None));
    let end = match (settings.listen, settings.connect) {
        (Some(address), None) => End::Listen(address),
        (None, Some(address)) if address.rsplit_once(':').is_some() => End::Connect(address),
        (None, Some(_)) => return wrong("connect", "write it as HOST:PORT"),
        _ => return wrong("listen", "set either listen or connect"),
    };
    Ok((end, Decoder::new(file, &[])?, Commands::of(file)?))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let (end, decoder, commands) =
        settings(opening.file).map_err(|error| WrapperError::settings(error.to_string()))?;
    Ok(Box::new(TcpWrapper {
        end,
        decoder,
        commands,
        lines: None,
        connecting: None,
        condition: opening.condition,
    }))
}

struct TcpWrapper {
    end: End,
    decoder: Decoder,
    commands: Commands,
    lines: Option<Receiving>,
    /// The connection under way, which outlives a step that is dropped.
    connecting: Option<Step<'static, Result<Receiving, WrapperError>>>,
    condition: Condition,
}

/// A task that reads sockets.
struct Receiving {
    lines: mpsc::Receiver<Line>,
    /// Lines for all peers.
    orders: broadcast::Sender<Order>,
    ended: Arc<Ended>,
    /// When connections that ended without a line are counted next.
    count_at: Instant,
    task: AbortHandle,
}

/// Connections that the listener ended or refused, each with perhaps some lines.
#[derive(Debug, Default)]
struct Ended {
    silent: AtomicU64,
    refused: AtomicU64,
}

impl Ended {
    /// Those that were not counted yet, each as a loss of its own; of a flood, some now and the others later.
    fn take(&self, decoder: &Decoder, batch: &mut Batch) {
        for (count, reason) in [
            (&self.silent, "silent_connection"),
            (&self.refused, "too_many_connections"),
        ] {
            let taken = count.load(Ordering::Relaxed).min(LOST_MAX);
            count.fetch_sub(taken, Ordering::Relaxed);
            for _ in 0..taken {
                batch.lost.push(Lost {
                    stream: decoder.only_stream().map(str::to_owned),
                    reason,
                    messages: 0,
                });
            }
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A line, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    at: Timestamp,
    bytes: Vec<u8>,
    extent: Extent,
}

/// How much of a line there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Its beginning: it is longer than the limit.
    TooLong,
    /// All that came before the connection ended.
    Cut,
}

impl Wrapper for TcpWrapper {
    fn repeats(&self) -> bool {
        false
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            if self.lines.is_none() {
                let connecting = self.connecting.get_or_insert_with(|| {
                    Box::pin(connect(self.end.clone(), self.condition.clone()))
                });
                let connected = connecting.await;
                self.connecting = None;
                self.lines = Some(connected?);
            }
            let Some(receiving) = &mut self.lines else {
                return Err(WrapperError::peer("not connected"));
            };
            let mut batch = Batch::default();
            let line = loop {
                tokio::select! {
                    biased;
                    line = receiving.lines.recv() => break line,
                    () = tokio::time::sleep_until(receiving.count_at.into()) => {
                        receiving.count_at = Instant::now() + COUNT_PERIOD;
                        receiving.ended.take(&self.decoder, &mut batch);
                        if !batch.lost.is_empty() {
                            return Ok(batch);
                        }
                    }
                }
            };
            let Some(line) = line else {
                self.lines = None;
                return Err(WrapperError::peer("the peer ended the connection"));
            };
            self.condition.runs();
            receiving.ended.take(&self.decoder, &mut batch);
            let mut bytes = 0;
            let mut next = Some(line);
            while let Some(line) = next {
                bytes += line.bytes.len();
                take(line, &mut self.decoder, &mut batch);
                // What waits as well is stored with it.
                let has_room = bytes < BATCH_BYTES_MAX / 8;
                next = has_room.then(|| receiving.lines.try_recv().ok()).flatten();
            }
            Ok(batch)
        })
    }

    fn command<'a>(&'a mut self, command: &'a Command) -> Step<'a, Result<Value, WrapperError>> {
        Box::pin(async move {
            let line = self.commands.line(command)?;
            match self.order(line).await {
                0 => Err(WrapperError::Command("no peer is connected".to_owned())),
                peers => Ok(json!({ "peers": peers })),
            }
        })
    }
}

impl TcpWrapper {
    /// Writes a line to all peers; returns how many have it.
    async fn order(&mut self, line: Arc<[u8]>) -> u64 {
        let Some(receiving) = &self.lines else {
            return 0;
        };
        let (written, mut reports) = mpsc::channel(1);
        // Without a receiver nobody is connected.
        let _ = receiving.orders.send(Order { line, written });
        let mut peers = 0;
        let counting = async {
            while reports.recv().await.is_some() {
                peers += 1;
            }
        };
        // A peer whose lines wait to be stored takes none.
        let _ = tokio::time::timeout(2 * WRITE_TIME, counting).await;
        peers
    }
}

fn take(line: Line, decoder: &mut Decoder, batch: &mut Batch) {
    let reason = match line.extent {
        Extent::TooLong => format!("the line is longer than {LINE_BYTES_MAX} bytes"),
        Extent::Cut if !decoder.is_whole(&line.bytes) => {
            "the connection ended before the end of the line".to_owned()
        }
        Extent::Cut | Extent::Whole => return decoder.message(&line.bytes, line.at, batch),
    };
    decoder.refuse(&line.bytes, &[], &reason, batch);
}

async fn connect(end: End, condition: Condition) -> Result<Receiving, WrapperError> {
    let (send, lines) = mpsc::channel(LINES_MAX);
    let (orders, ordered) = broadcast::channel(ORDERS_MAX);
    let ended = Arc::<Ended>::default();
    let task = match &end {
        End::Listen(address) => {
            let failed = |error| WrapperError::peer(format!("cannot listen on {address}: {error}"));
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            condition.waits("no line has arrived");
            tokio::spawn(listen(listener, send, orders.clone(), ended.clone()))
        }
        End::Connect(address) => {
            let failed =
                |error| WrapperError::peer(format!("cannot connect to {address}: {error}"));
            let connecting = TcpStream::connect(address);
            let connected = tokio::time::timeout(CONNECT_TIME, connecting).await;
            let late = |_| Err(std::io::ErrorKind::TimedOut.into());
            let stream = connected.unwrap_or_else(late).map_err(failed)?;
            condition.waits("no line has arrived");
            tokio::spawn(async move {
                let (_never, end) = oneshot::channel();
                let silence = Silence::since(Instant::now());
                read(stream, send, ordered, &silence, end).await;
            })
        }
    };
    let task = task.abort_handle();
    Ok(Receiving {
        lines,
        orders,
        ended,
        count_at: Instant::now(),
        task,
    })
}

/// Reads the lines of all connections.
async fn listen(
    listener: TcpListener,
    send: mpsc::Sender<Line>,
    orders: broadcast::Sender<Order>,
    ended: Arc<Ended>,
) {
    let mut seats = Seats::default();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(number) = connections.join_next() => {
                if let Ok(number) = number {
                    seats.leave(number);
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let host = Host::from_address(from.ip());
                    let Some(place) = seats.take(host, Instant::now()) else {
                        ended.refused.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    if place.replaces {
                        ended.silent.fetch_add(1, Ordering::Relaxed);
                    }
                    let (send, orders) = (send.clone(), orders.subscribe());
                    connections.spawn(async move {
                        read(stream, send, orders, &place.silence, place.end).await;
                        place.number
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// Reads the lines of one connection, and writes those of commands, until either end ends it.
async fn read(
    mut stream: TcpStream,
    send: mpsc::Sender<Line>,
    mut orders: broadcast::Receiver<Order>,
    silence: &Silence,
    mut end: oneshot::Receiver<()>,
) {
    let mut buffer = vec![0; 16 << 10];
    let mut splitter = Splitter::default();
    probe(&stream);
    let mut lines = VecDeque::new();
    loop {
        let count = tokio::select! {
            // A connection that broke has ended.
            count = stream.read(&mut buffer) => count.unwrap_or_default(),
            Ok(order) = orders.recv() => {
                let writing = tokio::time::timeout(WRITE_TIME, stream.write_all(&order.line)).await;
                if matches!(writing, Ok(Ok(()))) {
                    // The caller may have gone.
                    let _ = order.written.send(()).await;
                    continue;
                }
                0
            }
            _ = &mut end => 0,
        };
        match count {
            0 => splitter.finish(Extent::Cut, now(), &mut lines),
            count => splitter.push(&buffer[..count], now(), &mut lines),
        }
        let has_lines = !lines.is_empty();
        if has_lines {
            silence.set(None);
        }
        for line in lines.drain(..) {
            // Waits while storing lags; the socket is not read meanwhile.
            if send.send(line).await.is_err() {
                return;
            }
        }
        if count == 0 {
            return;
        }
        if has_lines {
            silence.set(Some(Instant::now()));
        }
    }
}

/// Lets a connection end whose peer is gone: this end sends nothing from which it would learn that.
fn probe(stream: &TcpStream) {
    use nix::sys::socket::{setsockopt, sockopt};
    // A system without them keeps the connection.
    let _ = setsockopt(stream, sockopt::TcpKeepIdle, &PROBE_AFTER_S);
    let _ = setsockopt(stream, sockopt::TcpKeepInterval, &PROBE_PERIOD_S);
    let _ = setsockopt(stream, sockopt::TcpKeepCount, &PROBES);
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
}

/// Divides bytes into lines.
#[derive(Debug, Default)]
struct Splitter {
    line: Vec<u8>,
    /// Whether the line is too long.
    is_long: bool,
}

impl Splitter {
    fn push(&mut self, bytes: &[u8], at: Timestamp, lines: &mut VecDeque<Line>) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let most = if self.is_long {
                KEPT_BYTES
            } else {
                LINE_BYTES_MAX
            };
            let room = most.saturating_sub(self.line.len());
            if part.len() > room {
                self.is_long = true;
                self.line.extend_from_slice(&part[..room]);
                self.line.truncate(KEPT_BYTES);
            } else {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.finish(Extent::Whole, at, lines);
            }
        }
    }

    /// Ends the line; an empty one is none.
    fn finish(&mut self, extent: Extent, at: Timestamp, lines: &mut VecDeque<Line>) {
        let bytes = std::mem::take(&mut self.line);
        let extent = match std::mem::take(&mut self.is_long) {
            true => Extent::TooLong,
            false => extent,
        };
        if bytes.iter().any(|byte| !byte.is_ascii_whitespace()) {
            lines.push_back(Line { at, bytes, extent });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::seats::CONNECTIONS_MAX;
    use super::*;
    use crate::tests::{open, wrapper_file};
    use chappe_stream::Value;
    use proptest::prelude::*;

    proptest! {
        /// However the bytes are divided, the lines are the same, and long ones are cut.
        #[test]
        fn lines_do_not_depend_on_how_bytes_arrive(
            lines in prop::collection::vec(
                prop_oneof![
                    "[a-z]{0,20}".boxed(),
                    Just("x".repeat(LINE_BYTES_MAX + 1)).boxed(),
                ],
                0..6,
            ),
            cuts in prop::collection::vec(1_usize..40_000, 1..12),
        ) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let (mut splitter, mut found) = (Splitter::default(), VecDeque::new());
            let mut rest = text.as_bytes();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (part, after) = rest.split_at((*cut).min(rest.len()));
                splitter.push(part, Timestamp(0), &mut found);
                rest = after;
            }
            splitter.finish(Extent::Cut, Timestamp(0), &mut found);
            let expected = lines.iter().filter(|line| !line.is_empty());
            prop_assert_eq!(found.len(), expected.clone().count());
            for (line, expected) in found.iter().zip(expected) {
                let is_whole = expected.len() < LINE_BYTES_MAX;
                let extent = if is_whole { Extent::Whole } else { Extent::TooLong };
                prop_assert_eq!(line.extent, extent);
                prop_assert!(line.bytes.len() <= LINE_BYTES_MAX);
                let kept = line.bytes.len().min(expected.len()).min(KEPT_BYTES);
                prop_assert_eq!(&line.bytes[..kept], &expected.as_bytes()[..kept]);
            }
        }
    }

    #[tokio::test]
    async fn silent_connections_of_one_host_do_not_lock_out_another() {
        let file = wrapper_file(
            "kind = \"tcp\"\nformat = \"json\"\nlisten = \"127.0.0.1:0\"\n[[stream]]\nname = \"a\"\n\
             fields = [{ name = \"value\", type = \"integer\" }]\n",
        );
        let (_, mut decoder, _) = settings(&file).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (send, mut lines) = mpsc::channel(LINES_MAX);
        let ended = Arc::<Ended>::default();
        let orders = broadcast::channel(1).0;
        let listening = tokio::spawn(listen(listener, send, orders, ended.clone()));
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            connections.push(socket.connect(address).await.unwrap());
        }
        let mut other = TcpStream::connect(address).await.unwrap();
        other.write_all(b"{\"value\": 1}\n").await.unwrap();
        let mut batch = Batch::default();
        take(lines.recv().await.unwrap(), &mut decoder, &mut batch);
        assert_eq!(batch.elements(), 1);
        ended.take(&decoder, &mut batch);
        let lost: Vec<_> = batch
            .lost
            .iter()
            .map(|it| (it.reason, it.messages))
            .collect();
        assert_eq!(lost, [("silent_connection", 0)]);
        // The one that was silent longest has ended.
        let mut byte = [0];
        assert_eq!(connections[0].read(&mut byte).await.unwrap(), 0);
        // The greedy host gets no place of another.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut one_more = socket.connect(address).await.unwrap();
        assert_eq!(one_more.read(&mut byte).await.unwrap_or(0), 0);
        ended.take(&decoder, &mut batch);
        assert_eq!(batch.lost[1].reason, "too_many_connections");
        listening.abort();
    }

    #[tokio::test]
    async fn a_command_is_a_line_to_the_peers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let file = wrapper_file(&format!(
            "kind = \"tcp\"\nformat = \"json\"\nconnect = \"{address}\"\n[[command]]\nname = \"set\"\n\
             line = \"SET {{value}}\"\n[[stream]]\nname = \"a\"\n\
             fields = [{{ name = \"value\", type = \"integer\" }}]\n"
        ));
        let mut wrapper = open(&file, None);
        let command = Command {
            name: "set".to_owned(),
            arguments: json!({ "value": 7 }).as_object().unwrap().clone(),
        };
        let early = wrapper.command(&command).await.unwrap_err();
        assert_eq!(
            early,
            WrapperError::Command("no peer is connected".to_owned())
        );
        let peer = tokio::spawn(async move {
            let (mut peer, _) = listener.accept().await.unwrap();
            peer.write_all(b"{\"value\": 1}\n").await.unwrap();
            let mut line = [0; 6];
            peer.read_exact(&mut line).await.unwrap();
            line
        });
        assert_eq!(wrapper.next().await.unwrap().elements(), 1);
        let answer = wrapper.command(&command).await.unwrap();
        assert_eq!(
            (answer, &peer.await.unwrap()),
            (json!({ "peers": 1 }), b"SET 7\n")
        );
    }

    #[tokio::test]
    async fn lines_are_read_from_a_peer_that_is_dialled() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let file = wrapper_file(&format!(
            "kind = \"tcp\"\nformat = \"json\"\nconnect = \"{address}\"\n[[stream]]\nname = \"a\"\n\
             fields = [{{ name = \"value\", type = \"integer\" }}]\n"
        ));
        let mut wrapper = open(&file, None);
        tokio::spawn(async move {
            let (mut peer, _) = listener.accept().await.unwrap();
            peer.write_all(b"{\"value\": 1}\n\nhello\n{\"val")
                .await
                .unwrap();
            peer.write_all(b"ue\": 2}").await.unwrap();
        });
        let (mut values, mut undecodable) = (Vec::new(), 0);
        let error = loop {
            match wrapper.next().await {
                Ok(batch) => {
                    undecodable += batch.undecodable.len();
                    let elements = batch.parts.iter().flat_map(|part| &part.elements);
                    values.extend(elements.map(|element| element.values[0].clone()));
                }
                Err(error) => break error,
            }
        };
        assert_eq!(values, [Value::Integer(1), Value::Integer(2)]);
        assert_eq!(
            (undecodable, error),
            (1, WrapperError::peer("the peer ended the connection"))
        );
    }

    #[tokio::test]
    async fn a_line_that_the_end_of_the_connection_cuts_is_no_number() {
        for (format, text, stored, cut) in [
            ("key_value", "value=1001\nvalue=10", vec![1001], 1),
            ("csv = { columns = [\"value\"] }", "1001\n10", vec![1001], 1),
            ("json", "{\"value\": 1}\n{\"value\": 2}", vec![1, 2], 0),
            ("json", "{\"value\": 1}\n{\"value\": 2", vec![1], 1),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let format = match format.contains('=') {
                true => format!("{{ {format} }}"),
                false => format!("{format:?}"),
            };
            let file = wrapper_file(&format!(
                "kind = \"tcp\"\nformat = {format}\nconnect = \"{address}\"\n[[stream]]\nname = \"a\"\n\
                 fields = [{{ name = \"value\", type = \"integer\" }}]\n"
            ));
            let mut wrapper = open(&file, None);
            tokio::spawn(async move {
                let (mut peer, _) = listener.accept().await.unwrap();
                peer.write_all(text.as_bytes()).await.unwrap();
            });
            let (mut values, mut wrong) = (Vec::new(), Vec::new());
            while let Ok(batch) = wrapper.next().await {
                let elements = batch.parts.iter().flat_map(|part| &part.elements);
                values.extend(elements.map(|element| element.values[0].clone()));
                wrong.extend(batch.undecodable);
            }
            let stored: Vec<_> = stored.into_iter().map(Value::Integer).collect();
            assert_eq!((values, wrong.len()), (stored, cut), "{text}");
            for one in wrong {
                assert!(one.reason.contains("connection ended"), "{one:?}");
            }
        }
    }
}
