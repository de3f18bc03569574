//! Feeds arbitrary programs of a hostile peer to `checks/flow.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/flow.rs"]
mod flow;

libfuzzer_sys::fuzz_target!(|data: &[u8]| flow::check(data));
