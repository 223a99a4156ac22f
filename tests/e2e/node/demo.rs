//! `make demo`, as people see it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use swansong_demo::definitions;
use swansong_demo::screen::{ACT, Screen};
use swansong_demo::tour::{Length, Tour};
use swansong_testcluster::{Tier, prerequisites};

/// Lines of a terminal.
const SCREEN: usize = 40;

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the demo prints; nothing if this machine can't run it.
async fn run(length: Length) -> Option<String> {
    let missing = prerequisites::check(Tier::Node);
    if !missing.is_empty() && std::env::var_os("CI").is_none() {
        eprintln!("passed over: {missing:?}");
        return None;
    }
    let tour = Tour {
        swansong: PathBuf::from(env!("CARGO_BIN_EXE_swansong")),
        definitions: definitions::file(),
        keep: false,
        length,
        time_factor: 0.2,
    };
    let output = Output::default();
    let is_right = tour.run(&Screen::new(output.clone()), std::future::pending()).await;
    let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
    assert!(matches!(is_right, Ok(true)), "{is_right:?}\n{text}");
    Some(text)
}

/// Each act fits on a screen; returns how many there are.
fn acts(text: &str) -> usize {
    let parts: Vec<&str> = text.split(ACT).collect();
    for part in &parts {
        assert!(part.lines().count() <= SCREEN, "{part}");
    }
    parts.len() - 1
}

#[tokio::test]
async fn the_demo_shows_a_checkpoint_and_a_control_without_one() {
    let Some(text) = run(Length::Full).await else { return };
    assert_eq!(acts(&text), 4, "{text}");
    for shown in ["from the fault to the checkpoint: /", "DumpSucceeded", "✘ no checkpoint in /"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}

#[tokio::test]
async fn the_quick_demo_ends_after_the_injection() {
    let Some(text) = run(Length::Quick).await else { return };
    assert_eq!(acts(&text), 2, "{text}");
}
