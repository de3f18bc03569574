//! Feeds arbitrary bytes to `checks/list.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/list.rs"]
mod list;

libfuzzer_sys::fuzz_target!(|data: &[u8]| list::check(data));
