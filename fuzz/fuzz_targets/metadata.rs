//! Feeds arbitrary bytes to `checks/metadata.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/metadata.rs"]
mod metadata;

libfuzzer_sys::fuzz_target!(|data: &[u8]| metadata::check(data));
