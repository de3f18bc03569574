//! Feeds arbitrary bytes to `checks/gsn_descriptor.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/gsn_descriptor.rs"]
mod gsn_descriptor;

libfuzzer_sys::fuzz_target!(|data: &[u8]| gsn_descriptor::check(data));
