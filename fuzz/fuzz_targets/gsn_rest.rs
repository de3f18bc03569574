//! Feeds arbitrary bytes to `checks/gsn_rest.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/gsn_rest.rs"]
mod gsn_rest;

libfuzzer_sys::fuzz_target!(|data: &[u8]| gsn_rest::check(data));
