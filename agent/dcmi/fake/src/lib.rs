//! A libdcmi.so without NPUs, for tests: the vendor's functions and layouts, built from `libdcmi.c` by the machine's C
//! compiler and driven by a script. It demands what the vendor's documents do (capacities, a zeroed filter, `init`
//! first, no null pointers, one subscription in a process) and notes every breach ([`Script::violations`]).
//!
//! # The script
//!
//! A text file, a command a line, words parted by blanks, `#` before remarks. It is the file that the environment
//! variable `DCMI_STANDIN_SCRIPT` names, else `libdcmi.script` beside the library. The library reads it when it is
//! loaded and follows what is appended. Lines that were there before it was loaded leave their state behind and nothing
//! else: their events aren't told and their crashes don't happen, so that a process that is started anew finds the
//! devices as they were. Devices are named by their logic id, codes are hexadecimal.
//!
//! | command | what it does |
//! |---|---|
//! | `card CARD DEVICES` | there is a card with so many devices; without any: cards 0 to 7, a device each |
//! | `logic CARD DEVICE LOGIC` | the device's logic id; else they are counted |
//! | `physical LOGIC PHYSICAL` | the device's physical id; else the same |
//! | `init N CODE` | the first N `init`s of a process return CODE; with -1 all do |
//! | `result FUNCTION CODE [LOGIC]` | the function returns CODE (for that device); 0 ends it |
//! | `hang FUNCTION`, `hang none` | the function doesn't return |
//! | `crash FUNCTION`, `crash none` | the function ends the process with a segmentation fault |
//! | `crash` | the process ends so at once |
//! | `claim FUNCTION COUNT` | `card-list` or `error-codes` say COUNT, whatever they write; 0 ends it |
//! | `health LOGIC N` | the device's health, 4294967295 for absent; -1: 2 while codes stand, else 0 |
//! | `codes LOGIC [CODE…]` | the codes that stand at the device |
//! | `dcmi-version TEXT`, `driver-version TEXT` | the versions |
//! | `event LOGIC CODE SEVERITY ASSERTION [NAME]` | an event; it changes what stands |
//! | `flood COUNT PER-MINUTE CODE` | events all over the devices ([`flood_leaves`]); 0 per minute: at once |
//! | `raw HEX` | an event of these bytes, then zeros |
//! | `null` | the callback gets no event |
//! | `print TEXT` | a line on stdout |
//! | `end-thread` | the driver's thread tells nothing any more |
//!
//! FUNCTION is one of `init card-list device-num device-type logic-id physical-id health error-codes subscribe
//! dcmi-version driver-version`, of both generations of the API.

#![allow(clippy::missing_panics_doc, reason = "it is for tests: whatever fails there panics")]

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("libdcmi.c");

/// Names the script.
pub const SCRIPT_VARIABLE: &str = "DCMI_STANDIN_SCRIPT";

/// Builds `libdcmi.so` with all functions of both generations into `folder`; where it is.
///
/// It needs a C compiler named `cc`.
pub fn build(folder: &Path) -> PathBuf {
    build_without(folder, &[])
}

/// Builds `libdcmi.so` without some functions, `V1` and `V2` standing for all of a generation.
pub fn build_without(folder: &Path, functions: &[&str]) -> PathBuf {
    let source = folder.join("libdcmi.c");
    let library = folder.join("libdcmi.so");
    // Whoever has it open keeps the one that it has.
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    fs::remove_file(source).expect("just written");
    fs::rename(made, &library).expect("just built");
    library
}

/// Writes a script, line by line.
#[derive(Debug, Clone)]
pub struct Script(PathBuf);

impl Script {
    /// The script beside a library, empty.
    pub fn beside(library: &Path) -> Self {
        Self::at(library.with_file_name("libdcmi.script"))
    }

    /// The script at a path, empty; name it by [`SCRIPT_VARIABLE`].
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let script = Self(path.into());
        File::create(&script.0).expect("the script can be written");
        script
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Appends a line as it is.
    pub fn line(&self, line: impl fmt::Display) -> &Self {
        let line = format!("{line}\n");
        let file = OpenOptions::new().append(true).open(&self.0);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the script can be written");
        self
    }

    /// Forgets all that was written. A library that has read it keeps its state.
    pub fn clear(&self) -> &Self {
        File::create(&self.0).expect("the script can be written");
        self
    }

    /// There is a card.
    pub fn card(&self, card: u32, devices: u32) -> &Self {
        self.line(format_args!("card {card} {devices}"))
    }

    /// A device's physical id.
    pub fn physical(&self, logic: u32, physical: u32) -> &Self {
        self.line(format_args!("physical {logic} {physical}"))
    }

    /// The first `times` inits of a process fail.
    pub fn init_fails(&self, times: i32, code: i32) -> &Self {
        self.line(format_args!("init {times} {code}"))
    }

    /// What a function returns, for a device or for all.
    pub fn result(&self, function: &str, code: i32, logic: Option<u32>) -> &Self {
        let logic = logic.map(|logic| logic.to_string()).unwrap_or_default();
        self.line(format_args!("result {function} {code} {logic}"))
    }

    /// The function doesn't return.
    pub fn hang(&self, function: &str) -> &Self {
        self.line(format_args!("hang {function}"))
    }

    /// The process ends with a segmentation fault.
    pub fn crash(&self) -> &Self {
        self.line("crash")
    }

    /// The codes that stand at a device.
    pub fn codes(&self, logic: u32, codes: &[u32]) -> &Self {
        let codes: Vec<String> = codes.iter().map(|code| format!("{code:X}")).collect();
        self.line(format_args!("codes {logic} {}", codes.join(" ")))
    }

    /// The device's health, whatever stands.
    pub fn health(&self, logic: u32, health: u32) -> &Self {
        self.line(format_args!("health {logic} {health}"))
    }

    /// An event: assertion 0 recovery, 1 occurrence, 2 notice.
    pub fn event(&self, logic: u32, code: u32, severity: u8, assertion: u8, name: &str) -> &Self {
        self.line(format_args!("event {logic} {code:X} {severity} {assertion} {name}"))
    }

    /// Events all over the devices; 0 a minute: at once.
    pub fn flood(&self, count: u32, per_minute: u32, first_code: u32) -> &Self {
        self.line(format_args!("flood {count} {per_minute} {first_code:X}"))
    }

    /// An event of these bytes.
    pub fn raw(&self, bytes: &[u8]) -> &Self {
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.line(format_args!("raw {}", digits.concat()))
    }

    /// What whoever called the library did against its documents, a line each.
    pub fn violations(&self) -> String {
        let mut path = self.0.clone().into_os_string();
        path.push(".violations");
        match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.expect("the violations can be read"),
        }
    }
}

/// What stands after a flood, as pairs of logic id and code: event i goes to device i mod `devices`; of a device's
/// events those with an even number are occurrences of code `first` + number/2 mod 100, and the next is its recovery.
pub fn flood_leaves(count: u32, devices: u32, first: u32) -> BTreeSet<(u32, u32)> {
    let mut stands = BTreeSet::new();
    for event in 0..count {
        let (logic, round) = (event % devices, event / devices);
        let fault = (logic, first + round / 2 % 100);
        if round % 2 == 0 {
            stands.insert(fault);
        } else {
            stands.remove(&fault);
        }
    }
    stands
}
