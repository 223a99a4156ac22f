//! Random scripts are run by a real bash, with a program that records its arguments in place of torchrun: a script that
//! can save has to start trainings that can, and one that can't has to start none that can.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use swansong_trainer::{Setting, TrainerReason, Verdict, read_command, read_script};

const CONDITIONS: &[&str] = &[
    "[ -n \"$U\" ]",
    "[ \"$U\" = 1 ]",
    "[[ $U == y* ]]",
    "[ -z \"$E\" ]",
    "[[ \"$E\" == *lora* ]]",
    "true",
    "false",
    "(( ${#A[@]} > 1 ))",
    "[ $# -gt 0 ]",
    "! [ -n \"$U\" ]",
    "test \"$S\"",
    "[[ -n $U && -z $E ]]",
    "[ -z \"$U\" -o -n \"$E\" ]",
];

const COMMANDS: &[&str] = &[
    "E=",
    "E='--lora-r 8'",
    "E=\"$E --swap-attention\"",
    "E+=' --lora-r 8'",
    "E=${E%--lora-r 8}",
    "E=\"${E/--lora-r 8/}\"",
    "E=${U:+--lora-r 8}",
    "E=${E:+--bf16}",
    "E=${E:---bf16}",
    "A+=(--lora-r 8)",
    "A=()",
    "A=(--bf16 \"$E\")",
    "A=($E)",
    "A=(\"${A[@]:1}\")",
    "A=(\"${A[@]}\" --swap-attention)",
    "unset E",
    "unset 'A[0]'",
    "unset A",
    "f",
    "f --lora-r 8",
    "g \"$E\"",
    "E=$(f)",
    "E=$(g --lora-r)",
    "set -- --lora-r 8",
    "set --",
    "shift",
    "E=\"$*\"",
    "A=(\"$@\")",
    "read -r E <<< '--lora-r 8'",
    "read -r -d '' E <<'X'\n--lora-r 8\nX",
    "IFS=,",
    "IFS=' '",
    "E=--lora-r,8",
    "E=$(echo \"$E\")",
    "E=$(cat <<X\n$E --bf16\nX\n)",
    "eval 'E=\"--lora-r 8\"'",
    "eval \"E='$E'\"",
    "declare E='--lora-r 8'",
    "local E='--lora-r 8'",
    "local E",
    "export E",
    "E= true",
    "E='--lora-r 8' f",
    "E= g",
    "S=/ckpt",
    "S=",
    "S=$U",
    "S=/a/$U",
    "break",
    "continue",
    "return",
    "exit 0",
    "echo --lora-r 8",
    "echo",
    "printf '%s' \"$E\"",
    "N=2; (( N += 2 ))",
    "T=$((T + 1))",
    "T=8",
    "let T=2",
    "E={--lora-r,8}",
    "A=({--lora-r,8})",
    "E=\"--lora-r $U\"",
    "A+=(--lora-r=\"$U\")",
    "unset -f f",
    "HIGH_AVAILABILITY=",
    "unset HIGH_AVAILABILITY",
    "export HIGH_AVAILABILITY=dump",
    "E='x'; E=\"${E/x/--lora-r 8}\"",
    "K=E; E=${!K}",
    "declare -n R=E; R='--lora-r 8'",
    "printf -v E '%s' '--lora-r 8'",
    "exec 3>&1",
    "trap 'echo' EXIT",
    "A[0]=--lora-r",
    "A=([1]=--lora-r [2]=8)",
    "E=`echo --bf16`",
    "E=$'--lora-r\\t8'",
    "E=\"a\\\nb\"",
    "shopt -s nullglob",
];

fn command() -> impl Strategy<Value = String> {
    prop::sample::select(COMMANDS).prop_map(str::to_owned)
}

fn condition() -> impl Strategy<Value = &'static str> {
    prop::sample::select(CONDITIONS)
}

