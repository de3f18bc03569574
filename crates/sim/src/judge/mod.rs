//! The judge of an exchange: what must be true of what was offered, accepted, stored and said.
//!
//! A run tells the judge everything as [`Event`]s in the order in which it happened; the judge says
//! what is wrong, at once where it can be seen at once, otherwise in [`Judge::finish`]. It knows the
//! promises and nothing of how they are kept: this module uses no other crate of the workspace, so
//! that a mistake of the product cannot be a mistake of its judge. The judge itself is tested by
//! histories that are wrong on purpose (`judge/tests.rs`) and by defects planted in the product.
//!
//! Judged:
//! 1. Every accepted element is at each subscriber in the end, once, in order; or it is lost for a
//!    reason that is true (trimmed or damaged at its origin, undone by an old state put back) and
//!    was said, where saying is promised, with exactly its numbers.
//!    What a loss of power tore out of the middle of a subscriber's last write, before it was safe, is
//!    named by its store alone, as a gap of its own numbers: it is asked for again, and when its origin
//!    has let go of it meanwhile, nobody says it a second time. No more may be missing in this way than
//!    the store has named, and nothing that the origin has.
//! 2. Nothing is acknowledged to an origin beyond what the subscriber keeps through a power loss, but for
//!    numbers that the origin itself has lost.
//! 3. Nothing is stored that was not offered.
//! 4. A number of an epoch stands for one content.
//! 5. After a restart everything accepted or stored is there, unless an old state was put back, the
//!    level of the stream allows its loss, or the bytes were damaged. No origin says that it let go of
//!    more than it was told to: damage is no trimming.
//! 6. A subscriber that is ahead of its origin hears of the rollback before anything else, and nobody
//!    hears of one that is not.
//! 7. What is damaged on one side and whole on the other is put back, with the same content, and stays.
//! 8. What the product counts as lost is what is missing: for each node the sum over the reasons, for
//!    each subscriber the numbers that it was told of.
//! 9. What is derived from an element in the same store is never there without it, unless the element
//!    was accepted or trimmed, and has gone since. Damage to what was not accepted is no excuse: a loss
//!    of power that takes it must take what is derived from it too.

mod model;
#[cfg(test)]
mod tests;

pub use model::Judge;

/// A place in a stream: epoch and number.
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
    /// The origin let go of them.
    Trimmed,
    /// Their bytes were damaged at the origin.
    Damaged,
}

/// What happened. Streams and subscribers are counted from 0; contents are numbers that are given
/// to one element each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The origin's store gave an element this place; it is not safe yet.
    Offered {
        /// The stream.
        stream: usize,
        /// The place.
        at: At,
        /// The element.
        content: u64,
    },
    /// The origin acknowledged the element to whoever gave it.
    Accepted {
        /// The stream.
        stream: usize,
        /// The place.
        at: At,
    },
    /// The origin's store was opened: it goes on in the last of these epochs, and has everything up
    /// to `last`.
    Began {
        /// The stream.
        stream: usize,
        /// The epochs that it remembers, oldest first, each with its first number.
        epochs: Vec<(u64, u64)>,
        /// The last number that is there.
        last: u64,
        /// What may be gone by what was done to the origin before.
        allows: Allows,
    },
    /// The origin's store, opened, holds a record that was derived in it from an element of the stream.
    Derived {
        /// The stream.
        stream: usize,
        /// The place of what it was derived from.
        at: At,
        /// The element that it was derived from.
        content: u64,
        /// Whether something is at that place.
        there: bool,
    },
    /// The origin let go of everything before a number.
    Trimmed {
        /// The stream.
        stream: usize,
        /// The first number that is kept.
        before: u64,
    },
    /// What the origin's store has begins with a number; what is before it counts as let go of.
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
        /// The place.
        at: At,
    },
    /// A subscriber that has nothing was granted the stream from here on, the oldest that the origin
    /// has; what is before is not promised.
    Granted {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The first number.
        from: u64,
    },
    /// A subscriber has given an element to its store; it is not safe yet.
    Storing {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The place at the origin.
        at: At,
    },
    /// A subscriber has stored an element, safe from a power loss.
    Stored {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The place at the origin.
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
        /// The place at the origin of its newest element.
        newest: Option<At>,
        /// The place up to which it has read the origin, as its store says: the newest element, or
        /// numbers behind it that it was told are lost.
        passed: Option<At>,
        /// What may be gone by what was done to the subscriber before.
        allows: Allows,
        /// After a loss of power: how many numbers of its own the store says are missing by a write
        /// that was torn before it was safe.
        torn: u64,
    },
    /// Bytes of an element at a subscriber were damaged.
    DamagedThere {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The place at the origin.
        at: At,
    },
    /// The origin heard that a subscriber has everything up to here.
    Acknowledged {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The place.
        at: At,
    },
    /// A subscriber was told that numbers are lost.
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
        /// Why.
        reason: Reason,
    },
    /// The origin has put back an element that was damaged, as a subscriber has it.
    PutBack {
        /// The stream.
        stream: usize,
        /// The place.
        at: At,
        /// The element.
        content: u64,
    },
    /// A subscriber has put back an element that was damaged, as the origin has it.
    PutBackThere {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
        /// The place at the origin.
        at: At,
        /// The element.
        content: u64,
    },
    /// A subscriber was told that its origin went back.
    RollbackSaid {
        /// The subscriber.
        subscriber: usize,
        /// The stream.
        stream: usize,
    },
    /// What the sessions of a subscriber have counted as lost, all together.
    LostTotal {
        /// The subscriber.
        subscriber: usize,
        /// How many numbers.
        count: u64,
    },
    /// In the end, before what is held is told: what the store of an origin counts.
    Counted {
        /// The stream.
        stream: usize,
        /// The counts.
        counts: Counts,
    },
    /// The same of a subscriber's store, by its own numbers.
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

/// What a store counts of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The first number that is kept: those before were let go of.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// Numbers that are missing in between.
    pub missing: u64,
    /// Numbers found to be missing since the store was opened, and then.
    pub corrupt: u64,
    /// Of these, numbers that were put back.
    pub filled: u64,
}

/// What may be gone when a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allows {
    /// Nothing.
    Nothing,
    /// An old state was put back, or the level of the stream does not promise more.
    Loss,
}

/// What is wrong, in words, with the values that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}
