//! Feeds arbitrary bytes to `checks/uddi_wsdl.rs`.

#![no_main]

#[path = "../checks/bounds.rs"]
mod bounds;
#[path = "../checks/uddi_wsdl.rs"]
mod uddi_wsdl;

libfuzzer_sys::fuzz_target!(|data: &[u8]| uddi_wsdl::check(data));
