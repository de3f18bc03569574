//! The processes of the scenario that are ours: the device with its client, and the floors.
//!
//! A server prints `ready ADDRESS`. A client prints one line a call: its load, the nanoseconds until the server had read
//! the request, and those until the client had read the answer. Both read the monotonic clock of the machine.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use bytes::Bytes;
use chappe_device::client::{CallError, HostedService, Search};
use chappe_device::tls::Mutual;
use chappe_device::{ClientOptions, Device, DeviceClient, Key, Message, Selection, Service};
use chappe_identity::{AddressPolicy, Contact, Prefix};
use chappe_transport::http::{
    Client, ClientLimits, HeaderMap, Method, Request, Response, Server, ServerLimits, StatusCode,
};
use chappe_transport::{Drops, monotonic_ns, route_source};

use super::load::Load;
use crate::readiness::runtime;
use crate::{Error, process};

/// The role of these processes.
pub(crate) const ROLE: &str = "invoke";
/// One call in so many is made before, and not counted. Reason: the caches of both processes are as in a long run.
const WARM_UP: usize = 10;
/// Bytes at the begin of a raw message: the lengths of question and answer, or the time of arrival.
const MARK: usize = 8;
/// The longest message of the floors. Reason: larger than that of every load.
const BYTES_MAX: usize = 1 << 20;

#[derive(Message)]
struct Integers {
    value: Vec<i32>,
}

#[derive(Message)]
struct Characters {
    text: String,
}

/// The answer to both.
#[derive(Message)]
struct Taken {
    /// The integers or characters that arrived.
    count: i32,
    /// The time of arrival, by the monotonic clock.
    at_ns: i64,
}

impl Taken {
    fn now(count: usize) -> Self {
        Self {
            count: i32::try_from(count).unwrap_or(i32::MAX),
            at_ns: now(),
        }
    }
}

fn now() -> i64 {
    i64::try_from(monotonic_ns()).unwrap_or(i64::MAX)
}

/// How messages of the typed library cross the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    /// From the second message on.
    Exi,
    /// Text over TLS.
    Tls,
}

/// The device's key, by which its client knows its certificate.
fn key() -> Key {
    Key::from(chappe_identity::Key::from_seed([25; 32]))
}

/// Runs `serve STACK ADDRESS`, or `call STACK ADDRESS kept|new ROUNDS LOAD...`.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Error> {
    let arguments: Vec<&str> = arguments.iter().filter_map(|it| it.to_str()).collect();
    let unknown = || Error::Failed(format!("no such process: {arguments:?}"));
    match arguments.as_slice() {
        ["serve", stack, address] => {
            let address: IpAddr = address.parse().map_err(|_| unknown())?;
            match *stack {
                "chappe" => runtime()?.block_on(serve_device(address, Form::Text)),
                "chappe-tls" => runtime()?.block_on(serve_device(address, Form::Tls)),
                "http" => runtime()?.block_on(serve_http(address)),
                "tcp" => serve_tcp(address),
                _ => Err(unknown()),
            }
        }
        ["call", stack, address, connection, rounds, loads @ ..] => {
            let loads: Result<Vec<Load>, Error> = loads.iter().map(|it| it.parse()).collect();
            let calls = Calls {
                address: address.parse().map_err(|_| unknown())?,
                is_kept: *connection == "kept",
                rounds: rounds.parse().map_err(|_| unknown())?,
                loads: loads?,
            };
            match *stack {
                "chappe" => runtime()?.block_on(calls.device(Form::Text)),
                "chappe-exi" => runtime()?.block_on(calls.device(Form::Exi)),
                "chappe-tls" => runtime()?.block_on(calls.device(Form::Tls)),
                "http" => runtime()?.block_on(calls.http()),
                "tcp" => runtime()?.block_on(calls.tcp()),
                _ => Err(unknown()),
            }
        }
        _ => Err(unknown()),
    }
}

/// A command that runs one of these processes.
pub(super) fn command(words: &[&str]) -> Result<std::process::Command, Error> {
    let mut command = process::own_process(ROLE)?;
    command.args(words);
    Ok(command)
}

fn ready(address: SocketAddr) {
    println!("ready {address}");
}

