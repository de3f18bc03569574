//! The wrappers of kinds `gsn-zeromq-sync` and `gsn-zeromq-push`: a socket to which GSN servers, or other programs,
//! deliver elements one by one, each answered after it is stored.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chappe_gsn::exchange::{
    Arrival, Dispatch, Many, Occurrence, Peer, Progress, Question, Reception, Registration, Verdict,
};
use chappe_machine::{Input, Machine as _, Output, drain};
use chappe_stream::DescriptorError;
use chappe_transport::zeromq::{
    Connection, ConnectionReceiver, ConnectionSender, Limits, Message, Request, Router, Security,
};
use chappe_transport::{Clock, Drops};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::directory::failed;
use super::{Target, body, check_endpoint, check_stream, limits};
use crate::clock::now;
use crate::{
    BATCH_BYTES_MAX, Batch, Condition, Delivery, Mark, Step, Wrapper, WrapperError, WrapperFile,
    WrapperKind, WrapperOpening,
};

/// Time for a peer to take one byte of answer, before it is disconnected: its queue holds many.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Time for an answer of the directory.
const PATIENCE: Duration = Duration::from_secs(5);
/// Frames that were received and not taken yet, over all connections; reason: then the peers wait.
const FRAMES_MAX: usize = 256;
/// Their bytes; one frame always fits.
const FRAME_BYTES_MAX: u32 = 16 << 20;
/// Connections of one address; for one more, the connection that sent nothing for longest ends.
const CONNECTIONS_PER_ADDRESS: usize = 32;
/// Time to send a frame that has begun.
const FRAME_TIME: Duration = Duration::from_secs(60);
/// Bytes of unfinished frames over all connections, above 64 KiB for each.
const UNFINISHED_BYTES_MAX: usize = 64 << 20;
/// How far ahead of this node's clock the time of an element may be to count as how far the server was read, in
/// milliseconds. Five minutes, as for the elements of other kinds: clocks that are set by hand.
const AHEAD_MS: i64 = 300_000;
/// Most elements of a batch.
const ELEMENTS_MAX: usize = 1_024;

/// The kind for GSN's synchronous delivery.
pub(crate) const SYNC_WRAPPER: WrapperKind = WrapperKind {
    name: "gsn-zeromq-sync",
    about: "a sensor of a GSN 2 server, whose elements are acknowledged once they are stored",
    delivery: Delivery {
        acknowledges: "after the element is stored, by one byte",
        resumes: "the time of the newest stored element, from which the server replays",
        may_double: "no: a replayed element is recognized, unless its time is more than five minutes ahead of this node's clock, or more than 64 elements have it",
        may_miss: "elements that the server has removed from its history during an outage; of equal elements in one millisecond, all but the first",
        back_pressure: "the server sends one element at a time",
    },
    check: |file| sync_settings(file).map(drop),
    open: |opening| {
        let settings = sync_settings(opening.file).map_err(in_words)?;
        let contact = settings.contact.as_ref();
        let registration = Registration {
            sensor: settings.sensor.clone(),
            endpoint: contact.unwrap_or(&settings.listen).clone(),
            start_ms: (settings.start == Start::First).then_some(0),
            silence: Duration::from_secs(settings.silence_s),
        };
        let target = Target::new(
            opening.file,
            settings.stream_name.as_deref(),
            &settings.sensor,
        );
        let directory = Some((settings.directory, registration));
        open(opening, settings.listen, target, directory)
    },
    schema: || schemars::schema_for!(SyncSettings),
    browse: None,
};

/// The kind for elements that are pushed.
pub(crate) const PUSH_WRAPPER: WrapperKind = WrapperKind {
    name: "gsn-zeromq-push",
    about: "elements pushed to a socket like that of GSN's zeromq-push",
    delivery: Delivery {
        acknowledges: "after the element is stored, by one byte",
        resumes: "what the sender repeats",
        may_double: "if an element is repeated later than 1,024 others",
        may_miss: "what the sender does not repeat; of equal elements in one millisecond, all but the first",
        back_pressure: "an answer comes after storage",
    },
    check: |file| push_settings(file).map(drop),
    open: |opening| {
        let settings = push_settings(opening.file).map_err(in_words)?;
        let target = Target::new(opening.file, None, "");
        open(opening, settings.listen, target, None)
    },
    schema: || schemars::schema_for!(PushSettings),
    browse: None,
};