fn list() -> impl Strategy<Value = String> {
    command().prop_recursive(4, 24, 4, |inner| {
        let lines = prop::collection::vec(inner.clone(), 1..4).prop_map(|lines| lines.join("\n"));
        let body = lines.clone();
        prop_oneof![
            4 => prop::collection::vec(inner, 1..4).prop_map(|lines| lines.join("\n")),
            2 => (condition(), body.clone(), body.clone()).prop_map(|(c, a, b)| format!("if {c}; then\n{a}\nelse\n{b}\nfi")),
            1 => (condition(), condition(), body.clone(), body.clone())
                .prop_map(|(c, d, a, b)| format!("if {c}; then\n{a}\nelif {d}; then\n{b}\nfi")),
            2 => (condition(), body.clone()).prop_map(|(c, a)| format!("{c} && {{\n{a}\n}}")),
            1 => (condition(), body.clone()).prop_map(|(c, a)| format!("{c} || {{\n{a}\n}}")),
            1 => body.clone().prop_map(|a| format!("(\n{a}\n)")),
            2 => body.clone().prop_map(|a| format!("f() {{\n{a}\n}}")),
            1 => body.clone().prop_map(|a| format!("g() {{\n{a}\necho \"$1\"\n}}")),
            1 => body.clone().prop_map(|a| format!("for x in 1 2; do\n{a}\ndone")),
            1 => body.clone().prop_map(|a| format!("for x in $U; do\n{a}\ndone")),
            1 => body.clone().prop_map(|a| format!("for x in 1 2 3; do\n{a}\n[ -z \"$U\" ] || break\ndone")),
            1 => (body.clone(), body.clone()).prop_map(|(a, b)| format!("case \"$U\" in\n1)\n{a}\n;;\ny*)\n{b}\n;;\nesac")),
            1 => (body.clone(), body.clone()).prop_map(|(a, b)| format!("case \"$E\" in\n*lora*)\n{a}\n;;\n*)\n{b}\n;;\nesac")),
            1 => (condition(), body.clone()).prop_map(|(c, a)| format!("n=0\nwhile {c}; do\n[ $((n += 1)) -gt 2 ] && break\n{a}\ndone")),
            1 => body.clone().prop_map(|a| format!("{{\n{a}\n}} | cat")),
            1 => body.prop_map(|a| format!("E=$(\n{a}\n)")),
        ]
    })
}

fn script() -> impl Strategy<Value = String> {
    let start = "f() { :; }\ng() { echo \"$1\"; }\nE=--bf16\nS=/ckpt\nT=1\nA=(--fp16)\n";
    let last = "torchrun --nproc_per_node 8 --nnodes 2 MindSpeed-LLM/pretrain_gpt.py --use-distributed-optimizer \
                --tensor-model-parallel-size $T --save \"$S\" $E \"${A[@]}\" \"$@\"\n";
    prop::collection::vec(list(), 1..5).prop_map(move |lists| format!("{start}{}\n{last}", lists.join("\n")))
}

/// The arguments and `HIGH_AVAILABILITY` of each training that bash starts with `U` set to a value.
fn run(folder: &Path, text: &str, unknown: Option<&str>) -> Vec<(Vec<String>, Option<String>)> {
    let (script, record) = (folder.join("start.sh"), folder.join("record"));
    fs::write(&script, text).expect("a script");
    fs::write(&record, "").expect("a file");
    let mut bash = Command::new("timeout");
    bash.args(["-s", "KILL", "2", "bash"]).arg(&script).current_dir(folder);
    bash.env_clear().env("HIGH_AVAILABILITY", "dump").env("RECORD", &record);
    bash.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    if let Some(unknown) = unknown {
        bash.env("U", unknown);
    }
    bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    bash.status().expect("bash");
    let record = fs::read_to_string(&record).expect("the record");
    let trainings = record.split_terminator('\u{2}').map(|training| {
        let mut words: Vec<String> = training.split_terminator('\u{1}').map(str::to_owned).collect();
        let variable = words.pop().and_then(|last| last.strip_prefix('=').map(str::to_owned));
        (words, variable)
    });
    trainings.collect()
}

fn verdict_of(words: &[String], variable: Option<&str>) -> Verdict {
    let variables: Vec<(&str, Option<&str>)> =
        variable.iter().map(|value| ("HIGH_AVAILABILITY", Some(*value))).collect();
    let setting = Setting {
        variables: &variables,
        has_unknown_variables: false,
        has_operator_variables: false,
        ..Setting::default()
    };
    let words: Vec<&str> = std::iter::once("torchrun").chain(words.iter().map(String::as_str)).collect();
    read_command(&words, &setting).verdict
}

/// More are run by `SWANSONG_BASH_CASES=20000 cargo test -p swansong-trainer --test against_bash`.
fn cases() -> u32 {
    std::env::var("SWANSONG_BASH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_hold_for_what_bash_starts(text in script()) {
        let report = read_script("start.sh", &text, Some(&[]), &Setting::default());
        let verdict = report.verdict;
        // bash crashes in an endless recursion, behind which nothing is read.
        let is_unread = report.findings.iter().any(|finding| finding.reason == TrainerReason::ScriptUnread);
        if verdict != Verdict::Unknown && !is_unread {
            let folder = tempfile::tempdir().expect("a folder");
            let program = folder.path().join("torchrun");
            let recorder = "#!/bin/sh\n{ printf '%s\\001' \"$@\"; printf '%s\\001\\002' \"${HIGH_AVAILABILITY+=$HIGH_AVAILABILITY}\"; } >> \"$RECORD\"\n";
            fs::write(&program, recorder).expect("a program");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
            for unknown in [None, Some(""), Some("1"), Some("yes"), Some("a b"), Some("--lora-r 8")] {
                for (words, variable) in run(folder.path(), &text, unknown) {
                    let real = verdict_of(&words, variable.as_deref());
                    prop_assert!(
                        (real == Verdict::Can) == (verdict == Verdict::Can),
                        "{} for U={:?}, and bash starts {:?}, which {}", verdict, unknown, words, real
                    );
                }
            }
        }
    }
}
