//! Feeds arbitrary bytes to `checks/xml.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/xml.rs"]
mod xml;

libfuzzer_sys::fuzz_target!(|data: &[u8]| xml::check(data));
