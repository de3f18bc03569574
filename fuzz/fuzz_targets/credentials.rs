//! Feeds arbitrary bytes to `checks/credentials.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/credentials.rs"]
mod credentials;

libfuzzer_sys::fuzz_target!(|data: &[u8]| credentials::check(data));
