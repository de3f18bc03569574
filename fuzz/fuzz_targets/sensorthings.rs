//! Feeds arbitrary bytes to `checks/sensorthings.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/sensorthings.rs"]
mod sensorthings;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sensorthings::check(data));
