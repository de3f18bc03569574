//! Feeds arbitrary bytes to `checks/device_answers.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/device_answers.rs"]
mod device_answers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| device_answers::check(data));
