//! What a scan of the preload check costs: CPU time of this process, user and kernel.
//!
//! `cargo bench --package swansong-agent --bench scan`. Goal: 5,000 processes under 50 ms.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use procfs::process::Process;
use swansong_agent::host::Machine;
use swansong_agent::preload::{InjectedContainer, InjectedPod, Launcher, Outcome, scan};

const PROCESSES: usize = 5_000;
const TRAINERS: usize = 128;
const MAP_LINES: usize = 3_000;
const ROUNDS: u32 = 20;

const UID: &str = "0f4cbf1a-2b37-4c1d-9a8e-5d1c3b2a1f00";
const ID: &str = "5a0b6c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccddeef";

fn main() {
    let pods = [InjectedPod {
        uid: UID.to_owned(),
        namespace: "n".to_owned(),
        name: "p".to_owned(),
        containers: vec![InjectedContainer {
            name: "ascend".to_owned(),
            id: Some(ID.to_owned()),
            libraries: vec!["/c/libmspti.so".to_owned(), "/t/libtaskd.so".to_owned()],
            launcher: Launcher::default(),
        }],
        discovery: None,
    }];

    let sleepers: Vec<Child> = (0..PROCESSES).map(|_| sleeper()).collect();
    let cost = measure(|| {
        scan(Path::new("/proc"), &pods, Duration::ZERO, Machine::HOST).expect("a procfs");
    });
    println!("{PROCESSES} foreign processes beside this machine's own: {} a scan", milliseconds(cost));
    for mut sleeper in sleepers {
        // Both fail only if it has ended already.
        let _ = sleeper.kill();
        let _ = sleeper.wait();
    }

    let folder = tempfile::tempdir().expect("a temporary folder");
    trainers(folder.path());
    let cost = measure(|| {
        let verdicts = scan(folder.path(), &pods, Duration::ZERO, Machine::HOST).expect("a procfs");
        let verdict = verdicts[0].containers[0].verdict.as_ref();
        assert_eq!(verdict.map(|verdict| verdict.outcome), Some(Outcome::Live));
    });
    println!(
        "{TRAINERS} training processes with maps of {MAP_LINES} lines, as files: {} a scan (a kernel adds what it takes to write the maps)",
        milliseconds(cost)
    );
}

fn sleeper() -> Child {
    Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().expect("sleep")
}

/// A procfs of training processes with the libraries at the end of their maps.
fn trainers(proc: &Path) {
    fs::write(proc.join("uptime"), "1000.00 1000.00\n").expect("written");
    let line = "7f0000000000-7f0000001000 r-xp 00000000 fd:00 42                         /usr/lib/libsomething-longer.so.1\n";
    let ours = "7f0000000000-7f0000001000 r-xp 00000000 fd:00 42 /c/libmspti.so\n7f0000000000-7f0000001000 r-xp 00000000 fd:00 43 /t/libtaskd.so\n";
    let maps = line.repeat(MAP_LINES) + ours;
    for pid in 1..=TRAINERS {
        let folder = proc.join(pid.to_string());
        fs::create_dir(&folder).expect("made");
        let stat = format!(
            "{pid} (python) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 100 1000 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
        );
        let group = format!("0::/kubepods/burstable/pod{UID}/{ID}\n");
        let environ = "PATH=/bin\0LD_PRELOAD=/c/libmspti.so:/t/libtaskd.so\0";
        for (file, content) in
            [("stat", &stat[..]), ("cgroup", &group), ("environ", environ), ("maps", &maps)]
        {
            fs::write(folder.join(file), content).expect("written");
        }
        std::os::unix::fs::symlink("/usr/bin/python3.10", folder.join("exe")).expect("linked");
    }
}

/// Mean CPU time of a round. The kernel counts it in ticks of 10 ms, so many rounds are taken together.
fn measure(mut round: impl FnMut()) -> Duration {
    round();
    let start = cpu();
    (0..ROUNDS).for_each(|_| round());
    cpu().saturating_sub(start) / ROUNDS
}

fn cpu() -> Duration {
    let stat = Process::myself().and_then(|process| process.stat()).expect("a procfs");
    let ticks = stat.utime + stat.stime;
    Duration::from_millis(ticks * 1000 / procfs::ticks_per_second())
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
