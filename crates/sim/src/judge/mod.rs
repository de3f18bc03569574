//! The judge of an exchange: invariants of the elements offered, accepted, stored and reported.
//!
//! A run reports everything to the judge as [`Event`]s in the order in which it happened. The judge
//! reports violations, at once if they are visible at once, otherwise in [`Judge::finish`]. It
//! knows the promises and not how they are kept: this module uses no other crate of the workspace,
//! so a mistake of the product cannot be a mistake of its judge. The judge itself is tested by
//! histories that are wrong on purpose (`judge/tests.rs`) and by defects planted in the product.
//!
//! The invariants:
//! 1. In the end every accepted element is at each subscriber, once and in order; or it is lost for
//!    a true reason (trimmed or damaged at its origin, undone by a restored old state) and was
//!    reported, where a report is promised, with exactly its numbers. Elements that a power loss
//!    tore out of the middle of a subscriber's last write, before they were durable, are named only
//!    by its store, as a gap of its own numbers. They are requested again; if the origin has
//!    trimmed them meanwhile, they are not reported a second time. No more may be missing in this
//!    way than the store has named, and nothing that the origin has.
//! 2. Nothing is acknowledged to an origin beyond the data that the subscriber keeps through a
//!    power loss, except numbers that the origin itself has lost.
//! 3. Nothing is stored that was not offered.
//! 4. A number of an epoch has one content.
//! 5. After a restart everything accepted or stored exists, unless an old state was restored, the
//!    level of the stream allows its loss, or the bytes were damaged. No origin reports more as
//!    trimmed than it was asked to trim: damage is not trimming.
//! 6. A subscriber that is ahead of its origin is notified of the rollback before anything else,
//!    and no other subscriber is.
//! 7. Elements damaged on one side and undamaged on the other are restored, with the same content,
//!    and stay.
//! 8. The product's counts of losses are correct: for each node the sum over the reasons, for each
//!    subscriber the numbers reported to it.
//! 9. A record derived from an element in the same store never exists without it, unless the
//!    element was accepted or trimmed, and was lost since. Damage to elements that were not
//!    accepted is no excuse: a power loss that destroys them must destroy the records derived from
//!    them too.

mod model;
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

/// The reason why numbers are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The origin trimmed them.
    Trimmed,
    /// Their bytes were damaged at the origin.
    Damaged,
}

/// An event. Streams and subscribers are counted from 0; contents are numbers that are each used
/// for one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The origin's store assigned this position to an element; it is not durable yet.
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
        /// The last number that exists.
        last: u64,
        /// The losses allowed by previous faults at the origin.
        allows: Allows,
    },
    /// The reopened store of the origin holds a record that was derived in it from an element of
    /// the stream.
    Derived {
        /// The stream.
        stream: usize,
        /// The position of its input.
        at: At,
        /// The element that it was derived from.
        content: u64,
        /// Whether an element exists at that position.
        there: bool,
    },
    /// The origin trimmed everything before a number.
    Trimmed {
        /// The stream.
        stream: usize,
        /// The first number kept.
        before: u64,
    },
    /// The content of the origin's store starts with this number; earlier ones count as trimmed.
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
    /// A subscriber without elements was granted the stream from here, the oldest that the origin
    /// has; earlier elements are not promised.
    Granted {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The first number.
        from: u64,
    },
    /// A subscriber has passed an element to its store; it is not durable yet.
    Storing {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The position at the origin.
        at: At,
    },
    /// A subscriber has stored an element durably.
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
        /// The position of its newest element at the origin.
        newest: Option<At>,
        /// The position up to which it has read the origin, according to its store: the newest
        /// element, or later numbers that were reported lost.
        passed: Option<At>,
        /// The losses allowed by previous faults at the subscriber.
        allows: Allows,
        /// After a power loss: the number of its own numbers that the store reports missing because
        /// a write was torn before it was durable.
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
    /// The origin received an acknowledgement up to here.
    Acknowledged {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The position.
        at: At,
    },
    /// Numbers were reported lost to a subscriber.
    LostSaid {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The epoch.
        epoch: u64,
        /// The first lost number.
        from: u64,
        /// The first number after them.
        next: u64,
        /// The reason.
        reason: Reason,
    },
    /// The origin has restored a damaged element from a subscriber.
    PutBack {
        /// The stream.
        stream: usize,
        /// The position.
        at: At,
        /// The element.
        content: u64,
    },
    /// A subscriber has restored a damaged element from the origin.
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
    /// A subscriber was notified that its origin was rolled back.
    RollbackSaid {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
    },
    /// The total losses counted by the sessions of a subscriber.
    LostTotal {
        /// The subscriber.
        subscriber: usize,
        /// The number of elements.
        count: u64,
    },
    /// In the end, before the contents are reported: the counts of an origin's store.
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
    /// In the end: all elements of the stream at its origin.
    OriginHolds {
        /// The stream.
        stream: usize,
        /// Places and elements in the order of the store.
        elements: Vec<(At, u64)>,
    },
    /// In the end: all elements of the stream at a subscriber.
    SubscriberHolds {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// Places at the origin and elements, in the order of the subscriber's store.
        elements: Vec<(At, u64)>,
    },
}

/// A store's counts for a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The first number kept: earlier ones were trimmed.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// Numbers that are missing in between.
    pub missing: u64,
    /// Numbers found to be missing since the store was opened, and then.
    pub corrupt: u64,
    /// Of these, numbers that were restored.
    pub filled: u64,
}

/// The losses allowed when a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allows {
    /// Nothing.
    Nothing,
    /// An old state was restored, or the level of the stream does not promise more.
    Loss,
}

/// A description of the violation, with the values that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}
