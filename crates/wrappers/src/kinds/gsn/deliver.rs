//! The exporters of kinds `gsn-zeromq-sync` and `gsn-zeromq-push`: elements to the REP socket of one sensor of a GSN
//! server, which answers each.

use std::time::Duration;

use bytes::Bytes;
use chappe_gsn::exchange::{Delivery, DeliveryArrival, DeliveryDispatch, DeliveryOccurrence};
use chappe_gsn::kryo::encode_element;
use chappe_gsn::mapping;
use chappe_machine::{Input, Machine as _, Output, drain};
use chappe_stream::{DescriptorError, Position};
use chappe_transport::zeromq::{Connection, Dealer, Message, Security};
use chappe_transport::{Clock, Drops};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::directory::{Directory, Structures, failed};
use super::{body, check_endpoint, limits};
use crate::exporter::TURN_TIME;
use crate::{
    Batch, Exporter, ExporterFile, ExporterKind, Part, Refused, Step, WrapperError, Written,
};

/// The pause before a connection is tried again.
const REDIAL: Duration = Duration::from_millis(500);
const TWICE: &str = "after a connection or this node ended before the answer: GSN drops an element whose time it has";

/// The kind for GSN's `zeromq-sync`.
pub(crate) const SYNC_EXPORTER: ExporterKind = ExporterKind {
    name: "gsn-zeromq-sync",
    about: "delivers the elements of a stream to a zeromq-sync wrapper of a GSN 2 server",
    written: "the server has answered it",
    may_double: TWICE,
    check: |file| sync_settings(file).map(drop),
    open: |opening| {
        let settings = sync_settings(opening.file).map_err(in_words)?;
        let directory = Some(settings.directory);
        open(
            settings.endpoint,
            directory,
            settings.window,
            settings.patience_s,
            opening.drops,
        )
    },
    schema: || schemars::schema_for!(SyncSettings),
};

/// The kind for GSN's `zeromq-push`.
pub(crate) const PUSH_EXPORTER: ExporterKind = ExporterKind {
    name: "gsn-zeromq-push",
    about: "delivers the elements of a stream to a zeromq-push wrapper of a GSN 2 server",
    written: "the server has answered it",
    may_double: TWICE,
    check: |file| push_settings(file).map(drop),
    open: |opening| {
        let settings = push_settings(opening.file).map_err(in_words)?;
        open(
            settings.endpoint,
            None,
            settings.window,
            settings.patience_s,
            opening.drops,
        )
    },
    schema: || schemars::schema_for!(PushSettings),
};

/// The keys of an exporter of kind `gsn-zeromq-sync`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SyncSettings {
    /// Where the server's sensor listens, `tcp://HOST:PORT`: GSN's `local_address` and `local_port`.
    endpoint: String,
    /// Where the server asks for the structure, `tcp://HOST:PORT`: GSN's `meta_port`.
    directory: String,
    /// Maximum number of elements in flight without an answer. Default: 64.
    #[serde(default = "window_default")]
    #[schemars(range(min = 1, max = 1_024))]
    window: usize,
    /// Time limit for a connection, and for an answer, after which the exporter reconnects. Default: 30.
    #[serde(default = "patience_default")]
    #[schemars(range(min = 1, max = 3_600), extend("x-unit" = "seconds"))]
    patience_s: u64,
    /// Allow endpoints beyond this machine, without encryption. Default: false.
    #[serde(default)]
    insecure: bool,
}

/// The keys of an exporter of kind `gsn-zeromq-push`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PushSettings {
    /// Where the server's sensor listens, `tcp://HOST:PORT`: GSN's `local_address` and `local_port`.
    endpoint: String,
    /// Maximum number of elements in flight without an answer. Default: 64.
    #[serde(default = "window_default")]
    #[schemars(range(min = 1, max = 1_024))]
    window: usize,
    /// Time limit for a connection, and for an answer, after which the exporter reconnects. Default: 30.
    #[serde(default = "patience_default")]
    #[schemars(range(min = 1, max = 3_600), extend("x-unit" = "seconds"))]
    patience_s: u64,
    /// Allow endpoints beyond this machine, without encryption. Default: false.
    #[serde(default)]
    insecure: bool,
}

fn window_default() -> usize {
    64
}

fn patience_default() -> u64 {
    30
}

