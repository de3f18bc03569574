//! Feeds arbitrary bytes to `checks/security.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/security.rs"]
mod security;

libfuzzer_sys::fuzz_target!(|data: &[u8]| security::check(data));
