//! Feeds arbitrary bytes to `checks/ingest.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/ingest.rs"]
mod ingest;

libfuzzer_sys::fuzz_target!(|data: &[u8]| ingest::check(data));
