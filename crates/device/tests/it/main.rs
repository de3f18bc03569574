//! The integration tests of `chappe-device` in one program: linking one takes seconds.

mod common;
mod described_in_a_file;
mod documents;
mod exi;
mod generated;
mod learned;
#[path = "../../../soap/tests/it/security/mutation.rs"]
mod mutation;
#[cfg(feature = "tools")]
mod recorded;
mod secured;
mod signed;
mod slow_peers;
mod strangers;
mod tree;
mod typed;
mod whole_life;
