//! The integration tests of `chappe-device` in one program: linking one takes seconds.

mod common;
mod described_in_a_file;
mod documents;
mod learnt;
mod slow_peers;
mod strangers;
mod tree;
mod whole_life;
