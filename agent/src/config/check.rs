//! From the file's shape to a proven [`Config`]: every fault is found, not only the first.

use std::time::Duration;

use humantime::format_duration;
use serde_saphyr::{Location, Spanned};

use super::Config;
use super::file::{self, At, File};
use super::{Problem, Problems};
use crate::check::{CheckName, Family, Trust};

pub(super) fn check(file: File) -> Result<Config, Problems> {
    let mut checker = Checker { problems: Vec::new(), config: Config::default() };
    checker.product(file.family, file.pci_ids.unwrap_or_default(), file.npus);
    checker.driver(file.driver.unwrap_or_default());
    checker.config.npu_smi = checker.paths("npuSmi", file.npu_smi);
    let libraries = file.host_libraries.unwrap_or_default();
    checker.config.host_libmspti = checker.path("hostLibraries.libmspti", libraries.libmspti);
    checker.config.host_libtaskd = checker.path("hostLibraries.libtaskd", libraries.libtaskd);
    checker.config.paths = checker.paths("paths", file.paths);
    checker.ports(file.ports);
    checker.clusterd(file.clusterd.unwrap_or_default());
    if let Some(skew) = checker.duration("clock.maxSkew", file.clock.unwrap_or_default().max_skew) {
        checker.config.max_skew = skew;
    }
    checker.preload(file.preload.unwrap_or_default());
    if let Some(interval) = checker.pace("interval", Duration::from_millis(100), file.interval) {
        checker.config.interval = interval;
    }
    checker.advisory(file.advisory);
    checker.readiness(file.readiness.unwrap_or_default());
    checker.faults(file.faults.unwrap_or_default());
    Problems::none_or(checker.problems, checker.config)
}

pub(super) struct Checker {
    problems: Vec<Problem>,
    pub(super) config: Config,
}

impl Checker {
    pub(super) fn problem(&mut self, at: &Location, key: impl Into<String>, message: impl Into<String>) {
        let position = (*at != Location::UNKNOWN).then(|| (at.line(), at.column()));
        self.problems.push(Problem { position, key: key.into(), message: message.into() });
    }

    fn product(&mut self, family: At<String>, ids: file::PciIds, npus: At<i64>) {
        self.config.family = family.and_then(|family| self.family("family", &family));
        for (id, family) in ids.0 {
            let key = format!("pciIds.{id}");
            let digits = id.trim_start_matches("0x");
            let number = u16::from_str_radix(digits, 16);
            match number {
                Ok(number) if digits.len() == 4 => {
                    if let Some(family) = self.family(&key, &family) {
                        self.config.pci_ids.insert(number, family);
                    }
                }
                _ => self.problem(
                    &family.referenced,
                    key,
                    "isn't a PCI device id; write four hexadecimal digits as `lspci -n` shows them, such as \"0xd802\"",
                ),
            }
        }
        if let Some(npus) = npus {
            match u32::try_from(npus.value) {
                Ok(number @ 1..=1024) => self.config.npus = Some(number),
                _ => self.problem(
                    &npus.referenced,
                    "npus",
                    format!("{} isn't a number of NPUs; give one from 1 to 1024", npus.value),
                ),
            }
        }
    }

    fn family(&mut self, key: &str, family: &Spanned<String>) -> Option<Family> {
        let found = family.value.parse().ok();
        if found.is_none() {
            let names: Vec<&str> = Family::ALL.iter().map(|family| family.as_str()).collect();
            let problem =
                format!("{:?} isn't a product family; choose among {}", family.value, names.join(", "));
            self.problem(&family.referenced, key, problem);
        }
        found
    }

    fn driver(&mut self, driver: file::Driver) {
        self.config.driver.path = self.path("driver.path", driver.path);
        if let Some(version) = driver.minimum_version {
            match version.value.parse() {
                Ok(minimum) => self.config.driver.minimum_version = Some(minimum),
                Err(error) => {
                    let problem = format!("{:?} can't be compared: {error}", version.value);
                    self.problem(&version.referenced, "driver.minimumVersion", problem);
                }
            }
        }
        if let Some(libraries) = driver.libraries {
            self.config.driver.libraries.clear();
            for (index, library) in libraries.into_iter().enumerate() {
                if library.value.is_empty() || library.value.contains('/') {
                    let problem = format!(
                        "{:?} isn't the name of a library; give it without folders, such as libdcmi.so",
                        library.value
                    );
                    self.problem(&library.referenced, format!("driver.libraries[{index}]"), problem);
                }
                self.config.driver.libraries.push(library.value);
            }
        }
        self.config.driver.library_folders = self.paths("driver.libraryFolders", driver.library_folders);
        self.config.driver.trust = match driver.trust {
            None | Some(file::Trust::Root) => Trust::Owner(0),
            Some(file::Trust::Anyone) => Trust::Anyone,
        };
    }

