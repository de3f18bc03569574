//! Feeds arbitrary bytes to `checks/modbus.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/modbus.rs"]
mod modbus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| modbus::check(data));
