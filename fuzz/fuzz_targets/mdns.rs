//! Feeds arbitrary bytes to `checks/mdns.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/mdns.rs"]
mod mdns;

libfuzzer_sys::fuzz_target!(|data: &[u8]| mdns::check(data));
