//! What it costs to append, durably and not, on the disk of the system's temporary files, and to open.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use swansong_outbox::{Appended, Entry, Kind, Limits, Outbox};
use tempfile::{TempDir, tempdir, tempdir_in};

fn entry(n: u64) -> Entry {
    Entry {
        key: format!("npu{}", n % 16),
        id: format!("fault-{n}"),
        kind: Kind::Once,
        at: n,
        body: vec![b'x'; 500],
    }
}

fn open(folder: &Path) -> Outbox {
    Outbox::open(folder, Limits::default(), Duration::ZERO).expect("nobody else has it").0
}

fn stored(appended: &Appended) -> u64 {
    let Appended::Stored(seq) = appended else { panic!("{appended:?}") };
    *seq
}

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append");
    let folders: [(&str, Option<TempDir>); 2] =
        [("disk", tempdir().ok()), ("memory", tempdir_in("/dev/shm").ok())];
    for (disk, folder) in folders.iter().filter_map(|(disk, folder)| Some((disk, folder.as_ref()?))) {
        let mut outbox = open(folder.path());
        let mut number = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("one, accepted at once, {disk}"), |bencher| {
            bencher.iter(|| {
                number += 1;
                let seq = stored(&outbox.append(entry(number)));
                outbox.accept(black_box(&[seq]), number);
            });
        });
        group.throughput(Throughput::Elements(100));
        group.bench_function(format!("a hundred, accepted at once, {disk}"), |bencher| {
            bencher.iter(|| {
                number += 100;
                let appended = outbox.append_all((0..100).map(|n| entry(number + n)));
                let places: Vec<u64> = appended.iter().map(stored).collect();
                outbox.accept(&places, number);
            });
        });
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("one, {disk}"), |bencher| {
            bencher.iter_custom(|times| {
                let mut taken = Duration::ZERO;
                for _ in 0..times {
                    number += 1;
                    let entry = entry(number);
                    let begun = Instant::now();
                    let appended = outbox.append(entry);
                    taken += begun.elapsed();
                    outbox.accept(&[stored(&appended)], number);
                }
                taken
            });
        });
        assert!(outbox.durable(), "{:?}", outbox.problem());
    }
    group.finish();
}

fn reopen(criterion: &mut Criterion) {
    let folder = tempdir().expect("a folder");
    open(folder.path()).append_all((0..1000).map(entry));
    criterion.bench_function("open with a thousand that wait", |bencher| {
        bencher.iter(|| black_box(open(folder.path())));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(4)).warm_up_time(Duration::from_secs(1)).sample_size(20);
    targets = append, reopen
}
criterion_main!(benches);
