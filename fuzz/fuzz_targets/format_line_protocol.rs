//! Feeds arbitrary bytes to `checks/format.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/format.rs"]
mod format;

libfuzzer_sys::fuzz_target!(|data: &[u8]| format::check("line_protocol", data));
