//! Feeds arbitrary bytes to `checks/sparql.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/sparql.rs"]
mod sparql;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sparql::check(data));