fn in_words(error: DescriptorError) -> WrapperError {
    WrapperError::settings(error.to_string())
}

fn sync_settings(file: &ExporterFile) -> Result<SyncSettings, DescriptorError> {
    let settings: SyncSettings = file.settings()?;
    check_endpoint(file, "directory", &settings.directory, settings.insecure)?;
    check_endpoint(file, "endpoint", &settings.endpoint, settings.insecure)?;
    check(file, settings.window, settings.patience_s)?;
    Ok(settings)
}

fn push_settings(file: &ExporterFile) -> Result<PushSettings, DescriptorError> {
    let settings: PushSettings = file.settings()?;
    check_endpoint(file, "endpoint", &settings.endpoint, settings.insecure)?;
    check(file, settings.window, settings.patience_s)?;
    Ok(settings)
}

fn check(file: &ExporterFile, window: usize, patience_s: u64) -> Result<(), DescriptorError> {
    if !matches!(&*file.keys.streams, [one] if !one.ends_with('*')) {
        let hint = "make a file for each sensor of the server".to_owned();
        let text = "a sensor of GSN takes exactly one stream".to_owned();
        return Err(file.fault("streams", text, Some(hint)));
    }
    if !(1..=1_024).contains(&window) {
        let text = format!("{window} is not within 1 to 1024");
        return Err(file.fault("window", text, None));
    }
    if !(1..=3_600).contains(&patience_s) {
        let text = format!("{patience_s} is not within 1 to 3600");
        return Err(file.fault("patience_s", text, None));
    }
    Ok(())
}

fn open(
    endpoint: String,
    directory: Option<String>,
    window: usize,
    patience_s: u64,
    drops: Drops,
) -> Result<Box<dyn Exporter>, WrapperError> {
    Ok(Box::new(Deliverer {
        endpoint,
        directory,
        window,
        patience: Duration::from_secs(patience_s),
        structures: Structures::default(),
        drops,
        running: None,
        connection: None,
    }))
}

struct Deliverer {
    endpoint: String,
    directory: Option<String>,
    window: usize,
    patience: Duration,
    structures: Structures,
    drops: Drops,
    running: Option<Directory>,
    /// Open between two batches; never with elements in flight.
    connection: Option<Connection>,
}

impl Exporter for Deliverer {
    fn write_time(&self) -> Duration {
        // To connect, and for the answers to what was sent last.
        2 * self.patience + TURN_TIME + Duration::from_secs(10)
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async {
            self.structures.learn(batch);
            if let (None, Some(directory)) = (&self.running, &self.directory) {
                let subscriber = Some(self.endpoint.clone());
                let structures = self.structures.clone();
                let drops = self.drops.clone();
                let started = Directory::start(directory, subscriber, structures, drops);
                self.running = Some(started.await?);
            }
            let (mut written, mut reached) = (Written::default(), Vec::new());
            let until = Instant::now() + TURN_TIME;
            for part in &batch.parts {
                let mut last = None;
                let delivered = self.deliver(part, until, &mut written, &mut last).await;
                reached.extend(last.map(|at| (part.stream.to_string(), at)));
                match delivered {
                    Ok(true) => {}
                    Ok(false) => return written.until(reached, None),
                    Err(error) => return written.until(reached, Some(error)),
                }
            }
            Ok(written)
        })
    }
}

impl Deliverer {
    /// Connects. The directory stays meanwhile: a sensor listens only once it knows its structure.
    async fn connect(&self) -> Result<Connection, WrapperError> {
        let until = Instant::now() + self.patience;
        loop {
            let dialed = Dealer::connect(&self.endpoint, Security::NullFrom2, limits()).await;
            match dialed {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() + REDIAL >= until => return Err(failed(&error)),
                Err(_) => tokio::time::sleep(REDIAL).await,
            }
        }
    }

