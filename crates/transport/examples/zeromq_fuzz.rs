//! Attacks bound ZeroMQ ports with hostile peers, next to legitimate ones.
//!
//!     zeromq_fuzz [INPUTS [SEED]]    default 200000, 1
//!
//! A separate process serves ROUTER (NULL and CURVE), PUB and REP. Legitimate peers exchange messages at a fixed pace,
//! first alone, then while INPUTS generated inputs arrive on raw connections from many loopback addresses: broken
//! greetings, handshakes, frames, commands, subscriptions, boxes. A connection carries as many inputs as the server
//! accepts. At the end each legitimate peer must have kept 0.9 of its rate, and the server's memory its limit.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use chappe_machine::{Input, Machine as _, Output};
use chappe_transport::Drops;
use chappe_transport::zeromq::{
    Allowed, CurveSecret, Dealer, Limits, Message, Publisher, Reply, Request, Router, Security,
    Subscriber,
};
use chappe_zmtp::{Config, Connection, Event, Mechanism, SecretKey, SocketType};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The interval of each legitimate peer's messages.
const TICK: Duration = Duration::from_millis(2);
const MESSAGES_A_TICK: usize = 4;
/// The part of their rate that legitimate peers must keep.
const RATE_KEPT_MIN: f64 = 0.9;
/// The largest growth of the server's memory.
const GROWTH_KB_MAX: u64 = 96 << 10;
/// How long the legitimate peers run alone.
const ALONE: Duration = Duration::from_secs(3);

fn server_secret() -> CurveSecret {
    CurveSecret::new([1; 32])
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().unwrap_or_else(|| "200000".into());
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    if first == "serve" {
        return runtime()?.block_on(serve());
    }
    let inputs: u64 = first.parse()?;
    let seed: u64 = arguments.next().map_or(Ok(1), |word| word.parse())?;

    let mut server = Server::start()?;
    let counts = Arc::new(Counts::default());
    let legitimate = {
        let (endpoints, counts) = (server.endpoints.clone(), Arc::clone(&counts));
        std::thread::spawn(move || runtime()?.block_on(legitimate(endpoints, counts)))
    };
    counts.wait_until_all_flow();
    let alone = counts.rates_over(ALONE);
    let before = server.resident_kb()?;

    let started = Instant::now();
    let from = counts.totals();
    let mut attack = Attack::new(&server.endpoints, seed)?;
    let (mut reported, mut most) = (0, before);
    while attack.inputs < inputs {
        attack.connection(inputs)?;
        if attack.inputs / 100_000 > reported {
            reported = attack.inputs / 100_000;
            most = most.max(server.resident_kb()?);
        }
        if server.process.try_wait()?.is_some() {
            return Err(format!("the server died, seed {seed}, input {}", attack.inputs).into());
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let under: Vec<f64> = (counts.totals().iter().zip(from))
        .map(|(now, from)| (now - from) as f64 / seconds)
        .collect();
    most = most.max(server.resident_kb()?);
    counts.stop.store(true, Ordering::Relaxed);
    legitimate
        .join()
        .map_err(|_| "a legitimate peer panicked")??;

    println!(
        "   {} inputs on {} connections in {seconds:.1} s; {} closed by the server; seed {seed}",
        attack.inputs, attack.connections, attack.closed
    );
    let mut kept = true;
    for ((name, alone), under) in NAMES.iter().zip(&alone).zip(&under) {
        let part = under / alone;
        kept &= part >= RATE_KEPT_MIN;
        println!("   {name}: {alone:.0}/s alone, {under:.0}/s under attack, kept {part:.2}");
    }
    let growth = most.saturating_sub(before);
    println!("   server memory: {before} kB before, at most {most} kB");
    print!("{}", server.end()?);
    if !kept {
        return Err(format!("a legitimate peer kept less than {RATE_KEPT_MIN} of its rate").into());
    }
    if growth > GROWTH_KB_MAX {
        return Err(format!("the server's memory grew by {growth} kB").into());
    }
    Ok(())
}

// -- the server -------------------------------------------------------------------------------------

struct Server {
    process: Child,
    input: Option<ChildStdin>,
    endpoints: BTreeMap<String, String>,
}

impl Server {
    fn start() -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.as_mut().ok_or("no standard output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let pairs = words.chunks_exact(2);
        Ok(Self {
            input: process.stdin.take(),
            process,
            endpoints: pairs
                .map(|pair| (pair[0].clone(), pair[1].clone()))
                .collect(),
        })
    }

    fn resident_kb(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("no VmRSS")?.parse()?)
    }

    /// Ends it in order; returns its report of refusals.
    fn end(mut self) -> Result<String> {
        drop(self.input.take());
        let mut said = String::new();
        if let Some(output) = &mut self.process.stdout {
            output.read_to_string(&mut said)?;
        }
        match self.process.wait()?.success() {
            true => Ok(said),
            false => Err("the server did not end in order".into()),
        }
    }
}

async fn serve() -> Result<()> {
    const HERE: &str = "tcp://127.0.0.1:0";
    let (limits, drops) = (Limits::default(), Drops::default());
    let curve = Security::CurveServer {
        secret: server_secret(),
        allowed: Allowed::Any,
    };
    let mut plain = Router::bind(HERE, Security::Null, limits.clone(), drops.clone()).await?;
    let mut secured = Router::bind(HERE, curve, limits.clone(), drops.clone()).await?;
    let publisher = Publisher::bind(HERE, Security::Null, limits.clone(), drops.clone()).await?;
    let mut reply = Reply::bind(HERE, Security::Null, limits, drops.clone()).await?;
    println!(
        "plain {} secured {} pub {} rep {}",
        plain.local_endpoint(),
        secured.local_endpoint(),
        publisher.local_endpoint().ok_or("no endpoint")?,
        reply.local_endpoint()
    );
    let end = tokio::task::spawn_blocking(|| {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map(drop)
    });
    tokio::pin!(end);
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            connection = plain.accept() => { tokio::spawn(echo(connection?)); }
            connection = secured.accept() => { tokio::spawn(echo(connection?)); }
            asked = reply.recv() => {
                let asked = asked?;
                let answer = asked.question.clone();
                asked.answer(answer);
            }
            _ = ticks.tick() => for _ in 0..MESSAGES_A_TICK {
                publisher.publish("legitimate", [Bytes::from_static(&[7; 100])]);
            },
            _ = &mut end => break,
        }
    }
    for (_, reason, count) in drops.totals() {
        println!("   refused, {reason}: {count}");
    }
    Ok(())
}

