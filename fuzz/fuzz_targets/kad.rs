//! Feeds arbitrary programs of hostile peers, and arbitrary packets, to `checks/kad.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/kad.rs"]
mod kad;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kad::check_forms(data);
    kad::check(data);
});
