//! Feeds arbitrary bytes to `checks/zmtp.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/zmtp.rs"]
mod zmtp;

libfuzzer_sys::fuzz_target!(|data: &[u8]| zmtp::check(data));
