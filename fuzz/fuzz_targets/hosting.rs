//! Feeds arbitrary bytes to `checks/hosting.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/hosting.rs"]
mod hosting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hosting::check(data));
