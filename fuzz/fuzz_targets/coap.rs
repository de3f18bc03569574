//! Feeds arbitrary bytes to `checks/coap.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/coap.rs"]
mod coap;

libfuzzer_sys::fuzz_target!(|data: &[u8]| coap::check(data));