/// Echoes messages that request it, and discards all others.
async fn echo(mut connection: chappe_transport::zeromq::Connection) {
    while let Ok(message) = connection.recv().await {
        if message.first() == "echo" && connection.send(message).await.is_err() {
            return;
        }
    }
}

// -- the legitimate peers ---------------------------------------------------------------------------

const NAMES: [&str; 4] = ["DEALER, NULL", "DEALER, CURVE", "SUB, NULL", "REQ, NULL"];

#[derive(Default)]
struct Counts {
    counts: [AtomicU64; NAMES.len()],
    stop: AtomicBool,
}

impl Counts {
    fn totals(&self) -> [u64; NAMES.len()] {
        std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed))
    }

    fn wait_until_all_flow(&self) {
        while self.totals().contains(&0) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn rates_over(&self, time: Duration) -> [f64; NAMES.len()] {
        let (from, started) = (self.totals(), Instant::now());
        std::thread::sleep(time);
        let (to, seconds) = (self.totals(), started.elapsed().as_secs_f64());
        std::array::from_fn(|index| (to[index] - from[index]) as f64 / seconds)
    }
}

async fn legitimate(endpoints: BTreeMap<String, String>, counts: Arc<Counts>) -> Result<()> {
    let limits = Limits::default();
    let curve = Security::CurveClient {
        secret: CurveSecret::new([2; 32]),
        server_key: server_secret().public(),
    };
    let plain = Dealer::connect(&endpoints["plain"], Security::Null, limits.clone()).await?;
    let secured = Dealer::connect(&endpoints["secured"], curve, limits.clone()).await?;
    for (index, connection) in [plain, secured].into_iter().enumerate() {
        let (mut sender, mut receiver) = connection.split();
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(TICK);
            loop {
                ticks.tick().await;
                for _ in 0..MESSAGES_A_TICK {
                    let message = Message::from_frames([&b"echo"[..], &[7; 100]]);
                    let Some(message) = message else { return };
                    if sender.send(message).await.is_err() {
                        return;
                    }
                }
            }
        });
        tokio::spawn(async move {
            while receiver.recv().await.is_ok() {
                counts.counts[index].fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let (at_pub, drops) = (&endpoints["pub"], Drops::default());
    let subscriber = Subscriber::connect(at_pub, ["legit"], Security::Null, limits.clone(), drops);
    let mut subscriber = subscriber.await?;
    let counted = Arc::clone(&counts);
    tokio::spawn(async move {
        loop {
            subscriber.recv().await;
            counted.counts[2].fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut request = Request::connect(&endpoints["rep"], Security::Null, limits).await?;
    let mut ticks = tokio::time::interval(TICK);
    while !counts.stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        request.ask("question", Duration::from_secs(30)).await?;
        counts.counts[3].fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

// -- the attack -------------------------------------------------------------------------------------

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

struct Attack {
    random: Random,
    /// Plain ROUTER, PUB, REP, and the CURVE ROUTER last.
    targets: [SocketAddr; 4],
    inputs: u64,
    connections: u64,
    closed: u64,
}

impl Attack {
    fn new(endpoints: &BTreeMap<String, String>, seed: u64) -> Result<Self> {
        let address = |name: &str| endpoints[name].trim_start_matches("tcp://").parse();
        Ok(Self {
            random: Random(seed),
            targets: [
                address("plain")?,
                address("pub")?,
                address("rep")?,
                address("secured")?,
            ],
            inputs: 0,
            connections: 0,
            closed: 0,
        })
    }

    /// One connection, with inputs until the server closes it or enough were sent.
    fn connection(&mut self, inputs: u64) -> Result<()> {
        let target = self.targets[self.random.below(self.targets.len())];
        let secured = target == self.targets[3];
        let Some(mut stream) = self.open(target)? else {
            return Ok(());
        };
        self.connections += 1;
        let mut out = Vec::new();
        // Most inputs are valid up to a late step; some fail at an earlier one.
        let live = match self.random.below(20) {
            0 => {
                let length = 1 + self.random.below(300);
                out.extend(self.random.bytes(length));
                false
            }
            1 => {
                self.broken_handshake(secured, &mut out);
                false
            }
            _ if secured => self.curve_handshake(&mut stream, &mut out)?,
            _ => {
                plain_handshake(target == self.targets[1], &mut out);
                true
            }
        };
        self.inputs += 1;
        let many = if live { 1 + self.random.below(400) } else { 0 };
        for _ in 0..many {
            if self.inputs >= inputs {
                break;
            }
            self.input(secured, &mut out);
            self.inputs += 1;
            if out.len() > 16 << 10 && !self.send(&mut stream, &mut out) {
                return Ok(());
            }
        }
        if self.send(&mut stream, &mut out) {
            self.leave(stream);
        }
        Ok(())
    }

    /// Closes in order, so that all inputs are read; or, one in eight, by a reset.
    fn leave(&mut self, mut stream: TcpStream) {
        if self.random.one_in(8) || stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let mut answers = [0; 16 << 10];
        while stream.read(&mut answers).is_ok_and(|bytes| bytes > 0) {}
    }

    /// Connects from some loopback address; `None` if there is no room now.
    fn open(&mut self, target: SocketAddr) -> Result<Option<TcpStream>> {
        let from = Ipv4Addr::new(
            127,
            1,
            self.random.next() as u8,
            1 + self.random.below(250) as u8,
        );
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        // A plain close resets it, so that no port stays in TIME_WAIT.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        match socket.connect_timeout(&target.into(), Duration::from_millis(200)) {
            Ok(()) => {}
            Err(_) => return Ok(None),
        }
        let stream = TcpStream::from(socket);
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(Some(stream))
    }

    /// Sends and clears the collected bytes; false if the connection has ended.
    fn send(&mut self, stream: &mut TcpStream, out: &mut Vec<u8>) -> bool {
        let sent = stream.write_all(out);
        out.clear();
        let mut answers = [0; 16 << 10];
        let read = stream
            .set_nonblocking(true)
            .and_then(|()| stream.read(&mut answers));
        let _ = stream.set_nonblocking(false);
        let over = sent.is_err()
            || read.is_ok_and(|bytes| bytes == 0)
            || matches!(stream.take_error(), Ok(Some(_)));
        self.closed += u64::from(over);
        !over
    }

    /// A handshake with something changed.
    fn broken_handshake(&mut self, secured: bool, out: &mut Vec<u8>) {
        if secured {
            out.extend(greeting(b"CURVE"));
            frame(
                4,
                &[&b"\x05HELLO\x01\x00"[..], &self.random.bytes(192)].concat(),
                out,
            );
        } else {
            plain_handshake(self.random.one_in(2), out);
        }
        for _ in 0..1 + self.random.below(4) {
            let at = self.random.below(out.len());
            out[at] = self.random.next() as u8;
        }
        let end = self.random.below(out.len() * 2).clamp(1, out.len());
        out.truncate(end);
    }

    /// A complete handshake of a client with a key; leaves the first boxed messages in `out`.
    fn curve_handshake(&mut self, stream: &mut TcpStream, out: &mut Vec<u8>) -> Result<bool> {
        let mut seed = [0; 32];
        seed.copy_from_slice(&self.random.bytes(32));
        let mechanism = Mechanism::CurveClient {
            secret: SecretKey(seed),
            server: *server_secret().public().as_bytes(),
        };
        let now = chappe_machine::Instant::ZERO;
        let config = Config::new(SocketType::Dealer, mechanism);
        let mut client = Connection::new(config, seed, now);
        let mut answers = [0; 4 << 10];
        loop {
            let mut ready = false;
            while let Some(output) = client.poll_output() {
                match output {
                    Output::Transmit(bytes) => out.extend_from_slice(&bytes),
                    Output::Event(Event::Ready(_)) => ready = true,
                    Output::Event(_) => return Ok(false),
                }
            }
            if ready {
                let count = self.random.below(200);
                let messages = (0..count).map(|_| {
                    let length = self.random.below(100);
                    Message::new(self.random.bytes(length))
                });
                let send = chappe_zmtp::Command::Send(messages.collect());
                client.handle_input(now, Input::Command(send));
                while let Some(output) = client.poll_output() {
                    if let Output::Transmit(bytes) = output {
                        out.extend_from_slice(&bytes);
                    }
                }
                self.inputs += count as u64;
                return Ok(true);
            }
            if stream.write_all(out).is_err() {
                return Ok(false);
            }
            out.clear();
            match stream.read(&mut answers) {
                Ok(0) | Err(_) => return Ok(false),
                Ok(length) => {
                    let bytes = BytesMut::from(&answers[..length]);
                    client.handle_input(now, Input::Receive(bytes));
                }
            }
        }
    }

    /// One input after the handshake. About one in fifty violates the protocol; the others try to overload the
    /// server within it.
    fn input(&mut self, secured: bool, out: &mut Vec<u8>) {
        let length = match self.random.below(20) {
            0 => self.random.below(2_000),
            1 => 0,
            _ => self.random.below(120),
        };
        if secured {
            // Without the session key every box is invalid, which must be fatal.
            let name = b"\x07MESSAGE";
            let body = [&name[..], &self.random.bytes(25 + length)].concat();
            return frame(self.random.next() as u8 & 4, &body, out);
        }
        match self.random.below(400) {
            // Wrong flags, endless sizes, names without an end.
            0 => out.extend([self.random.next() as u8, self.random.next() as u8]),
            1 => {
                out.push(2);
                out.extend((self.random.next() >> self.random.below(64)).to_be_bytes());
            }
            2 => frame(4, &self.random.bytes(length), out),
            3 => frame(
                4,
                &[&b"\x09SUBSCRIBE"[..], &self.random.bytes(length * 3)].concat(),
                out,
            ),
            4 => frame(
                4,
                &[&b"\x04PING"[..], &self.random.bytes(length % 30)].concat(),
                out,
            ),
            5 => frame(4, b"\x05ERROR\x03400", out),
            6 => frame(
                4,
                &[&b"\x05READY"[..], &self.random.bytes(length)].concat(),
                out,
            ),
            // Within the protocol.
            7..=20 => frame(
                4,
                &[&b"\x04PING\0\x01"[..], &self.random.bytes(length % 16)].concat(),
                out,
            ),
            21..=25 => frame(
                4,
                &[&b"\x06FUTURE"[..], &self.random.bytes(length)].concat(),
                out,
            ),
            26..=150 => {
                let flag = self.random.next() as u8 & 1;
                let topic = self.random.bytes(1 + length % 6);
                frame(0, &[&[flag], &topic[..]].concat(), out);
            }
            151..=170 => frame(1, &self.random.bytes(length), out),
            _ => frame(0, &self.random.bytes(length), out),
        }
    }
}

fn greeting(mechanism: &[u8]) -> [u8; 64] {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xFF, 0x7F, 3, 1);
    greeting[12..12 + mechanism.len()].copy_from_slice(mechanism);
    greeting
}

fn frame(flags: u8, body: &[u8], out: &mut Vec<u8>) {
    match u8::try_from(body.len()) {
        Ok(length) => out.extend([flags, length]),
        Err(_) => {
            out.push(flags | 2);
            out.extend((body.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(body);
}

fn plain_handshake(subscribes: bool, out: &mut Vec<u8>) {
    out.extend(greeting(b"NULL"));
    let kind: &[u8] = if subscribes {
        b"\0\0\0\x03SUB"
    } else {
        b"\0\0\0\x06DEALER"
    };
    frame(4, &[&b"\x05READY\x0bSocket-Type"[..], kind].concat(), out);
}
