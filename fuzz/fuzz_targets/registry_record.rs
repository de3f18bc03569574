//! Feeds arbitrary bytes to `checks/registry_record.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/registry_record.rs"]
mod registry_record;

libfuzzer_sys::fuzz_target!(|data: &[u8]| registry_record::check(data));
