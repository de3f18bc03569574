//! Feeds arbitrary bytes to `checks/dds_types.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/dds_types.rs"]
mod dds_types;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dds_types::check(data));
