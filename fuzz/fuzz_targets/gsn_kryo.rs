//! Feeds arbitrary bytes to `checks/gsn_kryo.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/gsn_kryo.rs"]
mod gsn_kryo;

libfuzzer_sys::fuzz_target!(|data: &[u8]| gsn_kryo::check(data));
