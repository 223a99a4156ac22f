//! A fake libdcmi.so for tests, without NPUs: `libdcmi.c` has the vendor's functions and layouts, the machine's C compiler
//! builds it, and a script controls it. It enforces what the vendor's documents require (capacities, a zeroed filter,
//! `init` first, no null pointers, one subscription per process) and records each violation ([`Script::violations`]).
//!
//! # The script
//!
//! A text file with one command per line; words are separated by blanks, `#` begins a comment. Its path is the environment
//! variable `FAKE_DCMI_SCRIPT`, else `libdcmi.script` beside the library. The library reads it when it is loaded and
//! executes appended lines. Lines that exist at the start only change the state: their events aren't delivered and their
//! crashes don't happen, so that a restarted process finds the devices as they were. Devices are named by their logic id,
//! codes are hexadecimal.
//!
//! | command | effect |
//! |---|---|
//! | `card CARD DEVICES` | adds a card with this number of devices; without any, there are cards 0 to 7 with a device each |
//! | `logic CARD DEVICE LOGIC` | sets the device's logic id; the default is its position |
//! | `physical LOGIC PHYSICAL` | sets the device's physical id; the default is its position |
//! | `init N CODE` | the first N `init`s of a process return CODE; with -1 all of them |
//! | `result FUNCTION CODE [LOGIC]` | the function returns CODE (for that device); 0 ends it |
//! | `hang FUNCTION`, `hang none` | the function doesn't return |
//! | `crash FUNCTION`, `crash none` | the function ends the process with a segmentation fault |
//! | `crash` | the process ends with a segmentation fault at once |
//! | `claim FUNCTION COUNT` | `card-list` or `error-codes` return COUNT as their number of results; 0 ends it |
//! | `health LOGIC N` | the device's health, 4294967295 for absent; with -1, the default, it is 2 while codes are active, else 0 |
//! | `codes LOGIC [CODE…]` | replaces the active codes of the device |
//! | `dcmi-version TEXT`, `driver-version TEXT` | sets the versions |
//! | `event LOGIC CODE SEVERITY ASSERTION [NAME]` | delivers an event and updates the active codes |
//! | `flood COUNT PER-MINUTE CODE` | delivers events of all devices ([`codes_after_flood`]); with 0 per minute without a pause |
//! | `raw HEX` | delivers an event of these bytes, padded with zeros |
//! | `null` | calls the callback without an event |
//! | `print TEXT` | prints a line to stdout |
//! | `end-thread` | the driver delivers no further events |
//!
//! FUNCTION is one of `init card-list device-num device-type logic-id physical-id health error-codes subscribe
//! dcmi-version driver-version`, of both generations of the API.

#![allow(clippy::missing_panics_doc, reason = "tests panic when something fails")]

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("libdcmi.c");

/// The environment variable with the path of the script.
pub const SCRIPT_VARIABLE: &str = "FAKE_DCMI_SCRIPT";

/// Builds `libdcmi.so` with all functions of both generations into `folder` and returns its path.
///
/// This needs a C compiler named `cc`.
pub fn build(folder: &Path) -> PathBuf {
    build_without(folder, &[])
}

