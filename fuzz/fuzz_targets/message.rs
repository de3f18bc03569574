//! Feeds arbitrary bytes to `checks/message.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/message.rs"]
mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check(data));
