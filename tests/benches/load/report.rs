//! The table for docs/benchmarks.md.

use std::fmt::Write;

use crate::measure::{Results, Sample};

/// Medians over the rounds, a row a server, and Swansong against its peers.
pub(crate) fn table(results: &Results) -> String {
    let mut text = String::from(
        "| server | reviews/s (16 connections) | CPU µs/review | p50 / p99 / p99.9 µs at 1,000/s | RSS MiB | start to first answer ms |\n\
         |---|---|---|---|---|---|\n",
    );
    let mut rates = Vec::new();
    for (name, samples) in results {
        let median = |field: fn(&Sample) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(field).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let rate = median(|sample| sample.rate);
        rates.push((*name, rate));
        let _ = writeln!(
            text,
            "| {name} | {rate:.0} | {:.1} | {:.0} / {:.0} / {:.0} | {:.1} | {:.1} |",
            median(|sample| sample.cpu_us),
            median(|sample| sample.p50_us),
            median(|sample| sample.p99_us),
            median(|sample| sample.p999_us),
            median(|sample| sample.resident_mib),
            median(|sample| sample.start_ms),
        );
    }
    if let Some((_, own)) = rates.iter().find(|(name, _)| *name == "swansong") {
        for (name, rate) in rates.iter().filter(|(name, _)| *name != "swansong") {
            let _ = writeln!(text, "\nswansong / {name}: {:.2}", own / rate);
        }
    }
    text
}
