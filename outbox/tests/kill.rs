//! The process is killed at any point, a thousand times.
//!
//! A child opens the outbox and works on it along a random script. It writes a line before each step and one after it, so that
//! the parent, who kills it by and by and opens the outbox itself, knows what must be there: everything up to the last step
//! that ended, with or without the one that was going on, and nothing in between.

mod common;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::model::{Model, Step};
use common::{open, pending, quick, standing};

const FOLDER: &str = "SWANSONG_OUTBOX_FOLDER";
const SEED: &str = "SWANSONG_OUTBOX_SEED";
/// How often to kill; `make soak` says 1,000.
const ROUNDS: &str = "SWANSONG_KILLS";

/// Works until it is killed; run by the other test of this file only.
#[test]
#[ignore = "it is the child of the test that kills it"]
fn child() {
    let (Some(folder), Ok(seed)) = (env::var_os(FOLDER), env::var(SEED)) else { return };
    let (mut outbox, _) = open(Path::new(&folder));
    let mut random = fastrand::Rng::with_seed(seed.parse().expect("a number"));
    let mut model = Model::of(&outbox);
    let mut stdout = std::io::stdout().lock();
    let mut say = |text: String| {
        writeln!(stdout, "\n@{text}").and_then(|()| stdout.flush()).expect("the parent listens");
    };
    for number in 0.. {
        let step = Step::random(&mut random, &model, &format!("{seed}-{number}"));
        say(format!("begin {}", serde_json::to_string(&step).expect("JSON")));
        step.take(&mut outbox);
        assert!(outbox.durable(), "{:?}", outbox.problem());
        model.take(&step);
        say("end".to_owned());
    }
}

#[test]
fn nothing_is_lost_swapped_or_latched_however_often_it_is_killed() {
    let rounds = env::var(ROUNDS).map_or(100, |rounds| rounds.parse().expect("a number"));
    // What a process wrote outlives it on any disk, and here without waiting for one.
    let folder = quick();
    let mut random = fastrand::Rng::with_seed(71);
    let mut model = Model::default();
    let mut steps = 0;
    for round in 0..rounds {
        let (child, lines) = start(folder.path(), random.u64(..));
        let told = run(child, &lines, &mut random, round);
        steps += told.len();
        let mut going_on = None;
        for line in &told {
            if let Some(step) = line.strip_prefix("begin ") {
                going_on = Some(serde_json::from_str::<Step>(step).expect("a step"));
            } else if let Some(step) = going_on.take() {
                model.take(&step);
            }
        }
        let (outbox, opened) = open(folder.path());
        assert!(outbox.durable() && opened.set_aside.is_none(), "round {round}: {opened:?}");
        let there = Model::of(&outbox);
        let mut with = model.clone();
        if let Some(step) = &going_on {
            with.take(step);
        }
        assert!(
            there == model || there == with,
            "round {round}: {:?} {:?}\n{model:?}\nand then {going_on:?}",
            pending(&outbox),
            standing(&outbox)
        );
        model = there;
    }
    println!("{rounds} kills, {} steps", steps / 2);
    assert!(steps > rounds, "it is killed at work");
}

fn start(folder: &Path, seed: u64) -> (Child, mpsc::Receiver<String>) {
    let mut process = Command::new(env::current_exe().expect("this program"))
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a child");
    let stdout = process.stdout.take().expect("a pipe");
    let (say, lines) = mpsc::channel();
    thread::spawn(move || listen(stdout, &say));
    (process, lines)
}

fn listen(stdout: ChildStdout, say: &mpsc::Sender<String>) {
    for line in BufReader::new(stdout).lines() {
        let Ok(line) = line else { return };
        if let Some(line) = line.strip_prefix('@') {
            let _ = say.send(line.to_owned());
        }
    }
}

/// Lets the child work for some steps, and kills it somewhere in the next.
fn run(
    mut child: Child,
    lines: &mpsc::Receiver<String>,
    random: &mut fastrand::Rng,
    round: usize,
) -> Vec<String> {
    let wanted = random.usize(1..60);
    let mut told = Vec::new();
    while told.len() < wanted {
        told.push(
            lines.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("round {round}: no step")),
        );
    }
    thread::sleep(Duration::from_micros(random.u64(0..3000)));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    told.extend(lines.iter());
    told
}