async fn serve_device(address: IpAddr, form: Form) -> Result<(), Error> {
    let failed = Error::failed("starting the device");
    let mut service = Service::new("https://chappe.example/study", "Study");
    service.operation("TakeIntegers", async |asked: Integers| {
        Ok::<_, Infallible>(Taken::now(asked.value.len()))
    });
    service.operation("TakeCharacters", async |asked: Characters| {
        Ok::<_, Infallible>(Taken::now(asked.text.len()))
    });
    let mut device = Device::new(key())
        .model("Chappe", "bench")
        .name("study")
        .service(service)
        .addresses([address]);
    if form == Form::Tls {
        device = device.tls(&key().tls(&[]));
    }
    let device = device.start().await.map_err(failed)?;
    for address in device.host().addresses() {
        ready(address);
    }
    std::future::pending().await
}

async fn serve_http(address: IpAddr) -> Result<(), Error> {
    let handler = |request: Request| async move {
        let (_, answer) = lengths(&request.body).unwrap_or((0, MARK));
        let media_type = "application/octet-stream";
        Response::new(StatusCode::OK, media_type, stamped(answer))
    };
    let address = SocketAddr::new(address, 0);
    let server = Server::bind(address, ServerLimits::default(), Drops::default(), handler);
    let server = server.map_err(Error::io("serving HTTP"))?;
    ready(server.local_addr());
    std::future::pending().await
}

/// One connection at a time: a client has only one.
fn serve_tcp(address: IpAddr) -> Result<(), Error> {
    let failed = || Error::io("serving raw bytes");
    let listener = TcpListener::bind((address, 0)).map_err(failed())?;
    ready(listener.local_addr().map_err(failed())?);
    loop {
        let (mut stream, _) = listener.accept().map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        // The client closes it.
        while answer_raw(&mut stream).is_ok() {}
    }
}

fn answer_raw(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut mark = [0; MARK];
    stream.read_exact(&mut mark)?;
    let wrong = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let (question, answer) = lengths(&mark).ok_or_else(wrong)?;
    stream.read_exact(&mut vec![0; question - MARK])?;
    stream.write_all(&stamped(answer))
}

/// A raw question: the lengths of both messages, then zeros.
fn question(question: usize, answer: usize) -> Vec<u8> {
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = vec![0; question.max(MARK)];
    bytes[..4].copy_from_slice(&length(question.max(MARK)));
    bytes[4..MARK].copy_from_slice(&length(answer.max(MARK)));
    bytes
}

/// The lengths in a raw question, if they are possible.
fn lengths(question: &[u8]) -> Option<(usize, usize)> {
    let (mark, _) = question.split_first_chunk::<MARK>()?;
    let length = |bytes: [u8; 4]| u32::from_le_bytes(bytes) as usize;
    let [a, b, c, d, e, f, g, h] = *mark;
    let lengths = (length([a, b, c, d]), length([e, f, g, h]));
    let is_possible = |length: usize| (MARK..=BYTES_MAX).contains(&length);
    (is_possible(lengths.0) && is_possible(lengths.1)).then_some(lengths)
}

/// A raw answer: the time, then zeros.
fn stamped(answer: usize) -> Vec<u8> {
    let mut bytes = vec![0; answer];
    bytes[..MARK].copy_from_slice(&now().to_le_bytes());
    bytes
}

/// The time in a raw answer.
fn stamp(answer: &[u8]) -> Result<i64, Error> {
    let mark = answer.split_first_chunk::<MARK>();
    let mark = mark.ok_or_else(|| Error::Failed("a raw answer is too short".to_owned()))?;
    Ok(i64::from_le_bytes(*mark.0))
}

/// What a client calls.
struct Calls {
    address: SocketAddr,
    is_kept: bool,
    rounds: usize,
    loads: Vec<Load>,
}

impl Calls {
    /// Times the calls of one load, each of which returns when the server had read it.
    async fn time(
        &self,
        load: Load,
        mut call: impl AsyncFnMut() -> Result<i64, Error>,
    ) -> Result<(), Error> {
        for _ in 0..self.rounds / WARM_UP {
            call().await?;
        }
        let mut lines = String::new();
        for _ in 0..self.rounds {
            let start = now();
            let arrived = call().await?;
            let (one_way, round_trip) = (arrived - start, now() - start);
            let _ = writeln!(lines, "{load} {one_way} {round_trip}");
        }
        print!("{lines}");
        std::io::stdout()
            .flush()
            .map_err(Error::io("printing times"))
    }

    fn limits(&self) -> ClientLimits {
        let limits = ClientLimits::default();
        ClientLimits {
            idle_per_authority: if self.is_kept {
                limits.idle_per_authority
            } else {
                0
            },
            ..limits
        }
    }

