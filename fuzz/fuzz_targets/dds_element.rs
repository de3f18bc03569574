//! Feeds arbitrary bytes to `checks/dds_element.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/dds_element.rs"]
mod dds_element;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dds_element::check(data));
