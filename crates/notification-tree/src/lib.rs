//! Spreads one event to many sinks that help: a machine without input and output.
//!
//! A source that notifies sink after sink takes as long as there are sinks. Here it sends the event
//! to a few *heads*, each with a part of the sinks, and each head does the same with its part. The
//! idea is of "An Optimized WS-Eventing for Large-Scale Networks"; its plan (two halves) is one of
//! [`Plan`]'s. The default is the quickest there is for the send cost and latency as measured.
//!
//! | file | what |
//! |---|---|
//! | `plan.rs`, `schedule.rs`, `arranger.rs` | how sinks are divided, what that costs, which sink goes where |
//! | `membership.rs`, `event.rs`, `message.rs`, `wire.rs` | what travels: lists, events, datagrams |
//! | `guard.rs`, `window.rs` | signatures, hop tags, receipts; what was seen |
//! | `job.rs`, `coverage.rs` | a part that a node answers for, and what is known of it |
//! | `interface.rs`, `state.rs`, `spare.rs` | what the application asks and is told; what a node keeps |
//! | `tree.rs`, `sending.rs`, `sink.rs`, `answers.rs`, `repair.rs`, `source.rs`, `proof.rs` | the machine |
//!
//! # How an event goes
//!
//! 1. The source signs it and sends it to the heads of its plan, each with a range of the list. The
//!    list is inside the event while it fits a datagram, else named by its version.
//! 2. A sink checks the hop's tag, sends the event on to the heads of its own range, then verifies the
//!    signature, delivers, and answers: a *response* while it waits for others, *coverage* when all of
//!    its range is known. Where the list or the boot is new, or the sender was caught, it verifies first.
//! 3. The part of a head that does not answer in time is divided by who gave it; by the paper's rule
//!    ([`TakeOver::NextSink`]) the next sink takes it over. Single sinks are tried again. A known
//!    suspect is never made a head while there is anyone else.
//! 4. Coverage goes up: who failed, and the receipts of all others, added up. The source verifies them
//!    and tries in further rounds what is missing.
//! 5. It ends with *delivered* (verified receipts), *failed* (`k` messages of the source unanswered) and
//!    *unknown* (`T` was over first).
//!
//! What a sink misses it sees by the sequence numbers, and asks its parent, siblings or the source.
//!
//! # What the caller does
//!
//! Datagrams in and out ([`Tree::open`], [`Tree::seal`]); storing the boot number before
//! [`Command::Publisher`] and windows at [`Happened::Remember`]; carrying signed memberships
//! ([`Membership::encode`]) to sinks when they do not fit into events; having a sink's address proven
//! ([`Command::Prove`]) before it is listed.
//!
//! Deliberately absent: sockets, clocks, finding sinks (Kademlia or WS-Eventing does), confidentiality.
//!
//! # Example
//!
//! ```
//! use chappe_machine::{Input, Instant, Output, drain};
//! use chappe_notification_tree::*;
//! use std::sync::Arc;
//!
//! let contact = |port: u16| Contact { address: ([127, 0, 0, 1], port).into(), key: [0; 32] };
//! let config = Arc::new(Config::default());
//! // No keys in this example: a trusted network says so.
//! let tree = |port| Tree::new(Arc::clone(&config), contact(port), TrustedNetwork, 1);
//! let (mut source, mut sink) = (tree(1), tree(2));
//! let now = Instant::ZERO;
//! let membership = Arc::new(Membership::new(7, 1, vec![contact(2)])?);
//! let publisher = Command::Publisher { membership, boot: 1 };
//! drain(&mut source, now, Input::Command(publisher), |_| {});
//! let subscribe = Command::Subscribe { topic: 7, source: contact(1), window: Window::default() };
//! drain(&mut sink, now, Input::Command(subscribe), |_| {});
//!
//! let publish = Command::Publish { topic: 7, body: b"21.5".to_vec(), deadline: None };
//! let (mut sent, mut delivered) = (Vec::new(), Vec::new());
//! drain(&mut source, now, Input::Command(publish), |output| {
//!     if let Output::Transmit(transmit) = output { sent.push(transmit) }
//! });
//! drain(&mut sink, now, Input::Receive(sent.remove(0).message), |output| match output {
//!     Output::Event(Happened::Delivered { event, .. }) => delivered.push(event.body().to_vec()),
//!     Output::Transmit(transmit) => sent.push(transmit),
//!     _ => {}
//! });
//! assert_eq!(delivered, [b"21.5"]);
//! let mut known = None;
//! drain(&mut source, now, Input::Receive(sent.remove(0).message), |output| {
//!     if let Output::Event(Happened::Outcome(outcome)) = output { known = Some(outcome) }
//! });
//! assert!(known.is_some_and(|outcome| outcome.delivered(0)));
//! # Ok::<(), Malformed>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod answers;
mod arranger;
mod config;
mod coverage;
mod error;
mod event;
mod guard;
mod interface;
mod invariant;
mod job;
mod limit;
mod membership;
mod message;
mod plan;
mod proof;
mod repair;
mod round_trip;
pub mod schedule;
mod sending;
mod sink;
mod source;
mod spare;
mod state;
mod tree;
mod window;
mod wire;

pub use arranger::Arranger;
pub use config::{Choice, Config, Pace, TakeOver};
pub use coverage::{FAILED_MAX, Piece};
pub use error::{Error, Malformed};
pub use event::{Event, EventId};
pub use guard::{Guard, Keys, PAIRS_MAX, SIGNATURE_BYTES, TAG_BYTES, TrustedNetwork, topic_of};
pub use interface::{Command, Counters, Happened, Outcome};
pub use membership::{Contact, Membership, SINKS_MAX};
pub use message::{
    Body, Coverage, DATAGRAM_BYTES_MAX, Message, Proof, Pull, Response, SOURCE, SUSPECTS_MAX,
    Spread, Suspects, Tag, Transmit,
};
pub use plan::{CAP, DELAY_MAX, Plan, Splitter};
pub use tree::Tree;
pub use window::Window;
