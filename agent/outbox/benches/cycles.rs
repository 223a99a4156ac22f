//! Whether the outbox stays as it is over a million entries: size of its file, memory of the process. Ends
//! with 1 when a bound isn't kept. `make soak` runs it; `SWANSONG_SOAK_CYCLES` changes how many.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use swansong_outbox::{Appended, Entry, Kind, Limits, Outbox};
use tempfile::{tempdir, tempdir_in};

/// Of the file, after everything was accepted; and what the process may grow by.
const FILE_KIB: u64 = 1024;
const GROWTH_KIB: u64 = 2048;

fn main() -> ExitCode {
    // `cargo test --benches` runs this too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let setting = std::env::var("SWANSONG_SOAK_CYCLES").map_or(Ok(1_000_000), |cycles| cycles.parse());
    let cycles: u64 = setting.expect("SWANSONG_SOAK_CYCLES is a number");
    // Size and memory are the same on any disk, and here nothing waits for one.
    let folder = tempdir_in("/dev/shm").or_else(|_| tempdir()).expect("a folder");
    let (mut outbox, _) =
        Outbox::open(folder.path(), Limits::default(), Duration::ZERO).expect("nobody else has it");
    let file = folder.path().join("outbox.redb");
    let begun = Instant::now();
    let mut settled = 0;
    println!("| episodes | file KiB | RSS KiB | s |\n|---|---|---|---|");
    for n in 0..cycles {
        cycle(&mut outbox, n);
        if n == cycles / 10 {
            settled = rss_kib();
        }
        if (n + 1) % (cycles / 10).max(1) == 0 {
            println!("| {} | {} | {} | {} |", n + 1, kib(&file), rss_kib(), begun.elapsed().as_secs());
        }
    }
    let grown = rss_kib().saturating_sub(settled);
    println!(
        "\ngrown by {grown} KiB since the first tenth, of {GROWTH_KIB} allowed; the file may have {FILE_KIB}"
    );
    let kept =
        grown <= GROWTH_KIB && kib(&file) <= FILE_KIB && outbox.durable() && outbox.counts().standing == 0;
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// An episode from beginning to end: five transactions.
fn cycle(outbox: &mut Outbox, n: u64) {
    let entry = |kind| Entry {
        key: format!("npu{}", n % 16),
        id: format!("fault-{n}"),
        kind,
        at: n,
        body: vec![b'x'; 500],
    };
    for kind in [Kind::Occur, Kind::Recover] {
        let Appended::Stored(seq) = outbox.append(entry(kind)) else { panic!("there is room") };
        if kind == Kind::Occur {
            outbox.mark_offered(&[seq]);
        }
        outbox.accept(&[seq], n);
    }
}

fn kib(file: &Path) -> u64 {
    fs::metadata(file).expect("a file").len() >> 10
}

/// Of this process.
fn rss_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a procfs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is told");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}
