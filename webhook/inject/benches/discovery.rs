//! The init container's script that finds the libraries, in each shell of this machine, with this machine's files as image.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use swansong_inject::discovery::script;

const RUNS: usize = 11;
/// As the first arguments of a command.
const SHELLS: [&[&str]; 3] = [&["dash"], &["bash", "--posix"], &["busybox", "sh"]];
const LIBTASKD: &str = "taskd/python/cython_api/libs/libtaskd.so";

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let site = install(folder.path());
    let files = Command::new("find").args(["/", "-xdev"]).stderr(Stdio::null()).output().unwrap().stdout;
    println!("{} files, medians of {RUNS} runs", files.split(|byte| *byte == b'\n').count());
    for shell in SHELLS {
        if Command::new(shell[0]).args(&shell[1..]).args(["-c", ":"]).status().is_err() {
            println!("{}: not installed", shell[0]);
            continue;
        }
        let asked = median(shell, folder.path(), &site, script());
        assert!(folder.path().join("links/libtaskd.so").exists());
        // This machine may have TaskD; it surely doesn't have this.
        let searched = median(shell, folder.path(), &site, &script().replace("libtaskd.so", "libabsent.so"));
        println!("{}: Python knows TaskD {asked:.2?}, the whole image has none {searched:.2?}", shell[0]);
    }
}

/// A package `taskd` in a site directory.
fn install(folder: &Path) -> PathBuf {
    let site = folder.join("site");
    fs::create_dir_all(site.join(LIBTASKD).parent().unwrap()).unwrap();
    fs::write(site.join(LIBTASKD), "").unwrap();
    fs::write(site.join("taskd/__init__.py"), "").unwrap();
    site
}

/// The time of a script with `site` on Python's path.
fn median(shell: &[&str], folder: &Path, site: &Path, script: &str) -> Duration {
    let links = folder.join("links").display().to_string();
    fs::create_dir_all(&links).unwrap();
    let log = folder.join("log").display().to_string();
    let script = script.replace("/dev/termination-log", &log).replace("/opt/swansong", &links);
    let run = || {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).args(["-c", &script]).env("PYTHONPATH", site).stdout(Stdio::null());
        let start = Instant::now();
        assert!(command.status().unwrap().success());
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..RUNS).map(|_| run()).collect();
    times.sort();
    times[RUNS / 2]
}
