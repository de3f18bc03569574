//! Feeds arbitrary bytes to `checks/announced.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/announced.rs"]
mod announced;

libfuzzer_sys::fuzz_target!(|data: &[u8]| announced::check(data));
