//! Feeds arbitrary bytes to `checks/uddi.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/uddi.rs"]
mod uddi;

libfuzzer_sys::fuzz_target!(|data: &[u8]| uddi::check(data));
