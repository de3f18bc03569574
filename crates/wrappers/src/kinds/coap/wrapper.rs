//! The wrapper: the client on a socket, and states of resources as messages.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use chappe_format::{Message, Pattern};
use chappe_machine::{Input, Instant as Moment, Machine as _, Output, drain};
use chappe_stream::DescriptorError;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::{Instant, sleep_until};

use super::client::{Client, Event, Pace, Sum};
use super::message::Target;
use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    Batch, Condition, Delivery, Lost, Mark, Notes, Step, Wrapper, WrapperError, WrapperFile,
    WrapperKind, WrapperOpening,
};

/// The version of a mark.
const FORMAT: u8 = 1;
/// Most resources of a file; reason: the mark has a checksum of each, and they are asked for one after another.
const RESOURCES_MAX: usize = 64;
/// The port of a server (RFC 7252, section 6.1).
const PORT: u16 = 5_683;
/// Longest datagram.
const DATAGRAM_BYTES: usize = 65_535;
/// Datagrams after which a batch is complete.
const BATCH_DATAGRAMS: usize = 256;
/// Longest segment of a path, and part of a query (RFC 7252, section 5.10).
const OPTION_BYTES_MAX: usize = 255;
/// Content formats in CBOR, which no format decodes: CBOR itself and SenML in it (RFC 7252, section 12.3; RFC 8428).
const CBOR: [u16; 3] = [60, 112, 113];

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "coap",
    about: "observed resources of a CoAP server",
    delivery: Delivery {
        acknowledges: "a confirmable notification after it is stored; immediately if it has more than one block",
        resumes: "registering again; the checksum of the newest stored state",
        may_double: "a state that the server notifies again",
        may_miss: "states between two notifications and while the node is down: CoAP promises only the newest; reordered and incomplete ones are counted",
        back_pressure: "acknowledgements wait, so that a server sends no further confirmable notification",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: Some(super::browse::browse),
};

/// The keys of a wrapper of kind `coap`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// `coap://HOST:PORT`.
    address: String,
    /// The paths of the resources, with their queries: `/sensors/light?unit=lx`.
    #[schemars(length(min = 1, max = 64))]
    resources: Vec<String>,
    /// A pattern that the paths match, such as `/sensors/{room}/{kind}`; its placeholders name streams and keys.
    pattern: Option<String>,
    /// The content format to request, a number of CoAP's registry: 50 is JSON, 110 is SenML.
    accept: Option<u16>,
    /// Time between two requests for a resource that cannot be observed. Default: 10.
    #[serde(default = "poll_default")]
    #[schemars(range(min = 1, max = 86_400), extend("x-unit" = "seconds"))]
    poll_s: u64,
    /// Time without a notification after which a resource is registered again, even if the server declares
    /// its state fresh for longer. Default: 120.
    #[serde(default = "silence_default")]
    #[schemars(range(min = 1, max = 86_400), extend("x-unit" = "seconds"))]
    silence_s: u64,
}

fn poll_default() -> u64 {
    10
}

fn silence_default() -> u64 {
    120
}

/// Host and port of a server; the host is a part of requests if it is a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Server {
    /// The server of `coap://HOST:PORT`.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn parse(address: &str) -> Result<Self, String> {
        let form = || format!("{address:?} is not coap://HOST:PORT");
        if address.starts_with("coaps://") {
            return Err("CoAP over DTLS is not supported".to_owned());
        }
        let place = address.strip_prefix("coap://").ok_or_else(form)?;
        let place = place.trim_end_matches('/');
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| form())?),
            _ => (place, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_long = host.len() > OPTION_BYTES_MAX;
        match host.is_empty() || is_long || host.contains(['/', '@', '?', '#', ' ']) {
            true => Err(form()),
            false => Ok(Self {
                host: host.to_owned(),
                port,
            }),
        }
    }

    /// A resource of it.
    ///
    /// # Errors
    /// The path is none.
    pub(super) fn target(&self, path: &str, accept: Option<u16>) -> Result<Target, String> {
        let wrong = |text: &str| format!("{path:?}: {text}");
        let inner = path
            .strip_prefix('/')
            .ok_or_else(|| wrong("a path begins with /"))?;
        let (segments, query) = match inner.split_once('?') {
            Some((segments, query)) => (segments, Some(query)),
            None => (inner, None),
        };
        let decoded = |parts: Vec<&str>| -> Result<Vec<String>, String> {
            let parts = parts.into_iter().map(|part| {
                let text = unescaped(part).ok_or_else(|| wrong("an escape %XX is wrong"))?;
                match text.len() <= OPTION_BYTES_MAX {
                    true => Ok(text),
                    false => Err(wrong("a segment is longer than 255 bytes")),
                }
            });
            parts.collect()
        };
        let segments = match segments {
            "" => Vec::new(),
            segments => segments.split('/').collect(),
        };
        let is_name = self.host.parse::<std::net::IpAddr>().is_err();
        Ok(Target {
            host: is_name.then(|| self.host.clone()),
            path: decoded(segments)?,
            query: decoded(
                query
                    .map(|query| query.split('&').collect())
                    .unwrap_or_default(),
            )?,
            accept,
        })
    }

    /// A socket that takes datagrams of this server alone.
    pub(super) async fn connect(self) -> Result<UdpSocket, WrapperError> {
        let Self { host, port } = self;
        let failed = |error: io::Error| {
            WrapperError::peer(format!("cannot reach coap://{host}:{port}: {error}"))
        };
        let mut found = lookup_host((&*host, port)).await.map_err(failed)?;
        let address = found
            .next()
            .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let any: SocketAddr = match address.is_ipv4() {
            true => ([0_u8; 4], 0).into(),
            false => ([0_u8; 16], 0).into(),
        };
        let socket = UdpSocket::bind(any).await.map_err(failed)?;
        socket.connect(address).await.map_err(failed)?;
        Ok(socket)
    }
}

