//! How long it takes to read a command and a start script.

use criterion::{Criterion, criterion_group, criterion_main};
use swansong_trainer::{Setting, read_command, read_script};

const SCRIPT: &str = include_str!("../tests/corpus/pretrain_tee.sh");
const BRANCHES: &str = include_str!("../tests/corpus/branches_differ.sh");
const LOOP: &str = include_str!("../tests/corpus/options_loop_unknown.sh");

fn read(criterion: &mut Criterion) {
    let setting = Setting::default();
    let mut group = criterion.benchmark_group("trainer");
    for (name, text) in [("script", SCRIPT), ("script with branches", BRANCHES), ("script with a loop", LOOP)]
    {
        group.bench_function(name, |bencher| bencher.iter(|| read_script("start.sh", text, None, &setting)));
    }
    let command =
        ["/bin/bash", "-c", "cd /job/code; chmod +x scripts/train_start.sh; bash scripts/train_start.sh"];
    group.bench_function("command", |bencher| bencher.iter(|| read_command(&command, &setting)));
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
