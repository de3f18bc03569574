//! The judge of an exchange: the promises about offered, accepted, stored and reported elements.
//!
//! A run reports everything as [`Event`]s in the order in which it happened. The judge reports
//! violations, immediately where possible, otherwise in [`Judge::finish`]. It knows the promises
//! but not their implementation: this module uses no other crate of the workspace, so that a
//! mistake of the product cannot be a mistake of its judge. The judge itself is tested by invalid
//! histories (`judge/tests.rs`) and by defects planted in the product.
//!
//! Judged:
//! 1. In the end every accepted element is at each subscriber, once, in order; or it is lost for
//!    a true reason (trimmed or damaged at its origin, undone by a restored old state) that was
//!    reported, where reports are promised, with exactly its numbers. Numbers that a power loss
//!    tore out of a subscriber's last write, before they were safe, are reported by its store
//!    alone, as a gap of its own numbers: they are requested again, and if the origin has trimmed
//!    them meanwhile, there is no second report. No more may be missing in this way than the store
//!    has reported, and nothing that the origin has.
//! 2. Nothing is acknowledged to an origin beyond the elements that the subscriber keeps through
//!    a power loss, except numbers that the origin itself has lost.
//! 3. Nothing is stored that was not offered.
//! 4. A number of an epoch has one content.
//! 5. After a restart everything accepted or stored is there, unless an old state was restored,
//!    the level of the stream allows its loss, or the bytes were damaged. No origin reports more as
//!    trimmed than it was asked to trim: damage is not trimming.
//! 6. A subscriber that is ahead of its origin receives the rollback before anything else, and
//!    no other subscriber receives one.
//! 7. Elements damaged on one side and intact on the other are repaired, with the same content,
//!    and stay.
//! 8. The product counts as lost exactly what is missing: for each node the sum over the
//!    reasons, for each subscriber the numbers reported to it.
//! 9. A record derived in the same store never exists without its input, unless the input was
//!    accepted or trimmed, and removed since. Damage to an input that was not accepted is no
//!    excuse: a power loss that takes it must take the derived record too.

mod copy;
mod end;
mod model;
mod stream;
#[cfg(test)]
mod tests;

pub use model::Judge;

/// A position in a stream: epoch and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The epoch.
    pub epoch: u64,
    /// The number.
    pub number: u64,
}

/// Why numbers are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The origin trimmed them.
    Trimmed,
    /// Their bytes were damaged at the origin.
    Damaged,
}

/// An event of a run. Streams and subscribers are counted from 0; a content is a number unique to
/// one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The origin's store assigned an element this position; it is not safe yet.
    Offered {
        /// The stream.
        stream: usize,
        /// The position.
        at: At,
        /// The element.
        content: u64,
    },
    /// The origin acknowledged the element to its producer.
    Accepted {
        /// The stream.
        stream: usize,
        /// The position.
        at: At,
    },
    /// The origin's store was opened: it continues in the last of these epochs, and has everything
    /// up to `last`.
    Began {
        /// The stream.
        stream: usize,
        /// The epochs that it remembers, oldest first, each with its first number.
        epochs: Vec<(u64, u64)>,
        /// The last number in the store.
        last: u64,
        /// What may be lost because of earlier faults of the origin.
        allows: Allows,
    },
    /// The origin's opened store holds a record that was derived in it from an element of the
    /// stream.
    Derived {
        /// The stream.
        stream: usize,
        /// The position of the input.
        at: At,
        /// The content of the input.
        content: u64,
        /// Whether the position has an element.
        there: bool,
    },
    /// The origin trimmed everything before a number.
    Trimmed {
        /// The stream.
        stream: usize,
        /// The first number that is kept.
        before: u64,
    },
    /// The origin's store starts at a number; everything before it counts as trimmed.
    Keeps {
        /// The stream.
        stream: usize,
        /// The first number.
        first: u64,
    },
    /// Bytes of an element at the origin were damaged.
    Damaged {
        /// The stream.
        stream: usize,
        /// The position.
        at: At,
    },
    /// A subscriber without elements was granted the stream from here on, the oldest that the
    /// origin has; nothing before is promised.
    Granted {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The first number.
        from: u64,
    },
    /// A subscriber has passed an element to its store; it is not safe yet.
    Storing {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The position at the origin.
        at: At,
    },
    /// A subscriber has stored an element, safe from power loss.
    Stored {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The position at the origin.
        at: At,
        /// The element.
        content: u64,
    },
    /// A subscriber's store was opened; its newest element of the stream is this.
    Reopened {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The position at the origin of its newest element.
        newest: Option<At>,
        /// The position up to which it has read the origin, according to its store: the newest
        /// element, or lost numbers after it.
        passed: Option<At>,
        /// What may be lost because of earlier faults of the subscriber.
        allows: Allows,
        /// After a power loss: how many of its own numbers the store reports as missing because a
        /// write was torn before it was safe.
        torn: u64,
    },
    /// Bytes of an element at a subscriber were damaged.
    DamagedThere {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The position at the origin.
        at: At,
    },
    /// The origin received an acknowledgement of everything up to here.
    Acknowledged {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The position.
        at: At,
    },
    /// Lost numbers were reported to a subscriber.
    LossReported {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The epoch.
        epoch: u64,
        /// The first lost number.
        from: u64,
        /// The number after the last lost one.
        next: u64,
        /// The reason.
        reason: Reason,
    },
    /// The origin has repaired a damaged element from a subscriber's copy.
    PutBack {
        /// The stream.
        stream: usize,
        /// The position.
        at: At,
        /// The element.
        content: u64,
    },
    /// A subscriber has repaired a damaged element from the origin.
    PutBackThere {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The position at the origin.
        at: At,
        /// The element.
        content: u64,
    },
    /// A rollback of the origin was reported to a subscriber.
    RollbackReported {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
    },
    /// The losses counted by all sessions of a subscriber together.
    LostTotal {
        /// The subscriber.
        subscriber: usize,
        /// The count.
        count: u64,
    },
    /// At the end, before the stores' contents: the counts of an origin's store.
    Counted {
        /// The stream.
        stream: usize,
        /// The counts.
        counts: Counts,
    },
    /// The same for a subscriber's store, by its own numbers.
    CountedThere {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The counts.
        counts: Counts,
    },
    /// At the end: all elements of the stream at its origin.
    OriginHolds {
        /// The stream.
        stream: usize,
        /// Positions and elements in the order of the store.
        elements: Vec<(At, u64)>,
    },
    /// At the end: all elements of the stream at a subscriber.
    SubscriberHolds {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// Positions at the origin and elements, in the order of the subscriber's store.
        elements: Vec<(At, u64)>,
    },
}

/// A store's counts of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The first number that is kept: earlier ones were trimmed.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// Missing numbers in between.
    pub missing: u64,
    /// Numbers found to be missing when the store was opened, and since.
    pub corrupt: u64,
    /// Of these, numbers that were repaired.
    pub filled: u64,
}

/// What may be lost when a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allows {
    /// Nothing.
    Nothing,
    /// Anything: an old state was restored, or the level of the stream promises no more.
    Loss,
}

/// A violation, described with the relevant values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

fn wrong<T>(what: String) -> Result<T, Violation> {
    Err(Violation(what))
}
