//! The receiving end of synchronous delivery: a REP socket to which GSN servers connect.
//!
//! A server sends one element, and waits for one byte: [`ACCEPTED`] or [`REFUSED`]. Here the byte follows the storage of
//! the element. With a [`Registration`] the machine asks the directory for delivery; without one the socket takes what
//! is pushed to it.
//!
//! # Registrations
//! A server that restarts has forgotten its registrations, and a registration that is repeated makes a second delivery
//! beside the first. A server has one thread for all deliveries, which waits for each answer without a limit: an element
//! whose receiver was killed before it answered stalls all deliveries of that server for good. Therefore:
//!
//! - after the start, when the last connection ends, and after a silence the machine registers again, with the time of
//!   the newest stored element: the server replays what comes after it;
//! - once the directory has answered, it refuses on every connection that existed before, without having been asked. A
//!   server that waits for the answer to an element takes it, ends that delivery, and goes on with the others;
//! - everything that such a connection sends later is refused, too: the new delivery has it.
//!
//! Any program that reaches the socket can send an element of any time. One that is further ahead than the owner allows is
//! an element like others, but does not move the progress: a registration after it would leave out everything in between.
//!
//! Elements of the same millisecond as the newest stored one are asked for again. They are recognized by their content,
//! and so are those that an earlier delivery brought while the directory was asked.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output};

use super::Question;
use crate::kryo::{DataField, GsnElement, KryoError, decode_element, decode_structure};

/// The answer to an element that was accepted.
pub const ACCEPTED: u8 = 0;
/// The answer to an element that was not: the server ends its delivery.
pub const REFUSED: u8 = 1;

/// Elements of one millisecond that are recognized one by one when they are replayed. A server stores one element for
/// each millisecond, unless its sensor is configured otherwise.
pub(crate) const SAME_TIME_MAX: usize = 64;
/// The latest elements that are recognized when another delivery brings them, too.
const RECENT_MAX: usize = 1_024;
/// Elements of one peer that are not answered yet. A GSN server has one; a sender that pipelines has a window.
const UNANSWERED_MAX: usize = 1_024;
/// Time for connections of earlier deliveries to come back before the first registration: servers retry every 100 ms.
const SETTLING: Duration = Duration::from_secs(1);
/// The first pause before a directory is asked again; it doubles up to the limit.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest silence before a registration is renewed: a renewal of a quiet sensor leaves a delivery at the server
/// until its next element.
const SILENCE_MAX: Duration = Duration::from_secs(3_600);

/// What to register for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The sensor.
    pub sensor: String,
    /// The endpoint of this end, as the server reaches it.
    pub endpoint: String,
    /// Where to start if nothing was stored yet, in milliseconds since 1970; `None` at the next element.
    pub start_ms: Option<i64>,
    /// Silence after which the registration is renewed. It doubles with each renewal up to an hour, until an element
    /// arrives.
    pub silence: Duration,
}

/// How far elements were stored: what is kept to continue after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The time of the newest element, in milliseconds since 1970; `None` before the first.
    pub newest_ms: Option<i64>,
    /// The elements of that time, by a number made from their content.
    pub same_time: Vec<u64>,
    /// Instead of those, if they are too many for a mark and one answer repeats them all.
    pub many: Option<Many>,
}

/// Elements of one millisecond, whatever their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Many {
    /// How many.
    pub count: u64,
    /// The sum of the numbers made from their content.
    pub sum: u64,
}

impl Many {
    pub(crate) fn add(&mut self, content: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(content);
    }
}

impl Progress {
    pub(crate) fn knows(&self, timed_ms: i64, content: u64) -> bool {
        self.newest_ms == Some(timed_ms) && self.same_time.contains(&content)
    }

    pub(crate) fn add(&mut self, timed_ms: i64, content: u64) {
        if self.newest_ms.is_some_and(|newest| newest > timed_ms) {
            return;
        }
        if self.newest_ms != Some(timed_ms) {
            self.newest_ms = Some(timed_ms);
            self.same_time.clear();
            self.many = None;
        }
        if self.same_time.len() >= SAME_TIME_MAX {
            self.same_time.remove(0);
        }
        self.same_time.push(content);
    }
}

/// A connection of a peer, numbered by the owner.
pub type Peer = u64;

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// A peer has connected.
    Connected(Peer),
    /// A peer has disconnected.
    Disconnected(Peer),
    /// A peer sent a frame.
    Frame {
        /// The peer.
        peer: Peer,
        /// The frame.
        frame: Vec<u8>,
        /// The latest time of an element that moves the progress, in milliseconds since 1970.
        latest_ms: i64,
    },
    /// The directory answered the last question.
    Answer(Vec<u8>),
    /// The directory did not answer.
    NoAnswer,
}

/// What the owner did with an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The elements up to this number are stored, or kept as undecodable.
    Stored(u64),
}

