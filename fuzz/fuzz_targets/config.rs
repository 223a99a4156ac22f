//! Any text as a configuration: no panic, and every fault says something.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swansong_webhook::config::Config;

fuzz_target!(|text: &str| {
    if let Err(error) = Config::parse(text) {
        assert!(!error.to_string().is_empty());
    }
});
