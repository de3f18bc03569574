//! Feeds arbitrary bytes to `checks/compact.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/compact.rs"]
mod compact;

libfuzzer_sys::fuzz_target!(|data: &[u8]| compact::check(data));
