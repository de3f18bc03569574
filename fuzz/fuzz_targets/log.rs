//! Feeds arbitrary damage to `checks/log.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/log.rs"]
mod log;

libfuzzer_sys::fuzz_target!(|data: &[u8]| log::check(data));