/// The keys of a wrapper of kind `gsn-zeromq-sync`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SyncSettings {
    /// Where the server delivers to, `tcp://HOST:PORT`.
    listen: String,
    /// The address at which the server reaches the wrapper. Default: `listen`.
    contact: Option<String>,
    /// The server's directory, `tcp://HOST:PORT`; GSN's port is 22023.
    directory: String,
    /// The virtual sensor at the server.
    sensor: String,
    /// The name of the stream, if the file has no [[stream]]. Default: made from that of the sensor.
    stream_name: Option<String>,
    /// Where to start if nothing was stored yet. Default: first.
    #[serde(default)]
    start: Start,
    /// Silence after which this node registers again. It doubles up to an hour. Default: 30.
    #[serde(default = "silence_default")]
    #[schemars(range(min = 1, max = 3_600), extend("x-unit" = "seconds"))]
    silence_s: u64,
    /// Allow servers beyond this machine, without encryption. Default: false.
    #[serde(default)]
    insecure: bool,
}

/// Where a sensor starts that was never read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Start {
    /// At the oldest element that the server keeps.
    #[default]
    First,
    /// At the next element.
    New,
}

/// The keys of a wrapper of kind `gsn-zeromq-push`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PushSettings {
    /// Where elements are pushed to, `tcp://HOST:PORT`.
    listen: String,
    /// Allow an endpoint beyond this machine, without encryption: everybody who reaches it can push. Default: false.
    #[serde(default)]
    insecure: bool,
}

fn silence_default() -> u64 {
    30
}

fn in_words(error: DescriptorError) -> WrapperError {
    WrapperError::settings(error.to_string())
}

fn sync_settings(file: &WrapperFile) -> Result<SyncSettings, DescriptorError> {
    let settings: SyncSettings = file.settings()?;
    check_endpoint(file, "listen", &settings.listen, settings.insecure)?;
    check_endpoint(file, "directory", &settings.directory, settings.insecure)?;
    if let Some(contact) = &settings.contact {
        check_endpoint(file, "contact", contact, settings.insecure)?;
    }
    check_stream(file, settings.stream_name.as_deref(), false)?;
    if !(1..=3_600).contains(&settings.silence_s) {
        let text = format!("{} is not within 1 to 3600", settings.silence_s);
        return Err(file.fault("silence_s", text, None));
    }
    Ok(settings)
}

fn push_settings(file: &WrapperFile) -> Result<PushSettings, DescriptorError> {
    let settings: PushSettings = file.settings()?;
    check_endpoint(file, "listen", &settings.listen, settings.insecure)?;
    check_stream(file, None, true)?;
    Ok(settings)
}

fn open(
    opening: WrapperOpening<'_>,
    listen: String,
    target: Target,
    directory: Option<(String, Registration)>,
) -> Result<Box<dyn Wrapper>, WrapperError> {
    let marked = opening.mark.as_ref().map(Marked::read).transpose()?;
    let marked = marked.unwrap_or_default();
    let (directory, registration) = directory.unzip();
    let (arrived, arrivals) = mpsc::channel(FRAMES_MAX);
    let room = Arc::new(Semaphore::new(FRAME_BYTES_MAX as usize));
    let progress = marked.progress();
    Ok(Box::new(Receiver {
        machine: Reception::new(registration, progress.clone(), Clock::process().now()),
        clock: Clock::process(),
        listen,
        directory,
        target,
        router: None,
        senders: BTreeMap::new(),
        next_peer: 0,
        arrived: Arrived { arrived, room },
        arrivals,
        asking: None,
        dispatches: VecDeque::new(),
        occurrences: VecDeque::new(),
        progress,
        batches: VecDeque::new(),
        condition: opening.condition,
        drops: opening.drops,
    }))
}

/// What a mark holds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Marked {
    newest_ms: Option<i64>,
    same_time: Vec<u64>,
    /// The number of the last element, so that no two marks of a run are equal.
    pub(super) number: u64,
    /// How many elements have that time and the sum of their contents, if `same_time` has no room for them.
    count: u64,
    sum: u64,
}

impl Marked {
    pub(super) fn read(mark: &Mark) -> Result<Self, WrapperError> {
        // A mark of an earlier version has no count and no sum.
        let marked = postcard::from_bytes(&[mark.bytes(), &[0, 0]].concat());
        marked.map_err(|_| WrapperError::settings("the stored mark is of another kind of wrapper"))
    }

    pub(super) fn mark(progress: &Progress, number: u64) -> Result<Mark, WrapperError> {
        let marked = Self {
            newest_ms: progress.newest_ms,
            same_time: progress.same_time.clone(),
            number,
            count: progress.many.map_or(0, |many| many.count),
            sum: progress.many.map_or(0, |many| many.sum),
        };
        let bytes = postcard::to_allocvec(&marked).unwrap_or_default();
        Mark::new(bytes).map_err(|error| WrapperError::peer(error.to_string()))
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            newest_ms: self.newest_ms,
            same_time: self.same_time.clone(),
            many: (self.count > 0).then_some(Many {
                count: self.count,
                sum: self.sum,
            }),
        }
    }
}

