//! The exchange of the study "Global Sensors Networks: ØMQ experiment": 24 nodes, each with a
//! producer every 10 ms and subscriptions to all 24, its own included; 25 virtual sensors a node.
//!
//! The study had 24 machines; here all nodes are processes of one machine, in a network namespace
//! with nothing but a loopback. An element counts when the virtual sensor's output is acknowledged,
//! at level `power`. The peers carry the same numbers as far as they go: they store at their broker,
//! and process nothing.

mod backlog;
mod broker;
mod cluster;
mod figures;
mod foreign;
mod gsn;
mod interrupt;
mod kind;
mod latency;
mod links;
mod message;
mod mqtt;
pub(crate) mod namespace;
mod nats;
mod node;
mod outage;
mod outcome;
mod peers;
mod run;
mod station;
mod tally;
mod worker;

pub(crate) use kind::Kind;
pub(crate) use run::{parts, run};

use std::ffi::OsString;

use crate::Error;

/// What a process of the scenario is, by its arguments: `member` with its role on standard input, or
/// `program` and the command line of a foreign program that is to end with the bench.
pub(crate) fn process(arguments: &[OsString]) -> Result<(), Error> {
    match arguments.split_first() {
        Some((first, [])) if first == "member" => worker::run(),
        Some((first, rest)) if first == "program" => foreign::become_program(rest),
        _ => Err(Error::Failed(
            "this is a part of chappe-lab bench".to_owned(),
        )),
    }
}
