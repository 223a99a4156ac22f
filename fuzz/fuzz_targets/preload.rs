//! Any LD_PRELOAD: the user's paths survive in order, ours are there once, a second join has nothing to do.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swansong_webhook::inject::preload::{join, tokens};
use swansong_webhook::policy::PreloadOrder;
use swansong_webhook::strategy::Strategies;

const OURS: [&str; 2] = ["/m.so", "/t.so"];

fuzz_target!(|value: &str| {
    for order in [PreloadOrder::First, PreloadOrder::Last] {
        let Some(joined) = join(&OURS, value, order) else { continue };
        let own = |value| -> Vec<String> {
            tokens(value).filter(|token| !OURS.contains(token)).map(str::to_owned).collect()
        };
        assert_eq!(own(value), own(&joined));
        assert_eq!(tokens(&joined).filter(|token| OURS.contains(token)).count(), 2);
        assert_eq!(join(&OURS, &joined, order), None);
    }
    let strategies = Strategies::parse(value);
    let normalised = strategies.normalised();
    assert_eq!(Strategies::parse(&normalised).tokens(), strategies.tokens());
    assert!(!Strategies::parse(&normalised).is_padded());
});
