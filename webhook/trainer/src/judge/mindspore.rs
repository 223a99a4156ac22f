//! MindFormers, whose settings are in a YAML file.

use serde::Deserialize;

use super::Judge;
use crate::lint::{tft_items, tft_message};
use crate::marks::{Arg, has_mark};
use crate::program::base_name;
use crate::reason::TrainerReason as Reason;

/// What the file says of the dying checkpoint. Other keys are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    use_parallel: Option<bool>,
    context: Context,
    #[serde(rename = "runner_config")]
    runner: Runner,
    parallel: Parallel,
    #[serde(rename = "parallel_config")]
    dimensions: Dimensions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    /// 0 is graph mode.
    mode: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Runner {
    sink_mode: Option<bool>,
    sink_size: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parallel {
    enable_parallel_optimizer: Option<bool>,
    parallel_optimizer_config: OptimizerConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OptimizerConfig {
    optimizer_weight_shard_size: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Dimensions {
    data_parallel: Option<i64>,
}

/// Items of `MS_ENABLE_TFT` of which each turns the dying checkpoint on.
const ITEMS: &[&str] = &["TTP:1", "UCE:1", "ARF:1"];

pub(crate) fn judge(judge: &mut Judge<'_>) {
    judge.unknown_arguments();
    environment(judge);
    overrides(judge);
    let Some(path) = judge.flags.get("--config").and_then(Arg::known).map(str::to_owned) else {
        return judge.add(
            Reason::ConfigMissing,
            "the command line doesn't show which YAML file configures the training",
        );
    };
    let name = base_name(&path);
    let mut sources = judge.setting.sources.iter().filter(|source| base_name(source.path) == name);
    let (source, other) = (sources.next(), sources.next());
    let (Some(source), None) = (source, other) else {
        return judge.add(
            Reason::ConfigMissing,
            format!("{path} isn't in the input: graph mode, sink_size and replicas are unknown"),
        );
    };
    match serde_saphyr::from_str::<Config>(source.text) {
        Ok(config) => settings(judge, &config, name),
        Err(_) => judge
            .add(Reason::ConfigMissing, format!("{path} can't be read as a configuration of MindFormers")),
    }
}

/// Flags of `run_mindformer.py` that count instead of the file.
fn overrides(judge: &mut Judge<'_>) {
    match judge.flags.get("--mode").map(|mode| judge.marks.display(&mode.text)) {
        None => {}
        Some(mode) if mode == "0" => {}
        Some(mode) if mode == "1" => judge.add(
            Reason::GraphModeOff,
            "--mode 1 isn't graph mode, which the dying checkpoint needs: write --mode 0",
        ),
        Some(mode) => judge.add(Reason::UnknownValue, format!("the value of --mode is {mode:?}")),
    }
    let sets_others = |flag: &str| flag == "--options" || flag == "--sink_mode" || flag.contains('.');
    if let Some(flag) = judge.flags.find(sets_others).map(str::to_owned) {
        let message =
            format!("{flag} sets values of the configuration on the command line, which aren't compared");
        judge.add(Reason::UnknownArguments, message);
    }
}

fn environment(judge: &mut Judge<'_>) {
    match judge.variable("MS_ENABLE_TFT").map(str::to_owned) {
        Some(value) if has_mark(&value) => {
            judge.add(Reason::UnknownValue, "the value of MS_ENABLE_TFT isn't known");
        }
        // MindSpore searches the text for the items.
        Some(value) if ITEMS.iter().any(|item| value.contains(item)) => {
            if tft_items(&value).is_none() {
                judge.add(Reason::TftWithoutComma, tft_message(&value));
            }
        }
        Some(value) => judge.add(
            Reason::TftOff,
            format!("MS_ENABLE_TFT is {value:?}, which has none of {}: nothing is saved", ITEMS.join(", ")),
        ),
        None => judge.add(Reason::TftOff, "MS_ENABLE_TFT isn't set, so nothing is saved"),
    }
}

fn settings(judge: &mut Judge<'_>, config: &Config, name: &str) {
    let mut unknown = |key: &str| {
        judge.add(Reason::UnknownValue, format!("{name} doesn't set {key}, so its value isn't known"));
    };
    match config.context.mode {
        Some(0) => {}
        None => unknown("context.mode"),
        Some(mode) => judge.add(
            Reason::GraphModeOff,
            format!("{name}: context.mode is {mode}, and the dying checkpoint needs graph mode (0)"),
        ),
    }
    let Runner { sink_mode, sink_size } = config.runner;
    match (sink_mode, sink_size) {
        (Some(false), _) | (_, Some(1)) => {}
        (_, None) => judge.add(
            Reason::UnknownValue,
            format!("{name} doesn't set runner_config.sink_size, so its value isn't known"),
        ),
        (_, Some(size)) => {
            judge.add(
                Reason::SinkSizeNotOne,
                format!("{name}: runner_config.sink_size is {size}, and the dying checkpoint needs 1"),
            );
        }
    }
    replicas(judge, config, name);
    judge.add(
        Reason::ResumeNeedsHighAvailability,
        "one card of each data-parallel domain saves the file, and resuming from it needs the annotation as well",
    );
}

fn replicas(judge: &mut Judge<'_>, config: &Config, name: &str) {
    let is_parallel = match judge.flags.text("--use_parallel") {
        Some(text) => Some(text.eq_ignore_ascii_case("true")),
        None => config.use_parallel,
    };
    if is_parallel == Some(false) {
        return judge
            .add(Reason::NoReplica, format!("{name}: use_parallel is off, so nothing has a replica"));
    }
    let Some(data) = config.dimensions.data_parallel else {
        return judge
            .add(Reason::ParallelSizeUnknown, format!("{name} doesn't set parallel_config.data_parallel"));
    };
    let shards = match config.parallel.enable_parallel_optimizer {
        Some(true) => match config.parallel.parallel_optimizer_config.optimizer_weight_shard_size {
            Some(size) if size > 0 => size,
            // The optimizer is sharded over the whole dimension.
            _ => data,
        },
        Some(false) => 1,
        None => {
            return judge.add(
                Reason::ParallelSizeUnknown,
                format!("{name} doesn't set parallel.enable_parallel_optimizer"),
            );
        }
    };
    if data < 2 || data.checked_div(shards).is_none_or(|replicas| replicas < 2) {
        judge.add(
            Reason::NoReplica,
            format!(
                "{name}: data_parallel {data} ÷ optimizer_weight_shard_size {shards} is less than 2: no card has a replica, and nothing can \
                 be saved"
            ),
        );
    }
}
