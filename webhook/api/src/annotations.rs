//! Annotations on jobs, pod templates and Pods.

/// The prefix of Swansong's own annotations and labels.
pub const PREFIX: &str = "swansong.dev/";

/// MindCluster's comma-separated list of recovery strategies; see [`Strategies`](crate::strategy::Strategies).
pub const RECOVER_STRATEGY: &str = "recover-strategy";

/// `"false"` excludes the object from injection. Also a label of namespaces.
pub const INJECT: &str = "swansong.dev/inject";
/// Comma-separated names of the containers to inject.
pub const CONTAINERS: &str = "swansong.dev/containers";
/// Comma-separated names of containers that get no `LD_PRELOAD`; `*` means all.
pub const SKIP_PRELOAD: &str = "swansong.dev/skip-preload";
/// Path of libtaskd.so in the image.
pub const LIBTASKD: &str = "swansong.dev/libtaskd";
/// Path of libmspti.so in the image.
pub const LIBMSPTI: &str = "swansong.dev/libmspti";
/// `"true"` makes the agent end the rank of a lost device at once.
pub const FAST_DUMP: &str = "swansong.dev/fast-dump";
/// `"false"` excludes a job from the launcher hook; `"true"` includes one for which other strategies than `dump` act too.
pub const PROTECT_DUMP: &str = "swansong.dev/protect-dump";

/// `discover` has an init container find the libraries in the image; `configured` takes the configured paths.
pub const LIBRARIES: &str = "swansong.dev/libraries";
/// `sidecar` runs the TaskD Manager as a sidecar of rank 0's Pod; `none` leaves it to the start script.
pub const MANAGER: &str = "swansong.dev/manager";
/// `configMap` or `hostPath`: how reset.json gets into the training container; `none` leaves it out.
pub const RESET_CONFIG: &str = "swansong.dev/reset-config";

/// `first` or `last`: the position of Swansong's libraries in `LD_PRELOAD`.
pub const PRELOAD_ORDER: &str = "swansong.dev/preload-order";

/// Swansong's options, in the order in which they are copied from a job to its pod templates.
pub const OPTIONS: [&str; 11] = [
    INJECT,
    CONTAINERS,
    SKIP_PRELOAD,
    PRELOAD_ORDER,
    LIBRARIES,
    LIBTASKD,
    LIBMSPTI,
    PROTECT_DUMP,
    FAST_DUMP,
    MANAGER,
    RESET_CONFIG,
];

/// Written by the kubelet on mirror Pods of static Pods, whose processes a change of the mirror Pod doesn't affect.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// The text of the launcher hook, written by Swansong and mounted as [`MODULE_FILE`](crate::launcher_hook::MODULE_FILE).
pub const LAUNCHER_HOOK_MODULE: &str = "swansong.dev/launcher-hook.py";
/// The line that loads the launcher hook, written by Swansong and mounted as
/// [`PTH_FILE`](crate::launcher_hook::PTH_FILE).
pub const LAUNCHER_HOOK_PTH: &str = "swansong.dev/launcher-hook.pth";

/// The [`Record`](crate::record::Record) of an injection, written by Swansong.
pub const INJECTED: &str = "swansong.dev/injected";

/// The id of the fault that an Event of an agent is about.
pub const FAULT_ID: &str = "swansong.dev/fault-id";

/// What a value of [`INJECT`] or another flag says in any case, also in quotes: `true`, `yes`, `on`, `1`, or `false`, `no`,
/// `off`, `0`, `never`, `none` and their short forms. `None` for any other value.
pub fn flag(value: &str) -> Option<bool> {
    const AFFIRMATIVE: [&str; 9] = ["true", "t", "yes", "y", "on", "1", "enabled", "enable", "always"];
    const NEGATIVE: [&str; 10] =
        ["false", "f", "no", "n", "off", "0", "disabled", "disable", "never", "none"];
    let value = value.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
    let is_one_of = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    if is_one_of(&NEGATIVE) { Some(false) } else { is_one_of(&AFFIRMATIVE).then_some(true) }
}

/// Whether a value of [`INJECT`] excludes the object.
pub fn is_opted_out(value: &str) -> bool {
    flag(value) == Some(false)
}
