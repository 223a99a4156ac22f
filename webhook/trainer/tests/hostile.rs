//! No text makes the reader fail, hang or promise more than is known.

use proptest::prelude::*;
use swansong_trainer::{RunningProcess, Setting, Verdict, read_command, read_process, read_script};

/// Parts of scripts, in any order.
const PARTS: &[&str] = &[
    "if",
    "then",
    "else",
    "elif",
    "fi",
    "for i in 1 2",
    "while true",
    "do",
    "done",
    "case $1 in",
    "esac",
    ";;",
    "a)",
    "f()",
    "{",
    "}",
    "(",
    ")",
    "((",
    "))",
    "[[",
    "]]",
    "[ -z $A ]",
    "$(",
    "`",
    "${A:-",
    "${A[@]}",
    "${#A}",
    "${!A}",
    "$((1+",
    "'",
    "\"",
    "\\\n",
    "\n",
    ";",
    "&",
    "&&",
    "||",
    "|",
    "| tee log",
    "<<EOF",
    "EOF\n",
    "<<-'X'",
    ">",
    "2>&1",
    "A=b",
    "A+=(x)",
    "A=$A$A",
    "export",
    "source x.sh",
    "eval",
    "bash -c",
    "ssh host",
    "set -- $@",
    "shift",
    "break",
    "return",
    "exit",
    "f",
    "torchrun",
    "python -m torch.distributed.launch",
    "pretrain_gpt.py",
    "--save",
    "$B",
    "--lora-r",
    "8",
    "\u{F0000}",
    "é",
    "#",
    "!",
    "*",
    "{1..9}",
    "=",
];

fn script() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => prop::sample::select(PARTS).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(part, 0..60).prop_map(|parts| parts.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3500, ..ProptestConfig::default() })]

    #[test]
    fn any_script_is_read(text in script()) {
        read_script("x.sh", &text, None, &Setting::default());
    }

    #[test]
    fn any_command_is_read(words in prop::collection::vec(prop_oneof![script(), any::<String>()], 0..8)) {
        read_command(&words, &Setting::default());
    }

    #[test]
    fn any_process_is_read(line in prop::collection::vec(any::<u8>(), 0..200)) {
        read_process(&RunningProcess { command_line: &line, ..RunningProcess::default() });
    }
}

/// An unknown value in the place of any word of a command that can save takes the promise back.
#[test]
fn unknown_word_is_no_promise() {
    let words = COMMAND.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(verdict(&words), Verdict::Can);
    for at in 0..words.len() {
        for unknown in ["$UNKNOWN", "$1", "$(cat /job/word)", "$@"] {
            let mut words = words.clone();
            words[at] = unknown.to_owned();
            assert_ne!(verdict(&words), Verdict::Can, "{}", words.join(" "));
        }
    }
}

const COMMAND: &str = "torchrun --nproc_per_node 8 --nnodes 2 MindSpeed-LLM/pretrain_gpt.py --use-distributed-optimizer \
                       --tensor-model-parallel-size 2 --data-path /data --save /ckpt";

fn verdict(words: &[String]) -> Verdict {
    read_script("start.sh", &words.join(" "), None, &Setting::default()).verdict
}

#[test]
fn deep_and_large_scripts_end() {
    let n = 200_000;
    for text in [
        "(".repeat(n),
        "$(".repeat(n),
        "${A:-".repeat(n),
        "if ".repeat(n),
        "\"$(".repeat(n),
        "`".repeat(n),
        "f() { f; f; }; f".to_owned(),
        format!("A=x\n{}", "A=$A$A\n".repeat(60)),
        format!("A=()\n{}echo \"${{A[@]}}\"", "A+=(\"${A[@]}\" x)\n".repeat(60)),
        "while true; do A=$A.; done\n".to_owned(),
        format!("{}torchrun pretrain_gpt.py $X", "[ -f x ] && X=\"$X a\" || X=\"$X b\"\n".repeat(60)),
        format!("{}:", "if [ -f x ]; then A=1; fi; for i in $X; do ".repeat(30)),
        "cat <<EOF\n".repeat(1000),
        "x ".repeat(n),
        "#!/bin/bash\n".repeat(n),
    ] {
        read_script("x.sh", &text, None, &Setting::default());
    }
}
