//! Commands of the application, and events for it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::error::Error;
use crate::event::{Event, EventId};
use crate::membership::{Contact, Membership};
use crate::plan::Plan;
use crate::schedule::Cost;
use crate::window::Window;

/// A command of the application.
#[derive(Debug, Clone)]
pub enum Command {
    /// Makes this node the source of a topic. `boot` is larger than in any earlier run of this source. The
    /// caller stores it at its durability level before this command.
    Publisher {
        /// The sinks, and their topic.
        membership: Arc<Membership>,
        /// The number of starts of the source.
        boot: u32,
    },
    /// Makes this node a sink of a topic. `window` is the last one stored for
    /// [`Remember`](TreeEvent::Remember).
    Subscribe {
        /// The topic.
        topic: u64,
        /// Its source.
        source: Contact,
        /// The events seen before a restart.
        window: Window,
    },
    /// Leaves a topic.
    Leave {
        /// The topic.
        topic: u64,
    },
    /// Sets a membership whose signature the caller has verified. `number` is this node's own, searched for
    /// if it is not given.
    Membership {
        /// The sinks.
        membership: Arc<Membership>,
        /// This node's number.
        number: Option<u32>,
    },
    /// Asks whether a sink is at its address, before it is listed; answered by [`TreeEvent::Proven`].
    Prove {
        /// A topic of which this node is the source, and which the sink has subscribed to.
        topic: u64,
        /// The claimed contact.
        contact: Contact,
    },
    /// Spreads an event.
    Publish {
        /// The topic.
        topic: u64,
        /// The opaque body.
        body: Vec<u8>,
        /// The time from now until it should be delivered.
        deadline: Option<Duration>,
    },
    /// Spreads an event without a body, which no application receives. The tree finds silent sinks and
    /// the latency, and sinks detect missed events, before the next event pays for it. Its outcome is
    /// reported like that of an event. Use it before the first event of a membership, and in long pauses.
    Heartbeat {
        /// The topic.
        topic: u64,
    },
    /// Marks a sink as suspected to be down, or clears the mark. A suspect does not become a head.
    Suspect {
        /// The topic.
        topic: u64,
        /// The sink's number in the newest version.
        sink: u32,
        /// Whether it is suspected.
        suspected: bool,
    },
    /// Sets the cost of a send, as the caller measured it.
    SendCost(Duration),
}

/// An event for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeEvent {
    /// The window of a source has changed. Store it before you poll the next output, so that no event is
    /// delivered twice across restarts. If it cannot be stored, call
    /// [`Tree::reject_window`](crate::Tree::reject_window): the event is then neither delivered nor
    /// acknowledged.
    Remember {
        /// The topic.
        topic: u64,
        /// The events seen.
        window: Window,
    },
    /// An event, verified, for the first time.
    Delivered {
        /// The event.
        event: Arc<Event>,
        /// Its age, as far as latencies are known.
        age: Duration,
        /// Whether its deadline had passed.
        late: bool,
    },
    /// No queried node could retransmit these missed events. They are not requested again; one that
    /// arrives later is still delivered.
    Missed {
        /// The topic.
        topic: u64,
        /// The source's boot.
        boot: u32,
        /// The first sequence number.
        first: u64,
        /// Bit `n`: `first + n` was missed.
        which: u64,
    },
    /// Ranges of an unknown version of the membership arrive. This node delivers their events, but cannot
    /// help to spread them.
    MembershipUnknown {
        /// The topic.
        topic: u64,
        /// The version.
        version: u32,
    },
    /// A node forwarded an event that the source did not sign.
    Forged {
        /// The topic.
        topic: u64,
        /// The sender's number, which the hop's authentication proves.
        from: u32,
    },
    /// The result of [`Command::Prove`]: whether the holder of this key receives datagrams at this address.
    Proven {
        /// The topic.
        topic: u64,
        /// The contact that was asked.
        contact: Contact,
        /// Whether it answered.
        is_reachable: bool,
    },
    /// A published event has a number.
    Published(EventId),
    /// An event was not published. Each [`Command::Publish`] gets this or [`TreeEvent::Published`], in order.
    NotPublished {
        /// The topic.
        topic: u64,
        /// The reason.
        error: Error,
    },
    /// The outcome of a published event.
    Outcome(Outcome),
    /// A command could not be followed.
    Refused(Error),
}

/// The final report of a source about an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The event.
    pub id: EventId,
    /// The version of the membership to which the numbers of sinks refer.
    pub version: u32,
    /// The plan of the first round.
    pub plan: Plan,
    /// The send cost and delay that the source assumed.
    pub cost: Cost,
    /// The number of sinks.
    pub sinks: u32,
    /// The sinks that did not answer `attempts` messages of the source itself, increasing. All sinks that
    /// are neither here nor in `unknown` have the event: their receipts were verified.
    pub failed: Vec<u32>,
    /// The sinks whose state is unknown: `within` had passed first.
    pub unknown: Vec<u32>,
    /// The messages of the source to each sink: `k`.
    pub attempts: u8,
    /// The time limit: `T`.
    pub within: Duration,
    /// The time until this outcome.
    pub took: Duration,
    /// Coverage with wrong receipts: a node on the path lies or was deceived.
    pub lies: u32,
}

impl Outcome {
    /// Whether this sink is known to have the event.
    #[must_use]
    pub fn delivered(&self, sink: u32) -> bool {
        sink < self.sinks
            && self.failed.binary_search(&sink).is_err()
            && self.unknown.binary_search(&sink).is_err()
    }
}

/// Counters of rejected messages, by reason, and of other events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Malformed datagrams.
    pub malformed: u64,
    /// Messages whose hop tag is missing, wrong, or of an unknown sender.
    pub unauthenticated: u64,
    /// Messages of topics to which this node does not belong.
    pub not_subscribed: u64,
    /// Messages of events that were seen but are no longer kept.
    pub old: u64,
    /// Events neither delivered nor acknowledged, since their window could not be stored.
    pub not_stored: u64,
    /// Spread messages of kept events: other ranges, repetitions, replays. None is delivered again.
    pub duplicates: u64,
    /// Events that the source did not sign.
    pub forged: u64,
    /// Ranges without this node, or beyond the end of the list.
    pub misdirected: u64,
    /// Answers that match no request.
    pub unasked: u64,
    /// Coverage with wrong receipts.
    pub lies: u64,
    /// Ranges answered for this node only, since one event had too many.
    pub overloaded: u64,
    /// Repairs refused by the rate limit.
    pub repairs_refused: u64,
    /// Events of unknown or distrusted senders refused by the rate limit, unverified.
    pub unverified: u64,
    /// Spread messages sent.
    pub spread: u64,
    /// Spread messages sent again to the same sink.
    pub repeated: u64,
    /// Silent heads replaced.
    pub taken_over: u64,
    /// Events delivered.
    pub delivered: u64,
    /// Events delivered after their deadline.
    pub late: u64,
}
