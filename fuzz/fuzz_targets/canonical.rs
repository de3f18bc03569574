//! Feeds arbitrary bytes to `checks/canonical.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/canonical.rs"]
mod canonical;

libfuzzer_sys::fuzz_target!(|data: &[u8]| canonical::check(data));