    /// Calls the device.
    async fn device(&self, form: Form) -> Result<(), Error> {
        let own = route_source(self.address).map_err(Error::io("finding the own address"))?;
        let options = ClientOptions {
            selection: Selection::Addresses(vec![own]),
            // The device names its own address, whatever the relay's.
            policy: AddressPolicy::default().allow(Prefix::new(self.address.ip(), 0)),
            http: ClientLimits {
                exi: form == Form::Exi,
                ..self.limits()
            },
            probe_period: None,
            liveness_period: None,
            tls: (form == Form::Tls).then(|| {
                let device = key().tls(&[]).fingerprint();
                Mutual::anonymous()
                    .trust(device.into_iter().collect())
                    .security()
            }),
            ..ClientOptions::default()
        };
        let client = DeviceClient::start(options, Drops::default());
        let client = client.map_err(Error::failed("starting the client"))?;
        let service = self.service(&client, form).await?;
        for load in &self.loads {
            match *load {
                Load::Integers(count) => {
                    let value = Load::integers(count);
                    let asked = Integers { value };
                    let operation = "TakeIntegers";
                    self.invoke(&client, &service, *load, operation, &asked)
                        .await?;
                }
                Load::Characters(count) => {
                    let text = "x".repeat(count);
                    let asked = Characters { text };
                    let operation = "TakeCharacters";
                    self.invoke(&client, &service, *load, operation, &asked)
                        .await?;
                }
                Load::Bytes(..) => return Err(other(*load)),
            }
        }
        Ok(())
    }

    /// The device's service, at the address that was given: a relay may be in front of it.
    async fn service(&self, client: &DeviceClient, form: Form) -> Result<HostedService, Error> {
        let what = "describing the device";
        let scheme = if form == Form::Tls { "https" } else { "http" };
        let address = format!("{scheme}://{}/device", self.address);
        let contact = Contact::parse(&address, 0).map_err(Error::failed(what))?;
        let found = client.search_by_http(&contact, &Search::default()).await;
        let found = found.map_err(Error::failed(what))?;
        let missing = || Error::Failed("the device is not described".to_owned());
        let found = found.into_iter().next().ok_or_else(missing)?;
        let description = client.describe(&found).await;
        let description = description.map_err(Error::failed(what))?;
        let service = description.services.into_iter().next();
        let mut service = service.ok_or_else(missing)?;
        service.contact.address = self.address;
        Ok(service)
    }

    async fn invoke<Q: Message>(
        &self,
        client: &DeviceClient,
        service: &HostedService,
        load: Load,
        operation: &str,
        asked: &Q,
    ) -> Result<(), Error> {
        self.time(load, async || {
            let answer = client.invoke(service, operation, asked).await;
            let answer: Result<Taken, CallError<Infallible>> = answer;
            let taken = answer.map_err(Error::failed("calling the device"))?;
            if usize::try_from(taken.count).ok() != Some(load.count()) {
                let what = format!("{} of {load} arrived", taken.count);
                return Err(Error::Failed(what));
            }
            Ok(taken.at_ns)
        })
        .await
    }

    async fn http(&self) -> Result<(), Error> {
        let client = Client::new(self.limits());
        let what = "calling over HTTP";
        let contact = format!("http://{}/", self.address);
        let contact = Contact::parse(&contact, 0).map_err(Error::failed(what))?;
        for load in &self.loads {
            let Load::Bytes(asked, answered) = *load else {
                return Err(other(*load));
            };
            let body = Bytes::from(question(asked, answered));
            self.time(*load, async || {
                let (headers, body) = (HeaderMap::new(), body.clone());
                let answer = client.request(&contact, Method::POST, headers, body).await;
                stamp(&answer.map_err(Error::failed(what))?.body)
            })
            .await?;
        }
        Ok(())
    }

    async fn tcp(&self) -> Result<(), Error> {
        let failed = || Error::io("exchanging raw bytes");
        let mut idle = None;
        for load in &self.loads {
            let Load::Bytes(asked, answered) = *load else {
                return Err(other(*load));
            };
            let question = question(asked, answered);
            let mut answer = vec![0; answered.max(MARK)];
            self.time(*load, async || {
                let mut stream = match idle.take() {
                    Some(stream) => stream,
                    None => self.connect().map_err(failed())?,
                };
                stream.write_all(&question).map_err(failed())?;
                stream.read_exact(&mut answer).map_err(failed())?;
                idle = self.is_kept.then_some(stream);
                stamp(&answer)
            })
            .await?;
        }
        Ok(())
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

fn other(load: Load) -> Error {
    Error::Failed(format!("this stack has no {load}"))
}