/// What is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dispatch {
    /// This question, to the directory.
    Ask(Question),
    /// This byte, to a peer.
    Answer(Peer, u8),
    /// The end of the connection of a peer.
    Disconnect(Peer),
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Occurrence {
    /// The directory answered: the sensor has this structure, or there is no such sensor.
    Structure(Option<Vec<DataField>>),
    /// An element arrived, with its number. It is answered after [`Verdict::Stored`].
    Element {
        /// Its number, increasing by one.
        number: u64,
        /// The progress once it is stored.
        progress: Progress,
        /// The element.
        element: GsnElement,
    },
    /// A frame cannot be decoded. It is answered after [`Verdict::Stored`], too, or the peer would stall.
    Undecodable {
        /// Its number, increasing by one.
        number: u64,
        /// The reason.
        error: KryoError,
        /// The frame.
        frame: Vec<u8>,
    },
    /// The answer of the directory cannot be decoded.
    BadStructure(KryoError),
    /// An element arrived that is stored already, or that another delivery brings.
    Repeated,
}

/// The receiving end of one socket.
pub struct Reception {
    registration: Option<Registration>,
    /// Stored, or on its way to storage.
    progress: Progress,
    /// The latest elements, by their content.
    recent: VecDeque<u64>,
    recent_set: HashSet<u64>,
    peers: BTreeMap<Peer, State>,
    last_number: u64,
    stored_number: u64,
    phase: Phase,
    pause: Duration,
    silence: Duration,
    outputs: VecDeque<Output<Dispatch, Occurrence>>,
}

#[derive(Default)]
struct State {
    /// It was connected when the directory was asked last.
    is_earlier: bool,
    /// It belongs to a delivery before the last registration.
    is_condemned: bool,
    /// Frames without an answer, oldest first: a number to be stored, or an answer that waits for those before it.
    unanswered: VecDeque<Unanswered>,
}

enum Unanswered {
    Stored(u64),
    Now(u8),
}

/// The registration.
enum Phase {
    /// Nothing to register for.
    None,
    /// The next registration is due then.
    Due(Instant),
    /// The directory was asked.
    Asking,
    /// Renewed then, unless something arrives.
    Registered(Instant),
}

impl Reception {
    /// Continues from `progress` at `now`. The first registration follows in a second.
    #[must_use]
    pub fn new(registration: Option<Registration>, progress: Progress, now: Instant) -> Self {
        let silence = registration.as_ref().map_or(SILENCE_MAX, |it| it.silence);
        Self {
            phase: match registration {
                Some(_) => Phase::Due(now + SETTLING),
                None => Phase::None,
            },
            registration,
            progress,
            recent: VecDeque::new(),
            recent_set: HashSet::new(),
            peers: BTreeMap::new(),
            last_number: 0,
            stored_number: 0,
            pause: PAUSE_MIN,
            silence,
            outputs: VecDeque::new(),
        }
    }

