//! Feeds arbitrary bytes to `checks/soap.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/soap.rs"]
mod soap;

libfuzzer_sys::fuzz_target!(|data: &[u8]| soap::check(data));
