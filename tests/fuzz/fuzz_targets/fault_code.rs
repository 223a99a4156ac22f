//! The law of the same name, on any input.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| swansong_properties::fault_code(input));