    /// The number of connected peers.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    fn send(&mut self, dispatch: Dispatch) {
        self.outputs.push_back(Output::Transmit(dispatch));
    }

    fn occur(&mut self, occurrence: Occurrence) {
        self.outputs.push_back(Output::Event(occurrence));
    }

    /// Whether an element waits for storage: then the server waits for this end.
    fn is_storing(&self) -> bool {
        self.stored_number < self.last_number
    }

    fn register(&mut self, now: Instant) {
        let Some(registration) = &self.registration else {
            return;
        };
        if self.is_storing() {
            self.phase = Phase::Due(now + PAUSE_MIN);
            return;
        }
        // One millisecond earlier: other elements of the newest one's may be missing.
        let newest_ms = self
            .progress
            .newest_ms
            .map(|newest| newest.saturating_sub(1));
        let question = Question::Deliver {
            name: registration.sensor.to_lowercase(),
            endpoint: registration.endpoint.clone(),
            start_ms: newest_ms.or(registration.start_ms),
        };
        for state in self.peers.values_mut() {
            state.is_earlier = true;
        }
        self.phase = Phase::Asking;
        self.send(Dispatch::Ask(question));
    }

    /// Ends the deliveries before the registration.
    fn condemn(&mut self) {
        let earlier = self.peers.iter_mut();
        for (peer, state) in earlier.filter(|(_, state)| state.is_earlier && !state.is_condemned) {
            state.is_condemned = true;
            // One that waits for storage is answered then.
            if state.unanswered.is_empty() {
                let refusal = Dispatch::Answer(*peer, REFUSED);
                self.outputs.push_back(Output::Transmit(refusal));
            }
        }
    }

    fn retry(&mut self, now: Instant) {
        self.phase = Phase::Due(now + self.pause);
        self.pause = (2 * self.pause).min(PAUSE_MAX);
    }

    fn on_answer(&mut self, now: Instant, answer: &[u8]) {
        if !matches!(self.phase, Phase::Asking) {
            return;
        }
        match decode_structure(answer) {
            Ok(structure) => {
                match structure {
                    Some(_) => {
                        self.pause = PAUSE_MIN;
                        self.phase = Phase::Registered(now + self.silence);
                        self.silence = (2 * self.silence).min(SILENCE_MAX);
                        self.condemn();
                    }
                    None => self.retry(now),
                }
                self.occur(Occurrence::Structure(structure));
            }
            Err(error) => {
                self.retry(now);
                self.occur(Occurrence::BadStructure(error));
            }
        }
    }

    fn on_frame(&mut self, now: Instant, peer: Peer, frame: Vec<u8>, latest_ms: i64) {
        if let (Phase::Registered(_), Some(registration)) = (&self.phase, &self.registration) {
            self.silence = registration.silence;
            self.phase = Phase::Registered(now + self.silence);
        }
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        if state.unanswered.len() >= UNANSWERED_MAX {
            return self.send(Dispatch::Disconnect(peer));
        }
        if state.is_condemned {
            state.unanswered.push_back(Unanswered::Now(REFUSED));
            self.occur(Occurrence::Repeated);
            return self.answer(peer);
        }
        let decoded = decode_element(&frame);
        let content = decoded.is_ok().then(|| content(&frame));
        match (decoded, content) {
            (Ok(element), Some(content))
                if self.progress.knows(element.timed_ms, content)
                    || self.recent_set.contains(&content) =>
            {
                state.unanswered.push_back(Unanswered::Now(ACCEPTED));
                self.occur(Occurrence::Repeated);
                self.answer(peer);
            }
            (Ok(element), content) => {
                self.last_number += 1;
                let number = self.last_number;
                state.unanswered.push_back(Unanswered::Stored(number));
                let content = content.unwrap_or_default();
                if element.timed_ms <= latest_ms {
                    self.progress.add(element.timed_ms, content);
                }
                self.remember(content);
                let progress = self.progress.clone();
                self.occur(Occurrence::Element {
                    number,
                    progress,
                    element,
                });
            }
            (Err(error), _) => {
                self.last_number += 1;
                let number = self.last_number;
                state.unanswered.push_back(Unanswered::Stored(number));
                self.occur(Occurrence::Undecodable {
                    number,
                    error,
                    frame,
                });
            }
        }
    }

    fn remember(&mut self, content: u64) {
        if self.recent.len() >= RECENT_MAX
            && let Some(oldest) = self.recent.pop_front()
        {
            self.recent_set.remove(&oldest);
        }
        self.recent.push_back(content);
        self.recent_set.insert(content);
    }

    /// Answers the oldest frames of a peer, as far as they may be.
    fn answer(&mut self, peer: Peer) {
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        while let Some(oldest) = state.unanswered.front() {
            let byte = match oldest {
                Unanswered::Stored(number) if *number > self.stored_number => break,
                Unanswered::Stored(_) => ACCEPTED,
                Unanswered::Now(byte) => *byte,
            };
            state.unanswered.pop_front();
            self.outputs
                .push_back(Output::Transmit(Dispatch::Answer(peer, byte)));
        }
    }

    fn on_disconnected(&mut self, now: Instant, peer: Peer) {
        self.peers.remove(&peer);
        let is_alive = self.peers.values().any(|state| !state.is_condemned);
        if !is_alive && matches!(self.phase, Phase::Registered(_)) {
            self.retry(now);
        }
    }
}

/// A number made from the content of a frame.
pub(crate) fn content(frame: &[u8]) -> u64 {
    // With the same keys always: the number is kept.
    let mut hasher = DefaultHasher::new();
    frame.hash(&mut hasher);
    hasher.finish()
}

impl Machine for Reception {
    type Receive = Arrival;
    type Command = Verdict;
    type Transmit = Dispatch;
    type Event = Occurrence;

    fn handle_input(&mut self, now: Instant, input: Input<Arrival, Verdict>) {
        match input {
            Input::Receive(Arrival::Connected(peer)) => {
                self.peers.insert(peer, State::default());
            }
            Input::Receive(Arrival::Disconnected(peer)) => self.on_disconnected(now, peer),
            Input::Receive(Arrival::Frame {
                peer,
                frame,
                latest_ms,
            }) => self.on_frame(now, peer, frame, latest_ms),
            Input::Receive(Arrival::Answer(answer)) => self.on_answer(now, &answer),
            Input::Receive(Arrival::NoAnswer) => {
                if matches!(self.phase, Phase::Asking) {
                    self.retry(now);
                }
            }
            Input::Command(Verdict::Stored(number)) => {
                self.stored_number = self.stored_number.max(number.min(self.last_number));
                let peers: Vec<Peer> = self.peers.keys().copied().collect();
                for peer in peers {
                    self.answer(peer);
                }
            }
            Input::Timeout => {
                if self.deadline().is_some_and(|deadline| deadline <= now) {
                    self.register(now);
                }
            }
        }
    }

    fn poll_output(&mut self) -> Option<Output<Dispatch, Occurrence>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::None | Phase::Asking => None,
            Phase::Due(at) | Phase::Registered(at) => Some(at),
        }
    }
}
