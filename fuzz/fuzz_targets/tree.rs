//! Feeds arbitrary programs of a hostile peer to `checks/tree.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/tree.rs"]
mod tree;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tree::check(data));