/// What arrived, and its part of the bytes that may wait.
type Waiting = (Arrival, Option<OwnedSemaphorePermit>);

/// Where connections put what arrives.
#[derive(Clone)]
struct Arrived {
    arrived: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
}

impl Arrived {
    /// Waits for room; false if nobody takes anything any more.
    async fn put(&self, arrival: Arrival) -> bool {
        let bytes = match &arrival {
            Arrival::Frame { frame, .. } => u32::try_from(frame.len()).unwrap_or(u32::MAX),
            _ => 0,
        };
        let room = self.room.clone();
        let Ok(permit) = room.acquire_many_owned(bytes.min(FRAME_BYTES_MAX)).await else {
            return false;
        };
        self.arrived.send((arrival, Some(permit))).await.is_ok()
    }
}

struct Receiver {
    machine: Reception,
    clock: Clock,
    listen: String,
    directory: Option<String>,
    target: Target,
    router: Option<Router>,
    senders: BTreeMap<Peer, ConnectionSender>,
    next_peer: Peer,
    arrived: Arrived,
    arrivals: mpsc::Receiver<Waiting>,
    /// The question to the directory.
    asking: Option<JoinHandle<Arrival>>,
    dispatches: VecDeque<Dispatch>,
    /// Elements for the next batch.
    occurrences: VecDeque<Occurrence>,
    /// After the last element of the last batch.
    progress: Progress,
    /// The marks of batches that are not stored yet, each with the number of its last element.
    batches: VecDeque<(Mark, u64)>,
    condition: Condition,
    drops: Drops,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(asking) = &self.asking {
            asking.abort();
        }
    }
}

impl Wrapper for Receiver {
    fn repeats(&self) -> bool {
        true
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            if self.router.is_none() {
                let drops = self.drops.clone();
                let limits = Limits {
                    connections_per_address: CONNECTIONS_PER_ADDRESS,
                    displaces_idle: true,
                    message_time: Some(FRAME_TIME),
                    unfinished_bytes: Some(UNFINISHED_BYTES_MAX),
                    receive_bytes: 1 << 20,
                    ..limits()
                };
                let bound = Router::bind(&self.listen, Security::NullFrom2, limits, drops).await;
                self.router = Some(bound.map_err(|error| failed(&error))?);
            }
            loop {
                self.dispatch().await?;
                if let Some(batch) = self.batch()? {
                    return Ok(batch);
                }
                self.wait().await?;
            }
        })
    }

    fn stored<'a>(&'a mut self, mark: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        Box::pin(async move {
            if let Some(at) = self.batches.iter().position(|(known, _)| known == mark) {
                let number = self.batches.drain(..=at).next_back().map(|(_, it)| it);
                if let Some(number) = number {
                    self.input(Input::Command(Verdict::Stored(number)));
                }
            }
            self.dispatch().await
        })
    }
}

impl Receiver {
    fn input(&mut self, input: Input<Arrival, Verdict>) {
        let now = self.clock.now();
        let (dispatches, occurrences) = (&mut self.dispatches, &mut self.occurrences);
        drain(&mut self.machine, now, input, |output| match output {
            Output::Transmit(dispatch) => dispatches.push_back(dispatch),
            Output::Event(occurrence) => occurrences.push_back(occurrence),
        });
    }

    /// Does what the machine asked for. If it is cancelled, the rest follows at the next call.
    async fn dispatch(&mut self) -> Result<(), WrapperError> {
        while let Some(dispatch) = self.dispatches.front() {
            match dispatch {
                Dispatch::Ask(question) => {
                    let directory = self.directory.clone().unwrap_or_default();
                    let question = question.clone();
                    self.asking = Some(tokio::spawn(ask(directory, question)));
                }
                Dispatch::Answer(peer, byte) => {
                    if let Some(sender) = self.senders.get_mut(peer) {
                        let mut message = Message::new(Bytes::new());
                        message.push(vec![*byte]);
                        // A connection that has ended reports it. One that reads no answers holds up no other.
                        let sent = tokio::time::timeout(ANSWER_TIME, sender.send(message)).await;
                        if sent.is_err() {
                            self.senders.remove(peer);
                        }
                    }
                }
                Dispatch::Disconnect(peer) => drop(self.senders.remove(peer)),
            }
            self.dispatches.pop_front();
        }
        Ok(())
    }

