//! Verdicts on trainers as text, for `explain` and `lint-script`.

use swansong_trainer::{Effect, Estimate, Finding, Parallelism, Report, Training};

/// The option with the speed of the storage.
#[derive(Debug, clap::Args)]
pub(super) struct StorageRate {
    /// Gigabytes a second that the storage takes from all Pods of the job together; a warning says if saving takes too long
    #[arg(long, value_name = "GB/S", value_parser = bytes_per_second)]
    storage_rate: Option<u64>,
}

impl StorageRate {
    /// Bytes a second.
    pub(super) const fn get(&self) -> Option<u64> {
        self.storage_rate
    }
}

fn bytes_per_second(text: &str) -> Result<u64, String> {
    let number: f64 = text.parse().map_err(|_| "it isn't a number".to_owned())?;
    if !(0.001..=1e6).contains(&number) {
        return Err("it isn't between 0.001 and 1000000".to_owned());
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number has been compared"
    )]
    Ok((number * 1e9) as u64)
}

/// The lines of a report on `file`; places in other files are named.
pub(super) fn lines(report: &Report, file: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for training in &report.trainings {
        lines.push(title(training));
        lines.extend(arithmetic(training));
        lines.extend(training.findings.iter().map(|finding| line(finding, file)));
    }
    lines.extend(report.findings.iter().map(|finding| line(finding, file)));
    lines
}

fn title(training: &Training) -> String {
    let Training { program, framework, line, verdict, .. } = training;
    let place = if *line == 0 { String::new() } else { format!(", line {line}") };
    format!("{program} ({}{place}): {verdict}", framework.as_str())
}

/// The arithmetic with its inputs.
pub(super) fn arithmetic(training: &Training) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(Parallelism { npus, tensor, pipeline, context, data, expert_data, replicas, expert }) =
        &training.parallelism
    {
        let experts =
            expert_data.map(|size| format!("; of the experts {size} (expert {expert})")).unwrap_or_default();
        lines.push(format!(
            "data-parallel size {data}: {npus} NPUs ÷ (tensor {tensor} · pipeline {pipeline} · context {context}){experts}; \
             {replicas} replicas"
        ));
    }
    if let Some(estimate) = &training.estimate {
        lines.push(sizes(estimate));
    }
    lines
}

fn sizes(estimate: &Estimate) -> String {
    let Estimate {
        parameters,
        checkpoint_bytes,
        save_limit_seconds,
        bytes_per_second,
        extra_hbm_bytes_per_npu,
    } = estimate;
    let hbm = extra_hbm_bytes_per_npu
        .map(|bytes| format!("; replicas take some {} GB more HBM on each NPU", giga(bytes)))
        .unwrap_or_default();
    format!(
        "estimate: {} billion parameters, {} GB to save, {} GB/s to save them within {save_limit_seconds} s{hbm}",
        giga(*parameters),
        giga(*checkpoint_bytes),
        giga(*bytes_per_second),
    )
}

/// Billions with one decimal place, or with two significant digits if they are fewer than ten.
fn giga(number: u64) -> String {
    const BILLION: u64 = 1_000_000_000;
    let mut unit = 1;
    while unit < BILLION / 10 && number / unit >= 100 {
        unit *= 10;
    }
    let rounded = number.saturating_add(unit / 2) / unit * unit;
    let text = format!("{}.{:09}", rounded / BILLION, rounded % BILLION);
    let shortest = text.trim_end_matches('0');
    if shortest.ends_with('.') { format!("{shortest}0") } else { shortest.to_owned() }
}

/// Whether a finding asks for action, beyond what isn't known.
pub(super) fn is_warning(finding: &Finding) -> bool {
    !matches!(finding.reason.effect(), Effect::Unsure | Effect::Note)
}

fn line(finding: &Finding, file: &str) -> String {
    let mark = if is_warning(finding) { "WARNING " } else { "note: " };
    let same = finding.file == file;
    let shown = Finding { file: if same { String::new() } else { finding.file.clone() }, ..finding.clone() };
    format!("{mark}{shown}")
}

#[cfg(test)]
mod tests {
    use super::giga;

    #[test]
    fn small_numbers_have_two_significant_digits() {
        for (number, text) in [
            (0, "0.0"),
            (7, "0.000000007"),
            (43_960_000, "0.044"),
            (523_900_000, "0.52"),
            (996_000_000, "1.0"),
            (6_738_415_616, "6.7"),
            (9_960_000_000, "10.0"),
            (94_337_818_624, "94.3"),
            (1_234_560_000_000, "1234.6"),
            (u64::MAX, "18446744073.7"),
        ] {
            assert_eq!(giga(number), text, "{number}");
        }
    }
}