/// A text without its escapes `%XX`.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        rest = after;
        let digits = str::from_utf8(digits)
            .ok()
            .filter(|it| !it.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// A checked file.
struct Checked {
    server: Server,
    targets: Vec<Target>,
    attributes: Vec<chappe_format::Attributes>,
    pace: Pace,
    decoder: Decoder,
}

fn settings(file: &WrapperFile) -> Result<(Settings, Checked), DescriptorError> {
    let settings: Settings = file.settings()?;
    let fault = |key: &str, text: String| file.fault(key, text, None);
    let server = Server::parse(&settings.address);
    let server = server.map_err(|text| fault("address", text))?;
    if !(1..=RESOURCES_MAX).contains(&settings.resources.len()) {
        return Err(fault(
            "resources",
            format!("a file has 1 to {RESOURCES_MAX} resources"),
        ));
    }
    for (key, seconds) in [
        ("poll_s", settings.poll_s),
        ("silence_s", settings.silence_s),
    ] {
        if !(1..=86_400).contains(&seconds) {
            return Err(fault(key, "it is not within 1 to 86400".to_owned()));
        }
    }
    let bare = |path: &str| path.trim_start_matches('/').to_owned();
    let pattern = settings
        .pattern
        .as_ref()
        .map(|text| Pattern::topic(&bare(text)));
    let pattern = pattern
        .transpose()
        .map_err(|error| fault("pattern", error.to_string()))?;
    let (mut targets, mut attributes) = (Vec::new(), Vec::new());
    for path in &settings.resources {
        let target = server.target(path, settings.accept);
        targets.push(target.map_err(|text| fault("resources", text))?);
        let path = bare(path.split('?').next().unwrap_or_default());
        attributes.push(match &pattern {
            None => Default::default(),
            Some(pattern) => match pattern.matches(&path) {
                Some(attributes) => attributes,
                None => return Err(fault("pattern", format!("it does not match /{path}"))),
            },
        });
    }
    let names = pattern
        .map(|pattern| pattern.names().to_vec())
        .unwrap_or_default();
    let checked = Checked {
        server,
        targets,
        attributes,
        pace: Pace {
            poll: Duration::from_secs(settings.poll_s),
            silence: Duration::from_secs(settings.silence_s),
        },
        decoder: Decoder::new(file, &names)?,
    };
    Ok((settings, checked))
}

/// A secret for the tokens of a client.
pub(super) fn seed() -> Result<[u8; 32], WrapperError> {
    let mut seed = [0; 32];
    let filled = SystemRandom::new().fill(&mut seed);
    filled.map_err(|_| WrapperError::peer("the system has no random numbers"))?;
    Ok(seed)
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let (settings, checked) =
        settings(opening.file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let known = Known::of(opening.mark.as_ref(), &settings.resources);
    let mut client = Client::new(checked.targets, checked.pace, seed()?);
    client.known(known.sums.iter().copied());
    opening.condition.waits("no resource has answered");
    Ok(Box::new(CoapWrapper {
        server: checked.server,
        problems: vec![None; settings.resources.len()],
        resources: settings.resources,
        attributes: checked.attributes,
        decoder: checked.decoder,
        client,
        known,
        start: Instant::now(),
        connecting: None,
        socket: None,
        waiting: VecDeque::new(),
        condition: opening.condition,
        notes: opening.notes,
    }))
}

/// The checksums of the newest stored states, by resource.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    /// The checksum of the list of resources, to which the others belong.
    list: Sum,
    /// Batches so far, so that no two marks are equal.
    batches: u64,
    sums: Vec<Option<Sum>>,
}

impl Known {
    /// Those of a mark, if it is of these resources.
    fn of(mark: Option<&Mark>, resources: &[String]) -> Self {
        let sum = digest(&SHA256, resources.join("\n").as_bytes());
        let own = Self {
            list: sum.as_ref().first_chunk().copied().unwrap_or_default(),
            batches: 0,
            sums: vec![None; resources.len()],
        };
        mark.and_then(|mark| own.read(mark.bytes())).unwrap_or(own)
    }

    fn read(&self, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(&[FORMAT])?.strip_prefix(&self.list)?;
        let (batches, mut bytes) = bytes.split_first_chunk()?;
        let mut sums = Vec::new();
        while let Some((sum, rest)) = bytes.split_first_chunk::<8>() {
            bytes = rest;
            sums.push((*sum != Sum::default()).then_some(*sum));
        }
        let own = Self {
            list: self.list,
            batches: u64::from_be_bytes(*batches),
            sums,
        };
        (own.sums.len() == self.sums.len() && bytes.is_empty()).then_some(own)
    }

    fn mark(&mut self) -> Mark {
        self.batches += 1;
        let mut bytes = vec![FORMAT];
        bytes.extend(self.list);
        bytes.extend(self.batches.to_be_bytes());
        bytes.extend(self.sums.iter().flat_map(|sum| sum.unwrap_or_default()));
        // 64 resources and 17 bytes are far below the limit.
        Mark::new(bytes).unwrap_or_default()
    }
}

struct CoapWrapper {
    server: Server,
    resources: Vec<String>,
    attributes: Vec<chappe_format::Attributes>,
    decoder: Decoder,
    client: Client,
    known: Known,
    /// The beginning of the client's time.
    start: Instant,
    /// The connection under way, which outlives a step that is dropped.
    connecting: Option<Step<'static, Result<UdpSocket, WrapperError>>>,
    socket: Option<UdpSocket>,
    /// Messages that are acknowledged when the batch with this mark is stored.
    waiting: VecDeque<(Mark, Vec<u16>)>,
    /// Why a resource cannot be read.
    problems: Vec<Option<String>>,
    condition: Condition,
    notes: Notes,
}

impl Wrapper for CoapWrapper {
    fn repeats(&self) -> bool {
        false
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            if self.socket.is_none() {
                let server = &self.server;
                let connecting = self
                    .connecting
                    .get_or_insert_with(|| Box::pin(server.clone().connect()));
                let connected = connecting.await;
                self.connecting = None;
                self.socket = Some(connected?);
            }
            let mut buffer = vec![0; DATAGRAM_BYTES];
            let mut due = self.client.deadline().unwrap_or(Moment::ZERO);
            loop {
                let (mut batch, mut acknowledge) = (Batch::default(), Vec::new());
                for _ in 0..BATCH_DATAGRAMS {
                    // An error is that of a datagram that was sent: the server is not there, and the client notices it.
                    let read = self
                        .socket
                        .as_ref()
                        .and_then(|it| it.try_recv(&mut buffer).ok());
                    let Some(count) = read else {
                        break;
                    };
                    let input = Input::Receive(buffer[..count].to_vec());
                    due = self.step(input, &mut batch, &mut acknowledge);
                }
                if due <= self.moment() {
                    due = self.step(Input::Timeout, &mut batch, &mut acknowledge);
                }
                let is_empty = batch.parts.is_empty() && batch.undecodable.is_empty();
                if !is_empty || !batch.lost.is_empty() {
                    batch.mark = self.known.mark();
                    self.waiting.push_back((batch.mark.clone(), acknowledge));
                    return Ok(batch);
                }
                // A state without an element, of records that no stream takes, is done with.
                for id in acknowledge {
                    due = self.step(Input::Command(id), &mut Batch::default(), &mut Vec::new());
                }
                let Some(socket) = &self.socket else {
                    return Err(WrapperError::peer("not connected"));
                };
                let note = self.notes.due();
                let until = self.start + Duration::from_nanos(due.as_nanos());
                tokio::select! {
                    _ = socket.readable() => {}
                    () = sleep_until(until) => {}
                    () = sleep_until(note.unwrap_or(until)), if note.is_some() => self.notes.pass(),
                }
            }
        })
    }

    fn stored<'a>(&'a mut self, mark: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        let at = self.waiting.iter().position(|(one, _)| one == mark);
        let stored: Vec<_> = self.waiting.drain(..at.map_or(0, |at| at + 1)).collect();
        for id in stored.into_iter().flat_map(|(_, ids)| ids) {
            // A command has no event.
            self.step(Input::Command(id), &mut Batch::default(), &mut Vec::new());
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

impl CoapWrapper {
    fn moment(&self) -> Moment {
        Moment::ZERO + self.start.elapsed()
    }

    /// Passes the client one input; returns when it acts next.
    fn step(
        &mut self,
        input: Input<Vec<u8>, u16>,
        batch: &mut Batch,
        acknowledge: &mut Vec<u16>,
    ) -> Moment {
        let (now, mut events) = (self.moment(), Vec::new());
        let socket = self.socket.as_ref();
        let due = drain(&mut self.client, now, input, |output| match output {
            // A datagram that cannot be sent is lost like others, and repeated.
            Output::Transmit(bytes) => drop(socket.map(|it| it.try_send(&bytes))),
            Output::Event(event) => events.push(event),
        });
        for event in events {
            self.take(event, batch, acknowledge);
        }
        due.unwrap_or(now + Duration::from_secs(1))
    }

    fn take(&mut self, event: Event, batch: &mut Batch, acknowledge: &mut Vec<u16>) {
        match event {
            Event::State {
                resource,
                body,
                content_format,
                acknowledge: id,
                sum,
                is_cut,
            } => {
                acknowledge.extend(id);
                self.known.sums[resource] = Some(sum);
                let path = &self.resources[resource];
                if is_cut {
                    let reason = format!("{path}: its state exceeds the limit");
                    self.decoder.refuse(&body, b"", &reason, batch);
                } else if let Some(number) = content_format.filter(|it| CBOR.contains(it)) {
                    let reason = format!(
                        "{path}: its content format is {number}, in CBOR, which no format decodes; `accept = 50` asks for JSON"
                    );
                    self.decoder.refuse(&body, b"", &reason, batch);
                } else {
                    let message = Message::new(&body, now());
                    let message = message.with(&self.attributes[resource]);
                    self.decoder.attributed(&message, batch);
                }
            }
            Event::Lost { reason, .. } => batch.lost.push(Lost {
                stream: self.decoder.only_stream().map(str::to_owned),
                reason,
                messages: 1,
            }),
            Event::Problem { resource, text } => {
                self.show(
                    resource,
                    Some(format!("{}: {text}", self.resources[resource])),
                );
            }
            Event::Working { resource } => self.show(resource, None),
        }
    }

    /// Shows what is wrong with a resource, and passes on what has changed.
    fn show(&mut self, resource: usize, problem: Option<String>) {
        if self.problems[resource] != problem {
            let path = &self.resources[resource];
            let note = problem
                .clone()
                .unwrap_or_else(|| format!("{path} answers again"));
            self.notes.add(note);
            self.problems[resource] = problem;
        }
        match self.problems.iter().flatten().next() {
            Some(first) => self.condition.waits(first.clone()),
            None => self.condition.runs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_are_read() {
        let server = Server::parse("coap://sensor.example").unwrap();
        assert_eq!((&*server.host, server.port), ("sensor.example", 5_683));
        let literal = Server::parse("coap://[::1]:7/").unwrap();
        assert_eq!((&*literal.host, literal.port), ("::1", 7));
        for wrong in [
            "coap://",
            "coaps://a",
            "http://a",
            "coap://a:x",
            "coap://a/b",
        ] {
            assert!(Server::parse(wrong).is_err(), "{wrong}");
        }
        let target = server.target("/a/b%20c?u=C&x", Some(50)).unwrap();
        assert_eq!(target.path, ["a", "b c"]);
        assert_eq!(target.query, ["u=C", "x"]);
        assert_eq!(target.host.as_deref(), Some("sensor.example"));
        assert_eq!(literal.target("/", None).unwrap(), Target::default());
        for wrong in ["a", "/%", "/%zz", "/%ff", "/%+1"] {
            assert!(server.target(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mark_has_the_checksums_of_its_resources_alone() {
        let paths = |second: &str| ["/a".to_owned(), format!("/{second}")];
        let mut known = Known::of(None, &paths("b"));
        known.sums[1] = Some([7; 8]);
        let mark = known.mark();
        assert_ne!(mark, known.mark());
        let again = Known::of(Some(&mark), &paths("b"));
        assert_eq!(again.sums, [None, Some([7; 8])]);
        assert_eq!(Known::of(Some(&mark), &paths("c")).sums, [None, None]);
        let broken = Mark::new(mark.bytes()[..20].to_vec()).unwrap();
        assert_eq!(Known::of(Some(&broken), &paths("b")).sums, [None, None]);
    }
}
