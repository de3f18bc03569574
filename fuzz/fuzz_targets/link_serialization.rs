//! Feeds arbitrary bytes to `checks/link_serialization.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/link_serialization.rs"]
mod link_serialization;

libfuzzer_sys::fuzz_target!(|data: &[u8]| link_serialization::check(data));
