//! Feeds arbitrary bytes to `checks/thing.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/thing.rs"]
mod thing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| thing::check(data));
