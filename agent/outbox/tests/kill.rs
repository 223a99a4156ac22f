//! The process is killed at any point, a thousand times.
//!
//! A child opens the outbox and works on it along a random script. It writes a line before each step and one
//! after it, so that the parent, who kills it by and by and opens the outbox itself, knows what must be
//! there: everything up to the last step that ended, with or without the one that was going on, and nothing
//! in between.

mod common;

use std::collections::BTreeMap;
use std::env;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::model::{Model, Step};
use common::{occur, open, pending, quick, recover, standing};
use swansong_outbox::{Appended, Kind};

const FOLDER: &str = "SWANSONG_OUTBOX_FOLDER";
const SEED: &str = "SWANSONG_OUTBOX_SEED";
/// How often to kill; `make soak` says 1,000.
const ROUNDS: &str = "SWANSONG_KILLS";

/// What a child is given: a folder, and a source of chance with its seed.
fn given() -> Option<(PathBuf, fastrand::Rng, String)> {
    let seed = env::var(SEED).ok()?;
    let random = fastrand::Rng::with_seed(seed.parse().expect("a number"));
    Some((env::var_os(FOLDER)?.into(), random, seed))
}

/// Says a line to the parent, so that it is out when this returns.
fn say(text: impl Display) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\n@{text}").and_then(|()| stdout.flush()).expect("the parent listens");
}

fn rounds() -> usize {
    env::var(ROUNDS).map_or(100, |rounds| rounds.parse().expect("a number"))
}

/// Works until it is killed; run by the other test of this file only.
#[test]
#[ignore = "it is the child of the test that kills it"]
fn child() {
    let Some((folder, mut random, seed)) = given() else { return };
    let (mut outbox, _) = open(&folder);
    let mut model = Model::of(&outbox);
    for number in 0.. {
        let step = Step::random(&mut random, &model, &format!("{seed}-{number}"));
        say(format!("begin {}", serde_json::to_string(&step).expect("JSON")));
        step.take(&mut outbox);
        assert!(outbox.durable(), "{:?}", outbox.problem());
        model.take(&step);
        say("end");
    }
}

#[test]
fn what_ended_before_a_kill_is_there_after_it_and_nothing_is_half_done() {
    let rounds = rounds();
    // What a process wrote outlives it on any disk, and here without waiting for one.
    let folder = quick();
    let mut random = fastrand::Rng::with_seed(71);
    let mut model = Model::default();
    let mut steps = 0;
    for round in 0..rounds {
        let (child, lines) = start("child", folder.path(), random.u64(..));
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

/// Makes faults and recoveries, and sends what waits, until it is killed.
#[test]
#[ignore = "it is the child of the test that kills it"]
fn relaying_child() {
    let Some((folder, mut random, seed)) = given() else { return };
    let (mut outbox, _) = open(&folder);
    for number in 0.. {
        if random.bool() {
            let key = format!("npu{}", random.u32(..6));
            let last = outbox.pending().filter(|pending| pending.entry.key == key).last();
            let stands = outbox.standing().find(|standing| standing.key == key);
            let begun = match last.map(|last| &last.entry) {
                Some(last) => (last.kind == Kind::Occur).then(|| last.id.clone()),
                None => stands.map(|standing| standing.id.clone()),
            };
            let made = match begun {
                Some(id) => recover(&key, &id),
                None => occur(&key, &format!("{seed}-{number}")),
            };
            let line = format!("{} {} {:?}", made.key, made.id, made.kind);
            say(format!("making {line}"));
            assert!(matches!(outbox.append(made), Appended::Stored(_)));
            say(format!("made {line}"));
        } else {
            let some = random.usize(..4);
            let heads = random.choose_multiple(outbox.heads().map(|head| head.seq), some);
            outbox.mark_offered(&heads);
            for pending in outbox.pending().filter(|pending| heads.contains(&pending.seq)) {
                say(format!("sent {} {} {:?}", pending.entry.key, pending.entry.id, pending.entry.kind));
            }
            outbox.accept(&heads, number);
        }
    }
}

/// What a receiver got and what was made, by key and in order.
#[derive(Default)]
struct Told {
    /// With whether it is certain that it got into the outbox.
    made: BTreeMap<String, Vec<(String, bool)>>,
    received: BTreeMap<String, Vec<String>>,
}

impl Told {
    fn hear(&mut self, line: &str) {
        let (verb, rest) = line.split_once(' ').expect("a verb");
        let (key, entry) = rest.split_once(' ').expect("a key");
        let (key, entry) = (key.to_owned(), entry.to_owned());
        match verb {
            "making" => self.made.entry(key).or_default().push((entry, false)),
            "made" => {
                let last = self.made.entry(key).or_default().last_mut().expect("it was being made");
                assert_eq!(last.0, entry);
                last.1 = true;
            }
            "sent" => self.received.entry(key).or_default().push(entry),
            verb => panic!("{verb}"),
        }
    }

    /// All that was made came, in order and with the same id if it came twice.
    fn check(mut self) -> usize {
        let mut twice = 0;
        for (key, made) in self.made {
            let mut received = self.received.remove(&key).unwrap_or_default();
            let all = received.len();
            received.dedup();
            twice += all - received.len();
            let mut expected: Vec<String> = made
                .into_iter()
                .filter(|(entry, certain)| *certain || received.contains(entry))
                .map(|(entry, _)| entry)
                .collect();
            // What a kill kept out is made again.
            expected.dedup();
            assert_eq!(received, expected, "{key}");
        }
        assert!(self.received.is_empty(), "{:?}", self.received);
        twice
    }
}

#[test]
fn nothing_is_lost_swapped_or_latched_and_what_comes_twice_has_the_same_id() {
    let folder = quick();
    let mut random = fastrand::Rng::with_seed(6);
    let mut told = Told::default();
    for round in 0..rounds() {
        let (child, lines) = start("relaying_child", folder.path(), random.u64(..));
        for line in run(child, &lines, &mut random, round) {
            told.hear(&line);
        }
    }
    let (mut outbox, _) = open(folder.path());
    while outbox.counts().pending > 0 {
        let heads: Vec<u64> = outbox.heads().map(|head| head.seq).collect();
        for head in outbox.heads() {
            told.hear(&format!("sent {} {} {:?}", head.entry.key, head.entry.id, head.entry.kind));
        }
        outbox.accept(&heads, 0);
    }
    let standing: Vec<String> = outbox.standing().map(|standing| format!("{} Occur", standing.id)).collect();
    let last = |received: &Vec<String>| received.last().filter(|last| last.ends_with("Occur")).cloned();
    let mut open: Vec<String> = told.received.values().filter_map(last).collect();
    open.sort();
    assert_eq!(standing, open, "what stands is what wasn't recovered");
    let entries: usize = told.made.values().map(Vec::len).sum();
    let twice = told.check();
    println!("{} kills, {entries} entries, {twice} of them came twice", rounds());
    assert!(entries > rounds());
}

fn start(test: &str, folder: &Path, seed: u64) -> (Child, mpsc::Receiver<String>) {
    let mut process = Command::new(env::current_exe().expect("this program"))
        .args([test, "--exact", "--ignored", "--nocapture"])
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
