//! Feeds arbitrary bytes to `checks/discovery.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/discovery.rs"]
mod discovery;

libfuzzer_sys::fuzz_target!(|data: &[u8]| discovery::check(data));