    /// Delivers the elements of a part, and begins with none after `until`; false if some are left. Notes the last
    /// one that was answered. The connection is kept only if all that were sent were answered.
    async fn deliver(
        &mut self,
        part: &Part,
        until: Instant,
        written: &mut Written,
        answered: &mut Option<Position>,
    ) -> Result<bool, WrapperError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let mut machine = Delivery::new(self.window, self.patience);
        let mut flight = Flight::new(&mut machine, &mut connection);
        flight.input(Input::Receive(DeliveryArrival::Connected))?;
        // The positions of the elements without an answer, oldest first.
        let mut positions = std::collections::VecDeque::new();
        let mut elements = part.elements.iter();
        loop {
            let is_late = answered.is_some() && Instant::now() >= until;
            while positions.len() < self.window
                && !is_late
                && let Some(element) = elements.next()
            {
                match encode(element, part) {
                    Ok(frame) => {
                        positions.push_back(element.position);
                        flight.input(Input::Command(frame))?;
                    }
                    Err(reason) => written.refused.push(Refused {
                        stream: part.stream.to_string(),
                        position: element.position,
                        reason,
                    }),
                }
            }
            if positions.is_empty() {
                break;
            }
            flight.answer(&self.endpoint).await?;
            for occurrence in std::mem::take(&mut flight.occurred) {
                match (occurrence, positions.pop_front()) {
                    (DeliveryOccurrence::Accepted, position) => *answered = position,
                    (DeliveryOccurrence::Refused, Some(position)) => {
                        *answered = Some(position);
                        written.refused.push(Refused {
                            stream: part.stream.to_string(),
                            position,
                            reason: "the server refused it: older than its newest, sooner than its rate allows, or \
                                     dropped by its queries"
                                .to_owned(),
                        });
                    }
                    (other, _) => {
                        let what = match other {
                            DeliveryOccurrence::Late => "did not answer in time",
                            _ => "answered with something else than one byte of 0 or 1",
                        };
                        return Err(WrapperError::peer(format!("{} {what}", self.endpoint)));
                    }
                }
            }
        }
        self.connection = Some(connection);
        Ok(elements.next().is_none())
    }
}

fn encode(element: &chappe_stream::StreamElement, part: &Part) -> Result<Bytes, String> {
    let schema = &part.definition.schema;
    let gsn = mapping::to_gsn(element, schema).map_err(|error| error.to_string())?;
    let frame = encode_element(&gsn, Vec::new()).map_err(|error| error.to_string())?;
    Ok(frame.into())
}

/// The machine on a connection.
struct Flight<'a> {
    machine: &'a mut Delivery,
    connection: &'a mut Connection,
    clock: Clock,
    occurred: Vec<DeliveryOccurrence>,
}

impl<'a> Flight<'a> {
    fn new(machine: &'a mut Delivery, connection: &'a mut Connection) -> Self {
        Self {
            machine,
            connection,
            clock: Clock::process(),
            occurred: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<DeliveryArrival, Bytes>) -> Result<(), WrapperError> {
        let (connection, occurred) = (&mut self.connection, &mut self.occurred);
        let mut result = Ok(());
        drain(
            self.machine,
            self.clock.now(),
            input,
            |output| match output {
                Output::Transmit(DeliveryDispatch::Frame(frame)) => {
                    let mut message = Message::new(Bytes::new());
                    message.push(frame);
                    if let Err(error) = connection.feed(message) {
                        result = Err(failed(&error));
                    }
                }
                // The connection ends with the batch.
                Output::Transmit(DeliveryDispatch::Disconnect) => {}
                Output::Event(occurrence) => occurred.push(occurrence),
            },
        );
        result
    }

    /// Waits for the next answer, and takes those that have arrived with it.
    async fn answer(&mut self, endpoint: &str) -> Result<(), WrapperError> {
        let deadline = self.machine.deadline();
        let deadline = deadline.map_or_else(
            || tokio::time::Instant::now() + Duration::from_secs(3_600),
            |deadline| self.clock.at(deadline),
        );
        let message = match tokio::time::timeout_at(deadline, self.connection.recv()).await {
            Ok(message) => message.map_err(|error| failed(&error))?,
            Err(_) => return self.input(Input::Timeout),
        };
        let mut next = Some(message);
        while let Some(message) = next {
            let answer = body(message).ok_or_else(|| {
                WrapperError::peer(format!("{endpoint} answered without an empty frame"))
            })?;
            self.input(Input::Receive(DeliveryArrival::Answer(answer.into())))?;
            next = match self.connection.has_message() {
                true => Some(
                    self.connection
                        .recv()
                        .await
                        .map_err(|error| failed(&error))?,
                ),
                false => None,
            };
        }
        Ok(())
    }
}
