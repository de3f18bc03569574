//! One file a verb.

pub(crate) mod bench;
pub(crate) mod sim;
mod sim_lookup;
mod sim_tree;
