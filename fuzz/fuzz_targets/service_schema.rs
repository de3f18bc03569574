//! Feeds arbitrary bytes to `checks/service_schema.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/service_schema.rs"]
mod service_schema;

libfuzzer_sys::fuzz_target!(|data: &[u8]| service_schema::check(data));
