//! Feeds arbitrary bytes to `checks/wsdl.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/wsdl.rs"]
mod wsdl;

libfuzzer_sys::fuzz_target!(|data: &[u8]| wsdl::check(data));
