//! The exchange of the study "Global Sensors Networks: ØMQ experiment": 24 nodes, each with a
//! producer every 10 ms and subscriptions to all 24, its own included; 25 virtual sensors a node.
//!
//! The study had 24 machines; here all nodes are processes of one machine, in a network namespace
//! that has only a loopback. An element counts when the virtual sensor's output is acknowledged, at
//! level `power`. The peers carry the same numbers as far as they support it: they store at their
//! broker, and do not process.

mod backlog;
mod broker;
mod cluster;
mod figures;
mod foreign;
mod gsn;
mod interrupt;
mod kind;
mod kryo;
mod latency;
mod links;
mod message;
pub(crate) mod mqtt;
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

/// The role of a process by its arguments: `member` with its role on standard input, or `program`
/// and the command line of a foreign program that ends with the bench.
pub(crate) fn process(arguments: &[OsString]) -> Result<(), Error> {
    match arguments.split_first() {
        Some((first, [])) if first == "member" => worker::run(),
        Some((first, rest)) if first == "program" => foreign::become_program(rest),
        _ => Err(Error::Failed(
            "this command is internal to chappe-lab bench".to_owned(),
        )),
    }
}
