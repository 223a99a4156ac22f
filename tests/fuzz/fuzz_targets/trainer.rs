//! Fuzzes the property of the same name.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| swansong_properties::trainer(input));
