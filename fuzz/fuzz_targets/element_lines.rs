//! Feeds arbitrary bytes to `checks/element_lines.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/element_lines.rs"]
mod element_lines;

libfuzzer_sys::fuzz_target!(|data: &[u8]| element_lines::check(data));
