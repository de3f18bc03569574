//! Feeds arbitrary bytes to `checks/program_lines.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/program_lines.rs"]
mod program_lines;

libfuzzer_sys::fuzz_target!(|data: &[u8]| program_lines::check(data));
