//! Feeds arbitrary bytes to the schema loader by `checks/exi.rs`.

#![no_main]
#![allow(dead_code, reason = "one check of several")]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/exi.rs"]
mod exi;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exi::xsd(data));
