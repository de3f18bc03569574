//! What a node is told and what it says.

use std::net::SocketAddr;

use chappe_identity::PublicKey;

use crate::{Contact, Key, Record};

/// A UDP packet and the address of the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Where it came from, or where it goes.
    pub address: SocketAddr,
    /// Its payload; [`PACKET_BYTES_MAX`](crate::PACKET_BYTES_MAX) at most.
    pub bytes: Vec<u8>,
}

/// Somebody by whom the network can be entered: from configuration, from multicast discovery, or
/// one of the last known contacts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entrance {
    /// Where.
    pub address: SocketAddr,
    /// Who; `None` when only the address is known.
    pub public: Option<PublicKey>,
}

/// The name of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LookupId(pub u32);

/// The name of a search.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SearchId(pub u32);

/// What the application asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// The time of day, in seconds since 1970 (UTC). To be given at the start, and when the clock was
    /// set; without it nothing is judged by time of day.
    TimeOfDay {
        /// The time.
        unix_s: u64,
    },
    /// Enter the network here. May be given again; the last 64 are kept and tried again when no
    /// contact is left, and now and then to find others that were cut off.
    Enter(Vec<Entrance>),
    /// Find the nodes nearest to a place.
    Lookup {
        /// The name of the lookup, chosen by the application.
        lookup: LookupId,
        /// Where.
        target: Key,
    },
    /// Publish a value under some keys, and renew it until it is withdrawn. Replaces what the slot
    /// held.
    Publish {
        /// Tells the node's publications apart.
        slot: u16,
        /// What it is to be found by.
        keys: Vec<Key>,
        /// The value; [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX) at most.
        value: Vec<u8>,
    },
    /// End a publication: its records are replaced by ones that end after a second.
    Withdraw {
        /// Which.
        slot: u16,
    },
    /// Find records.
    Search {
        /// The name of the search, chosen by the application.
        search: SearchId,
        /// By which key.
        key: Key,
        /// Bytes of answers that may arrive, all in all, until more is granted.
        credit: u64,
    },
    /// More bytes of answers may arrive.
    Grant {
        /// For which search.
        search: SearchId,
        /// How many.
        credit: u64,
    },
    /// End a search.
    Stop {
        /// Which.
        search: SearchId,
    },
    /// Ask a node whether it is there: it gets into the table, and both get address tokens.
    Ping(Contact),
    /// Say how the node is: [`Event::Reported`].
    Report,
}

/// What became of one key of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Published {
    /// Nodes that keep the record.
    pub kept: u32,
    /// Nodes that keep a newer one.
    pub outdated: u32,
    /// Nodes that have enough records of the key.
    pub full: u32,
    /// Nodes that do not want it.
    pub rejected: u32,
    /// Nodes that did not answer.
    pub silent: u32,
}

/// What a search did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SearchReport {
    /// Records found, newer ones of the same publisher and slot not counted again.
    pub found: u32,
    /// Nodes asked on the way and for others of their region.
    pub finds: u32,
    /// Requests for records.
    pub asks: u32,
    /// Nodes that had records.
    pub replicas: u32,
    /// Nodes that had none.
    pub denials: u32,
    /// Hops to the first node that was asked for records.
    pub hops: u8,
    /// Bytes of answers that were asked for: each request says how long its answer may be.
    pub granted: u64,
    /// Bytes of answers that arrived.
    pub inflow: u64,
    /// Most bytes of answers that were asked for and not there, at any time.
    pub on_the_way_max: u64,
}

/// What the application is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The node knows its neighbours.
    Joined {
        /// Contacts in the table.
        contacts: usize,
    },
    /// A lookup has ended.
    LookupEnded {
        /// Which.
        lookup: LookupId,
        /// The nearest nodes that answered, the nearest first.
        closest: Vec<Contact>,
        /// Answers that led to the last of them.
        hops: u8,
        /// Nodes asked.
        asked: u32,
    },
    /// A publication was stored or renewed under one of its keys.
    Published {
        /// Which.
        slot: u16,
        /// Under which key.
        key: Key,
        /// At which level of salt.
        level: u8,
        /// What became of it.
        outcome: Published,
    },
    /// A search has found a record, or a newer one.
    Found {
        /// Which search.
        search: SearchId,
        /// The record; its signature is right, its publisher is not judged.
        record: Record,
    },
    /// A search has no credit left; it waits for [`Command::Grant`].
    SearchPaused {
        /// Which.
        search: SearchId,
    },
    /// A search has ended.
    SearchEnded {
        /// Which.
        search: SearchId,
        /// What it did.
        report: SearchReport,
    },
    /// A node has answered [`Command::Ping`], or has not.
    Pinged {
        /// Who.
        contact: Contact,
        /// Whether it is there.
        there: bool,
    },
    /// How the node is, after [`Command::Report`].
    Reported(Box<Report>),
    /// A command could not be followed.
    Misused(crate::Misuse),
}

/// How a node is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The contacts of its table: to be kept, and given to [`Kad::recall`](crate::Kad::recall) at the
    /// next start.
    pub contacts: Vec<Contact>,
    /// How many nodes the network has, as far as this one can tell.
    pub network_nodes: Option<u64>,
    /// Records that are kept for others.
    pub records: usize,
    /// Bytes of those.
    pub record_bytes: usize,
    /// Own publications.
    pub publications: usize,
    /// Searches at work.
    pub searches: usize,
    /// Lookups, publications and searches at work or waiting.
    pub at_work: usize,
    /// What was done so far.
    pub counters: Counters,
}

/// What a node has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests sent.
    pub requests: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Own requests that were refused for lack of a certificate, also when it was shown.
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
    /// Answers longer than was asked for; not used.
    pub overlong: u64,
    /// Searches begun for the application.
    pub searches: u64,
}