    pub(super) fn path(&mut self, key: &str, path: At<String>) -> Option<String> {
        let path = path?;
        let wrong = !path.value.starts_with('/') || path.value.contains('\0');
        if wrong || path.value.split('/').any(|part| part == "..") {
            let problem =
                format!("{:?} isn't an absolute path without `..`; give it from the root", path.value);
            self.problem(&path.referenced, key, problem);
        }
        let trimmed = path.value.trim_end_matches('/');
        Some(if trimmed.is_empty() { "/".to_owned() } else { trimmed.to_owned() })
    }

    fn paths(&mut self, key: &str, paths: Option<Vec<Spanned<String>>>) -> Vec<String> {
        let paths = paths.unwrap_or_default().into_iter().enumerate();
        paths.filter_map(|(index, path)| self.path(&format!("{key}[{index}]"), Some(path))).collect()
    }

    fn ports(&mut self, ports: At<Vec<Spanned<i64>>>) {
        let Some(ports) = ports else { return };
        self.config.ports.clear();
        for (index, port) in ports.value.into_iter().enumerate() {
            match u16::try_from(port.value) {
                Ok(number) if number > 0 => self.config.ports.push(number),
                _ => self.problem(
                    &port.referenced,
                    format!("ports[{index}]"),
                    format!("{} isn't a port; give a number from 1 to 65535", port.value),
                ),
            }
        }
    }

    fn clusterd(&mut self, clusterd: file::Clusterd) {
        if let Some(dial) = clusterd.dial {
            self.config.clusterd.dial = dial;
        }
        if let Some(address) = clusterd.address {
            let sound = address.value.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains("//") && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            if !sound {
                let problem = format!("{:?} isn't `host:port`, such as 10.0.0.1:8899", address.value);
                self.problem(&address.referenced, "clusterd.address", problem);
            }
            self.config.clusterd.address = address.value;
        }
        if let Some(timeout) = self.duration("clusterd.timeout", clusterd.timeout) {
            self.config.clusterd.timeout = timeout;
        }
        if let Some(interval) = self.pace("clusterd.interval", Duration::from_secs(1), clusterd.interval) {
            self.config.clusterd.interval = interval;
        }
    }

    fn preload(&mut self, preload: file::Preload) {
        if let Some(grace) = self.duration("preload.grace", preload.grace) {
            self.config.grace = grace;
        }
        if let Some(interval) = self.pace("preload.interval", Duration::from_millis(100), preload.interval) {
            self.config.scan_interval = interval;
        }
    }

    fn advisory(&mut self, names: Option<Vec<Spanned<String>>>) {
        let Some(names) = names else { return };
        self.config.advisory.clear();
        for (index, name) in names.into_iter().enumerate() {
            if let Some(known) = CheckName::ALL.iter().find(|known| known.as_str() == name.value) {
                self.config.advisory.push(*known);
            } else {
                let known: Vec<&str> = CheckName::ALL.iter().map(|name| name.as_str()).collect();
                let problem = format!("{:?} isn't a check; choose among {}", name.value, known.join(", "));
                self.problem(&name.referenced, format!("advisory[{index}]"), problem);
            }
        }
    }

    fn readiness(&mut self, readiness: file::Readiness) {
        if let Some(time) = self.hold("readiness.failAfter", readiness.fail_after) {
            self.config.readiness.fail_after = time;
        }
        if let Some(time) = self.hold("readiness.recoverAfter", readiness.recover_after) {
            self.config.readiness.recover_after = time;
        }
        if let Some(time) = self.hold("readiness.unknownAfter", readiness.unknown_after) {
            self.config.readiness.unknown_after = time;
        }
        if let Some(time) = self.pace("readiness.heartbeat", Duration::from_mins(1), readiness.heartbeat) {
            self.config.readiness.heartbeat = time;
        }
        if let Some(taint) = readiness.taint {
            self.config.readiness.taint = taint;
        }
    }

    /// A time to hold, which may be none at all.
    pub(super) fn hold(&mut self, key: &str, duration: At<String>) -> Option<Duration> {
        if duration.as_ref().is_some_and(|text| humantime::parse_duration(&text.value) == Ok(Duration::ZERO))
        {
            return Some(Duration::ZERO);
        }
        self.duration(key, duration)
    }

    /// A time between two rounds of something. What is done too often takes a core of each node, or the API server of
    /// all of them.
    pub(super) fn pace(&mut self, key: &str, least: Duration, duration: At<String>) -> Option<Duration> {
        let at = duration.as_ref()?.referenced;
        let parsed = self.duration(key, duration)?;
        if parsed < least {
            let (parsed, least) = (format_duration(parsed), format_duration(least));
            self.problem(&at, key, format!("{parsed} is too often; give {least} or more"));
            return None;
        }
        Some(parsed)
    }

    fn duration(&mut self, key: &str, duration: At<String>) -> Option<Duration> {
        let duration = duration?;
        match humantime::parse_duration(&duration.value) {
            Ok(parsed) if !parsed.is_zero() && parsed <= Duration::from_hours(1) => Some(parsed),
            _ => {
                let problem =
                    format!("{:?} isn't a time up to an hour; write it as 30s or 2m", duration.value);
                self.problem(&duration.referenced, key, problem);
                None
            }
        }
    }
}
