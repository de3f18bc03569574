//! The faults of the matrix, and the count of each.

use std::fmt;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A process dies (SIGKILL) and is started again.
    Kill,
    /// A node loses its power; unsynced data is there, or not, or in part.
    PowerLoss,
    /// The power fails during a write, a sync or a change of names.
    TornWrite,
    /// A sync fails; the process is restarted.
    FailedSync,
    /// A disk is full for a while.
    DiskFull,
    /// Bits rot at an origin or a subscriber: of elements, of headers and marks, of index snapshots.
    BitRot,
    /// Nodes do not reach each other for a while.
    Partition,
    /// A link comes and goes.
    Flapping,
    /// One direction of a link loses messages, all or some.
    AsymmetricLoss,
    /// A node is slow in everything.
    SlowPeer,
    /// A node stops (SIGSTOP), then continues.
    StandStill,
    /// A connection breaks off.
    Reset,
    /// A wall clock jumps by a second to ten years, either way.
    ClockStep,
    /// An old copy of a node's data is restored.
    OldState,
    /// A peer supports another version of the protocol for a while.
    VersionSkew,
    /// A disk takes seconds for a commit.
    SlowDisk,
    /// The log's queue is full, or nearly, and accepts nothing for a while.
    QueueFull,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 17] = [
        Fault::Kill,
        Fault::PowerLoss,
        Fault::TornWrite,
        Fault::FailedSync,
        Fault::DiskFull,
        Fault::BitRot,
        Fault::Partition,
        Fault::Flapping,
        Fault::AsymmetricLoss,
        Fault::SlowPeer,
        Fault::StandStill,
        Fault::Reset,
        Fault::ClockStep,
        Fault::OldState,
        Fault::VersionSkew,
        Fault::SlowDisk,
        Fault::QueueFull,
    ];

    /// The name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::PowerLoss => "power-loss",
            Fault::TornWrite => "torn-write",
            Fault::FailedSync => "failed-sync",
            Fault::DiskFull => "disk-full",
            Fault::BitRot => "bit-rot",
            Fault::Partition => "partition",
            Fault::Flapping => "flapping",
            Fault::AsymmetricLoss => "asymmetric-loss",
            Fault::SlowPeer => "slow-peer",
            Fault::StandStill => "stand-still",
            Fault::Reset => "reset",
            Fault::ClockStep => "clock-step",
            Fault::OldState => "old-state",
            Fault::VersionSkew => "version-skew",
            Fault::SlowDisk => "slow-disk",
            Fault::QueueFull => "queue-full",
        }
    }

    /// How often something happened that only this fault causes, or that shows its effect.
    #[must_use]
    pub fn shown(self, by: &Sometimes) -> u64 {
        match self {
            Fault::Kill => by.killed,
            Fault::PowerLoss => by.power_lost,
            Fault::TornWrite => by.torn,
            Fault::FailedSync => by.sync_failed,
            Fault::DiskFull => by.disk_full,
            Fault::BitRot => by.rotted + by.rotted_there + by.rotted_marks + by.rotted_index,
            Fault::Partition => by.stalled,
            Fault::Flapping => by.flapped,
            Fault::AsymmetricLoss => by.one_way,
            Fault::SlowPeer => by.slowed,
            Fault::StandStill => by.stood_still,
            Fault::Reset => by.reset,
            Fault::ClockStep => by.clock_stepped,
            Fault::OldState => by.old_origin + by.old_subscriber,
            Fault::VersionSkew => by.version_refused + by.version_negotiated,
            Fault::SlowDisk => by.slow_disk,
            Fault::QueueFull => by.queue_filled,
        }
    }

    /// The fault of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! sometimes {
    ($($(#[doc = $doc:literal])* $name:ident: $text:literal,)*) => {
        /// Events that every series must contain: how often each happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Sometimes {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Sometimes {
            /// Each with its name.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$(($text, self.$name),)*]
            }

            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Sometimes) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

sometimes! {
    /// A process died.
    killed: "killed",
    /// A node lost its power while it had something unsynced.
    power_lost: "power lost",
    /// The power failed within an operation.
    torn: "power lost within a write",
    /// A sync failed.
    sync_failed: "sync failed",
    /// A commit found no room.
    disk_full: "disk full",
    /// Records were refused for lack of room.
    refused_full: "refused for lack of room",
    /// Bytes rotted at an origin.
    rotted: "bytes rotted at an origin",
    /// Bytes rotted at a subscriber.
    rotted_there: "bytes rotted at a subscriber",
    /// A bit of a segment's header, a definition or another mark rotted.
    rotted_marks: "marks rotted",
    /// A bit of an index snapshot rotted.
    rotted_index: "index snapshots rotted",
    /// Damaged elements were repaired at an origin.
    put_back: "damaged elements repaired at an origin",
    /// Damaged elements were repaired at a subscriber.
    put_back_there: "damaged elements repaired at a subscriber",
    /// Damaged elements were written again from memory.
    from_memory: "damaged elements written again from memory",
    /// A connection was stalled by a partition, a flap or a cut.
    stalled: "connection held back by a cut",
    /// A link flapped.
    flapped: "link flapped",
    /// One direction lost messages while the other did not.
    one_way: "one direction lost",
    /// A node was slow.
    slowed: "node slow",
    /// A node stopped.
    stood_still: "node stopped",
    /// A connection was reset.
    reset: "connection reset",
    /// A clock jumped.
    clock_stepped: "clock stepped",
    /// An old state was restored at an origin, and noticed by its log.
    old_origin: "old state at an origin",
    /// An old state was restored at a subscriber, and noticed by its log.
    old_subscriber: "old state at a subscriber",
    /// Two versions of the protocol did not match.
    version_refused: "versions did not fit",
    /// Two versions of the protocol differed and matched.
    version_negotiated: "versions negotiated",
    /// A disk was slow.
    slow_disk: "disk slow",
    /// A log's queue was filled.
    queue_filled: "log's queue filled",
    /// An origin's log had no room for new elements.
    not_accepted: "no room for new elements",
    /// A subscriber's log had no room for elements.
    records_waited: "elements waited for room",
    /// A subscriber's log had no room for the end of a lost range.
    lost_waited: "lost numbers waited for room",
    /// A subscriber's log had no room for the position after a rollback.
    rollback_waited: "rollback waited for room",
    /// A subscriber's log had no room for a schema.
    schema_waited: "schema waited for room",
    /// A log had no room for repaired records.
    repair_refused: "no room for repaired records",
    /// Sessions that resumed where an earlier one ended.
    resumed: "session resumed after an element",
    /// A peer was given up after silence.
    silent: "silent peer given up",
    /// An origin began a new epoch.
    new_epoch: "new epoch",
    /// A torn tail was cut off.
    torn_tail: "torn tail cut",
    /// Derived records found in the store of their inputs.
    derived: "derived record found",
    /// Records dropped because their inputs may be lost.
    derived_dropped: "derived record dropped",
    /// A rollback was reported to a subscriber.
    rollback: "rollback reported",
    /// Numbers were reported as lost because they were trimmed.
    lost_trimmed: "numbers lost by trimming",
    /// Numbers were reported as lost because they were damaged.
    lost_damaged: "numbers lost by damage",
    /// A channel had records and no room.
    stalls: "channel without credit",
}