/// Builds `libdcmi.so` without some functions; `V1` and `V2` mean all functions of a generation.
pub fn build_without(folder: &Path, functions: &[&str]) -> PathBuf {
    let source = folder.join("libdcmi.c");
    let library = folder.join("libdcmi.so");
    // Processes that have loaded the old library keep it.
    let made = folder.join("libdcmi.so.new");
    fs::write(&source, SOURCE).expect("the folder can be written");
    let without = functions.iter().map(|function| format!("-DWITHOUT_{function}"));
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-pthread"])
        .args(without)
        .arg("-o")
        .args([&made, &source])
        .output()
        .expect("a C compiler named cc is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    fs::remove_file(source).expect("just written");
    fs::rename(made, &library).expect("just built");
    library
}

/// Writes the script.
#[derive(Debug, Clone)]
pub struct Script(PathBuf);

impl Script {
    /// Creates an empty script beside a library.
    pub fn beside(library: &Path) -> Self {
        Self::at(library.with_file_name("libdcmi.script"))
    }

    /// Creates an empty script at a path for [`SCRIPT_VARIABLE`].
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let script = Self(path.into());
        File::create(&script.0).expect("the script can be written");
        script
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Appends a line.
    pub fn line(&self, line: impl fmt::Display) -> &Self {
        let line = format!("{line}\n");
        let file = OpenOptions::new().append(true).open(&self.0);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the script can be written");
        self
    }

    /// Empties the script. A library that has read it keeps its state.
    pub fn clear(&self) -> &Self {
        File::create(&self.0).expect("the script can be written");
        self
    }

    /// Adds a card.
    pub fn card(&self, card: u32, devices: u32) -> &Self {
        self.line(format_args!("card {card} {devices}"))
    }

    /// Sets a device's physical id.
    pub fn physical(&self, logic: u32, physical: u32) -> &Self {
        self.line(format_args!("physical {logic} {physical}"))
    }

    /// Makes the first `times` calls of `init` in a process fail.
    pub fn init_fails(&self, times: i32, code: i32) -> &Self {
        self.line(format_args!("init {times} {code}"))
    }

    /// Sets the return code of a function, for one device or for all.
    pub fn result(&self, function: &str, code: i32, logic: Option<u32>) -> &Self {
        let logic = logic.map(|logic| logic.to_string()).unwrap_or_default();
        self.line(format_args!("result {function} {code} {logic}"))
    }

    /// Makes a function hang.
    pub fn hang(&self, function: &str) -> &Self {
        self.line(format_args!("hang {function}"))
    }

    /// Ends the process with a segmentation fault.
    pub fn crash(&self) -> &Self {
        self.line("crash")
    }

    /// Replaces the active codes of a device.
    pub fn codes(&self, logic: u32, codes: &[u32]) -> &Self {
        let codes: Vec<String> = codes.iter().map(|code| format!("{code:X}")).collect();
        self.line(format_args!("codes {logic} {}", codes.join(" ")))
    }

    /// Sets the device's health independently of its codes.
    pub fn health(&self, logic: u32, health: u32) -> &Self {
        self.line(format_args!("health {logic} {health}"))
    }

    /// Delivers an event; the assertion is 0 for a recovery, 1 for an occurrence, 2 for a notice.
    pub fn event(&self, logic: u32, code: u32, severity: u8, assertion: u8, name: &str) -> &Self {
        self.line(format_args!("event {logic} {code:X} {severity} {assertion} {name}"))
    }

    /// Delivers events of all devices; 0 per minute means without a pause.
    pub fn flood(&self, count: u32, per_minute: u32, first_code: u32) -> &Self {
        self.line(format_args!("flood {count} {per_minute} {first_code:X}"))
    }

    /// Delivers an event of these bytes.
    pub fn raw(&self, bytes: &[u8]) -> &Self {
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.line(format_args!("raw {}", digits.concat()))
    }

    /// The violations of the vendor's documents by the library's caller, one per line.
    pub fn violations(&self) -> String {
        let mut path = self.0.clone().into_os_string();
        path.push(".violations");
        match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.expect("the violations can be read"),
        }
    }
}

/// The codes that are active after a flood, as pairs of logic id and code. Event i belongs to device i mod `devices`; a
/// device's events with an even number are occurrences of code `first` + number/2 mod 100, each followed by its recovery.
pub fn codes_after_flood(count: u32, devices: u32, first: u32) -> BTreeSet<(u32, u32)> {
    let mut active = BTreeSet::new();
    for event in 0..count {
        let (logic, round) = (event % devices, event / devices);
        let fault = (logic, first + round / 2 % 100);
        if round % 2 == 0 {
            active.insert(fault);
        } else {
            active.remove(&fault);
        }
    }
    active
}
