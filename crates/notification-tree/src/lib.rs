#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! A source that notifies one sink after the other needs time in proportion to their number. Here it sends the
//! event to a few *heads*, each with a part of the sinks, and each head does the same with its part. The idea
//! is from "An Optimized WS-Eventing for Large-Scale Networks"; its plan (two halves) is one [`Plan`] of
//! several. The default plan is optimal for the measured send cost and latency.
//!
//! | file | content |
//! |---|---|
//! | `plan.rs`, `schedule.rs`, `arranger.rs` | the division of sinks, its cost, the order of a list |
//! | `membership.rs`, `event.rs`, `message.rs`, `wire.rs` | formats: lists, events, datagrams |
//! | `guard.rs`, `window.rs`, `limit.rs` | signatures, hop tags, receipts; events seen; rates |
//! | `job.rs`, `coverage.rs`, `tally.rs`, `topic.rs` | ranges, and the state of their sinks |
//! | `interface.rs` | commands and events of the application |
//! | `tree/` | the machine: hops, source, sink, repair, proof of address |
//!
//! # The path of an event
//!
//! 1. The source signs the event and sends it to the heads of its plan, each with a range of the list. The list
//!    is inside the event while it fits a datagram; otherwise the event names its version.
//! 2. A sink checks the hop's tag, forwards the event to the heads of its own range, then verifies the signature,
//!    delivers, and answers: with a *response* while it waits for others, with *coverage* when all of its range
//!    is known. If the list or the boot is new, or the sender is distrusted, it verifies first.
//! 3. If a head does not answer in time, the node that gave the part divides it again; by the paper's rule
//!    ([`TakeOver::NextSink`]) the next sink takes it over. Single sinks are tried again. Suspects become heads
//!    only where all sinks are suspects.
//! 4. Coverage travels up: the failed sinks, and the combined receipts of all others. The source verifies the
//!    receipts, and tries in further rounds the sinks that are missing.
//! 5. In the end each sink is *delivered* (its receipt is verified), *failed* (`k` messages of the source are
//!    unanswered) or *unknown* (the time `T` was over first).
//!
//! A sink detects missed events by their sequence numbers, and asks its parent, siblings or the source.
//!
//! # The caller's part
//!
//! The caller carries datagrams ([`Tree::open`], [`Tree::seal`]). It stores the boot number before
//! [`Command::Publisher`], and windows at [`TreeEvent::Remember`]. It carries signed memberships
//! ([`Membership::encode`]) to sinks if they do not fit into events, and has the address of a sink proven
//! ([`Command::Prove`]) before it lists the sink.
//!
//! Deliberately absent: sockets, clocks, confidentiality, and finding sinks (Kademlia or WS-Eventing do).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod arranger;
mod config;
mod coverage;
mod error;
mod event;
mod event_pool;
mod guard;
mod interface;
mod job;
mod limit;
mod membership;
mod message;
mod plan;
mod round_trip;
pub mod schedule;
mod spare;
mod tally;
mod topic;
mod tree;
mod window;
mod wire;

pub use arranger::Arranger;
pub use config::{Choice, Config, Pace, TakeOver};
pub use coverage::{FAILED_MAX, Piece};
pub use error::{Error, Malformed};
pub use event::{Event, EventId};
pub use guard::{Guard, Keys, PAIRS_MAX, SIGNATURE_BYTES, TAG_BYTES, TrustedNetwork, topic_of};
pub use interface::{Command, Counters, Outcome, TreeEvent};
pub use membership::{Contact, Membership, SINKS_MAX};
pub use message::{
    Body, Coverage, Message, Proof, Pull, Response, SOURCE, SUSPECTS_MAX, Spread, Suspects, Tag,
    Transmit,
};
pub use plan::{CAP, DELAY_MAX, Plan, Splitter};
pub use tree::Tree;
pub use window::Window;
pub use wire::DATAGRAM_BYTES_MAX;
