//! The commands and events of a node, and the types that they consist of.

use std::net::SocketAddr;

use chappe_identity::PublicKey;

use crate::{Contact, Key, Record};

/// A UDP packet and the address of the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The source of a received packet, the destination of one to send.
    pub address: SocketAddr,
    /// Its payload; [`PACKET_BYTES_MAX`](crate::PACKET_BYTES_MAX) at most.
    pub bytes: Vec<u8>,
}

/// A node through which the network can be entered: from the configuration, from multicast discovery,
/// or one of the last known contacts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entrance {
    /// Its address.
    pub address: SocketAddr,
    /// Its public key; `None` when only the address is known.
    pub public: Option<PublicKey>,
}

/// The identifier of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LookupId(pub u32);

/// The identifier of a search.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SearchId(pub u32);

/// A command of the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// The time of day, in seconds since 1970 (UTC), sent at the start and whenever the clock is set.
    /// Without it nothing is checked against the time of day.
    TimeOfDay {
        /// The time.
        unix_s: u64,
    },
    /// Enter the network here. May be repeated; the last 64 entrances are kept. They are tried again when
    /// no contact is left, and from time to time to find other parts of a partitioned network.
    Enter(Vec<Entrance>),
    /// Find the nodes nearest to a position.
    Lookup {
        /// The identifier of the lookup, chosen by the application.
        lookup: LookupId,
        /// The position.
        target: Key,
    },
    /// Publish a value under some keys, and renew it until it is withdrawn. Replaces what the slot
    /// held.
    Publish {
        /// The publication, among those of this node.
        slot: u16,
        /// The keys by which it is found.
        keys: Vec<Key>,
        /// The value; [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX) at most.
        value: Vec<u8>,
    },
    /// End a publication: its records are replaced by ones that expire after a second.
    Withdraw {
        /// The publication.
        slot: u16,
    },
    /// Find records.
    Search {
        /// The identifier of the search, chosen by the application.
        search: SearchId,
        /// The key.
        key: Key,
        /// Total bytes of answers that may arrive until more is granted.
        credit: u64,
    },
    /// More bytes of answers may arrive.
    Grant {
        /// The search.
        search: SearchId,
        /// The additional bytes.
        credit: u64,
    },
    /// End a search.
    Stop {
        /// The search.
        search: SearchId,
    },
    /// Ping a node: it enters the table, and both receive address tokens.
    Ping(Contact),
    /// Emit [`Event::Reported`] with the state of the node.
    Report,
}

/// The outcome of storing one key of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Published {
    /// Nodes that stored the record.
    pub kept: u32,
    /// Nodes that have a newer one.
    pub outdated: u32,
    /// Nodes that have enough records of the key.
    pub full: u32,
    /// Nodes that rejected it.
    pub rejected: u32,
    /// Nodes that did not answer.
    pub silent: u32,
}

/// Figures of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SearchReport {
    /// Records found, newer ones of the same publisher and slot not counted again.
    pub found: u32,
    /// Nodes queried on the path and for others of their region.
    pub finds: u32,
    /// Requests for records.
    pub asks: u32,
    /// Nodes that had records.
    pub replicas: u32,
    /// Nodes that had none.
    pub denials: u32,
    /// Hops to the first node that was queried for records.
    pub hops: u8,
    /// Bytes of answers that were requested: each request limits the size of its answer.
    pub granted: u64,
    /// Bytes of answers that arrived.
    pub inflow: u64,
    /// Maximum number of bytes of answers that were outstanding at any time.
    pub on_the_way_max: u64,
}

/// An event for the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The node knows its neighbours.
    Joined {
        /// Contacts in the table.
        contacts: usize,
    },
    /// A lookup has ended.
    LookupEnded {
        /// The lookup.
        lookup: LookupId,
        /// The nearest nodes that answered, the nearest first.
        closest: Vec<Contact>,
        /// Number of answers that led to the last of them.
        hops: u8,
        /// Number of nodes asked.
        asked: u32,
    },
    /// A publication was stored or renewed under one of its keys.
    Published {
        /// The publication.
        slot: u16,
        /// The key.
        key: Key,
        /// The level of salt.
        level: u8,
        /// The outcome.
        outcome: Published,
    },
    /// A search has found a record, or a newer one.
    Found {
        /// The search.
        search: SearchId,
        /// The record. Its signature is valid; whether its publisher is trusted is for the application to decide.
        record: Record,
    },
    /// A search has no credit left; it waits for [`Command::Grant`].
    SearchPaused {
        /// The search.
        search: SearchId,
    },
    /// A search has ended.
    SearchEnded {
        /// The search.
        search: SearchId,
        /// Its figures.
        report: SearchReport,
    },
    /// A node has answered [`Command::Ping`], or has timed out.
    Pinged {
        /// The node.
        contact: Contact,
        /// Whether it answered.
        there: bool,
    },
    /// The state of the node, after [`Command::Report`].
    Reported(Box<Report>),
    /// A command could not be executed.
    Misused(crate::Misuse),
}

/// The state of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The contacts of its table, to store and pass to [`Kad::recall`](crate::Kad::recall) at the next
    /// start.
    pub contacts: Vec<Contact>,
    /// The estimated number of nodes in the network.
    pub network_nodes: Option<u64>,
    /// Records stored for others.
    pub records: usize,
    /// Size of those records in bytes.
    pub record_bytes: usize,
    /// Own publications.
    pub publications: usize,
    /// Number of searches in progress.
    pub searches: usize,
    /// Number of lookups, publications and searches in progress or waiting.
    pub at_work: usize,
    /// The counters since the start.
    pub counters: Counters,
}

/// Counters of a node since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests sent.
    pub requests: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Own requests that were refused for lack of a certificate, even if one was presented.
    pub uncertified: u64,
    /// Requests without an answer in time.
    pub timeouts: u64,
    /// Requests of others that were answered.
    pub served: u64,
    /// Requests of others that were refused.
    pub refused: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Answers longer than requested, which are discarded.
    pub overlong: u64,
    /// Searches started for the application.
    pub searches: u64,
}
