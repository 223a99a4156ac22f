//! How long it takes to read a command and a start script.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, iter};

use criterion::{Criterion, criterion_group, criterion_main};
use swansong_trainer::{Setting, read_command, read_script};

const SCRIPT: &str = include_str!("../tests/corpus/pretrain_tee.sh");

fn read(criterion: &mut Criterion) {
    let setting = Setting::default();
    let mut group = criterion.benchmark_group("trainer");
    group.bench_function("script", |bencher| {
        bencher.iter(|| read_script("start.sh", SCRIPT, None, &setting));
    });
    let (name, text) = slowest();
    group.bench_function(format!("slowest script of the corpus, {name}"), |bencher| {
        bencher.iter(|| read_script("start.sh", &text, None, &setting));
    });
    let command =
        ["/bin/bash", "-c", "cd /job/code; chmod +x scripts/train_start.sh; bash scripts/train_start.sh"];
    group.bench_function("command", |bencher| bencher.iter(|| read_command(&command, &setting)));
    // What costs most: branches that differ, in loops of unknown length, with long values.
    let branch = "[ -f x ] && A=\"$A y\" || B=\"$B z\"\n";
    let hostile = [
        ("a line of 1 MB", format!("A={} torchrun pretrain_gpt.py", "x".repeat(1 << 20))),
        ("10,000 branches", branch.repeat(10_000)),
        (
            "10,000 branches and a value of 500 KB",
            format!("V={}\n{}", "x".repeat(500_000), branch.repeat(10_000)),
        ),
        ("loops in loops", format!("{}{branch}{}", "for i in $X; do\n".repeat(30), "done\n".repeat(30))),
        ("functions that call each other", "f() { f; g; }\ng() { f; g; }\nf\n".to_owned()),
    ];
    group.sample_size(10);
    for (name, text) in &hostile {
        group.bench_function(*name, |bencher| {
            bencher.iter(|| read_script("start.sh", text, None, &setting));
        });
    }
    group.finish();
}

/// The script of the corpus that takes longest to read.
fn slowest() -> (String, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let scripts = paths.filter(|path| path.is_file()).map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("a script"))
    });
    let time = |text: &str| -> Duration {
        let setting = Setting::default();
        let once = || {
            let start = Instant::now();
            black_box(read_script("start.sh", text, None, &setting));
            start.elapsed()
        };
        iter::repeat_with(once).take(20).min().unwrap_or_default()
    };
    scripts.max_by_key(|(_, text)| time(text)).expect("scripts")
}

criterion_group!(benches, read);
criterion_main!(benches);