    /// Waits for one thing to happen, and takes everything else that has happened.
    async fn wait(&mut self) -> Result<(), WrapperError> {
        let deadline = self.machine.deadline().map(|it| self.clock.at(it));
        let Some(router) = &mut self.router else {
            return Ok(());
        };
        let event = tokio::select! {
            arrival = self.arrivals.recv() => Event::Arrival(arrival),
            accepted = router.accept() => Event::Accepted(accepted.map(Box::new)),
            answer = answered(&mut self.asking) => Event::Answer(answer),
            () = until(deadline) => Event::Timeout,
        };
        match event {
            Event::Accepted(accepted) => self.accept(*accepted.map_err(|error| failed(&error))?),
            Event::Answer(arrival) => {
                self.asking = None;
                self.input(Input::Receive(arrival));
            }
            Event::Timeout => self.input(Input::Timeout),
            Event::Arrival(None) => return Err(WrapperError::peer("the socket has ended")),
            Event::Arrival(Some(first)) => {
                let (mut bytes, mut next) = (0, Some(first));
                while let Some((arrival, permit)) = next {
                    bytes += permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
                    self.arrive(arrival);
                    let has_room = self.occurrences.len() < ELEMENTS_MAX && bytes < BATCH_BYTES_MAX;
                    next = has_room.then(|| self.arrivals.try_recv().ok()).flatten();
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, connection: Connection) {
        self.next_peer += 1;
        let peer = self.next_peer;
        let (sender, receiver) = connection.split();
        self.senders.insert(peer, sender);
        tokio::spawn(read(peer, receiver, self.arrived.clone()));
        self.input(Input::Receive(Arrival::Connected(peer)));
    }

    fn arrive(&mut self, arrival: Arrival) {
        if let Arrival::Disconnected(peer) = &arrival {
            self.senders.remove(peer);
        }
        self.input(Input::Receive(arrival));
    }

    /// The elements that have arrived; `None` if there are none.
    fn batch(&mut self) -> Result<Option<Batch>, WrapperError> {
        let mut batch = Batch::default();
        let mut last = None;
        while let Some(occurrence) = self.occurrences.pop_front() {
            match occurrence {
                Occurrence::Element {
                    number,
                    progress,
                    element,
                } => {
                    self.progress = progress;
                    last = Some(number);
                    self.target.add(&element, &mut batch);
                }
                Occurrence::Undecodable {
                    number,
                    error,
                    frame,
                } => {
                    last = Some(number);
                    self.target
                        .add_undecodable(error.to_string(), &frame, &mut batch);
                }
                Occurrence::Structure(Some(fields)) => {
                    self.target.learn(fields)?;
                    self.condition.runs();
                }
                Occurrence::Structure(None) => {
                    self.condition.waits("the server has no such sensor");
                }
                Occurrence::BadStructure(error) => {
                    self.condition.waits(format!("the directory: {error}"));
                }
                Occurrence::Repeated => {}
            }
        }
        let Some(number) = last else {
            return Ok(None);
        };
        batch.mark = Marked::mark(&self.progress, number)?;
        self.batches.push_back((batch.mark.clone(), number));
        Ok(Some(batch))
    }
}

enum Event {
    Arrival(Option<Waiting>),
    Accepted(Result<Box<Connection>, chappe_transport::zeromq::Error>),
    Answer(Arrival),
    Timeout,
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn answered(asking: &mut Option<JoinHandle<Arrival>>) -> Arrival {
    match asking {
        Some(asking) => asking.await.unwrap_or(Arrival::NoAnswer),
        None => std::future::pending().await,
    }
}

async fn ask(directory: String, question: Question) -> Arrival {
    let asked = async {
        let mut request = Request::connect(&directory, Security::NullFrom2, limits()).await?;
        request
            .ask(Bytes::from(question.to_string()), PATIENCE)
            .await
    };
    match asked.await {
        Ok(answer) => Arrival::Answer(answer.last().to_vec()),
        Err(_) => Arrival::NoAnswer,
    }
}

/// Reads a connection until it ends.
async fn read(peer: Peer, mut receiver: ConnectionReceiver, arrived: Arrived) {
    while let Ok(message) = receiver.recv().await {
        let Some(frame) = body(message) else {
            break;
        };
        let arrival = Arrival::Frame {
            peer,
            frame,
            latest_ms: now().0 / 1_000_000 + AHEAD_MS,
        };
        if !arrived.put(arrival).await {
            return;
        }
    }
    let _ = arrived.put(Arrival::Disconnected(peer)).await;
}
