//! What the application may ask and is told.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::error::Error;
use crate::event::{Event, EventId};
use crate::membership::{Contact, Membership};
use crate::plan::Plan;
use crate::schedule::Cost;
use crate::window::Window;

/// What the application may ask.
#[derive(Debug, Clone)]
pub enum Command {
    /// Be the source of a topic. `boot` is larger than in any earlier life of this source, and stored
    /// by the caller at its durability level before this command.
    Publisher {
        /// The sinks; the topic is theirs.
        membership: Arc<Membership>,
        /// How often the source has started.
        boot: u32,
    },
    /// Be a sink of a topic. `window` is what was last stored of [`Event`](TreeEvent::Remember).
    Subscribe {
        /// The topic.
        topic: u64,
        /// Its source.
        source: Contact,
        /// What was seen before a restart.
        window: Window,
    },
    /// Be it no more.
    Leave {
        /// The topic.
        topic: u64,
    },
    /// A membership whose signature the caller has verified; `number` is this node's own, looked for
    /// when it is not given.
    Membership {
        /// The sinks.
        membership: Arc<Membership>,
        /// This node's number.
        number: Option<u32>,
    },
    /// Ask whether a sink is where it says, before it is listed; answered by [`TreeEvent::Proven`].
    Prove {
        /// A topic of which this node is the source, and which the sink has subscribed to.
        topic: u64,
        /// Who it says that it is.
        contact: Contact,
    },
    /// Spread an event.
    Publish {
        /// The topic.
        topic: u64,
        /// What is delivered: opaque.
        body: Vec<u8>,
        /// When it should be delivered at the latest, from now.
        deadline: Option<Duration>,
    },
    /// Spread an event without a body, which no application is given: the tree learns who is silent, the
    /// latency, and sinks see what they missed, before the next event has to bear it. Its outcome comes
    /// as that of an event. For before the first event of a membership, and for long pauses.
    Heartbeat {
        /// The topic.
        topic: u64,
    },
    /// A sink is suspected to be down, or no longer: it is not made a head.
    Suspect {
        /// The topic.
        topic: u64,
        /// The sink's number in the newest version.
        sink: u32,
        /// Whether it is suspected.
        suspected: bool,
    },
    /// What a send costs, as the caller measured it.
    SendCost(Duration),
}

/// What the application is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeEvent {
    /// The events seen of a source. Store it before asking for the next output, so that no event is
    /// delivered twice however often this node restarts. If it cannot be stored, call
    /// [`Tree::reject_window`](crate::Tree::reject_window): the event is then neither delivered nor
    /// acknowledged.
    Remember {
        /// The topic.
        topic: u64,
        /// What was seen.
        window: Window,
    },
    /// An event, verified, for the first time.
    Delivered {
        /// The event.
        event: Arc<Event>,
        /// Its age, as far as latencies are known.
        age: Duration,
        /// Whether it came after its deadline.
        late: bool,
    },
    /// Events that were missed and that nobody whom this node asked could send again. It asks no more; an
    /// event that comes all the same is delivered.
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
    /// Ranges of a version of the membership arrive, and this node does not have it: it delivers, but
    /// cannot help to spread.
    MembershipUnknown {
        /// The topic.
        topic: u64,
        /// The version.
        version: u32,
    },
    /// Somebody sent an event that the source did not sign.
    Forged {
        /// The topic.
        topic: u64,
        /// The sender's number; known for certain, since hops are authenticated.
        from: u32,
    },
    /// What [`Command::Prove`] found out: whether the holder of this key takes datagrams at this address.
    Proven {
        /// The topic.
        topic: u64,
        /// Who was asked.
        contact: Contact,
        /// Whether it answered.
        there: bool,
    },
    /// A published event has its number.
    Published(EventId),
    /// An event was not published; as [`TreeEvent::Published`], one for each [`Command::Publish`], in order.
    NotPublished {
        /// The topic.
        topic: u64,
        /// Why.
        error: Error,
    },
    /// What became of a published event.
    Outcome(Outcome),
    /// A command that could not be followed.
    Refused(Error),
}

/// What a source knows of an event in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The event.
    pub id: EventId,
    /// The version of the membership that the numbers of sinks are of.
    pub version: u32,
    /// How it was divided at first.
    pub plan: Plan,
    /// What the source took a send and the way to cost.
    pub cost: Cost,
    /// How many sinks there were.
    pub sinks: u32,
    /// Those that did not answer to `attempts` messages of the source itself, increasing. All that
    /// are neither here nor in `unknown` have it: their receipts were verified.
    pub failed: Vec<u32>,
    /// Those of which nothing is known: `within` was over first.
    pub unknown: Vec<u32>,
    /// How often the source tried: `k`.
    pub attempts: u8,
    /// How long it would have waited: `T`.
    pub within: Duration,
    /// How long it took until this was known.
    pub took: Duration,
    /// Coverage whose receipts were wrong: somebody on the way lies, or was deceived.
    pub lies: u32,
}

impl Outcome {
    /// Whether this sink has the event for certain.
    #[must_use]
    pub fn delivered(&self, sink: u32) -> bool {
        sink < self.sinks
            && self.failed.binary_search(&sink).is_err()
            && self.unknown.binary_search(&sink).is_err()
    }
}

/// Messages that were not used, by reason, and other counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Malformed datagrams.
    pub malformed: u64,
    /// Hop tags that are missing, wrong, or of a sender that is not known.
    pub unauthenticated: u64,
    /// Of topics that this node has no part in.
    pub not_subscribed: u64,
    /// Events seen before that are not kept any more.
    pub old: u64,
    /// Events that were neither delivered nor answered for, since what was seen could not be stored.
    pub not_stored: u64,
    /// Spread messages of events that are here already: other ranges, repetitions, replays. None is
    /// delivered again.
    pub duplicates: u64,
    /// Events that the source did not sign.
    pub forged: u64,
    /// Ranges that this node is not in, or that go beyond the list.
    pub misdirected: u64,
    /// Answers that nobody waits for.
    pub unasked: u64,
    /// Coverage whose receipts were wrong.
    pub lies: u64,
    /// Answered for itself only, because of too many parts of one event.
    pub overloaded: u64,
    /// Repairs refused because of too many.
    pub repairs_refused: u64,
    /// Events of senders that were caught or that no list names, not looked at because of too many.
    pub unverified: u64,
    /// Spread messages sent.
    pub spread: u64,
    /// Of those: again to the same sink.
    pub repeated: u64,
    /// Heads replaced because of silence.
    pub taken_over: u64,
    /// Events delivered.
    pub delivered: u64,
    /// Of those: after their deadline.
    pub late: u64,
}
