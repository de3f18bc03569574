//! Feeds arbitrary bytes to the decoder of `checks/exi.rs`.

#![no_main]
#![allow(dead_code, reason = "one check of several")]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/exi.rs"]
mod exi;

use chappe_exi::Alignment;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exi::decoder(data, Alignment::BitPacked, true));
