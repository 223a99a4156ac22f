//! Validates the file's content. All problems are reported, not only the first.

use std::time::Duration;

use humantime::format_duration;
use serde_saphyr::{Location, Spanned};
use strum::VariantArray;

use super::Config;
use super::file::{self, At, File};
use super::{Problem, Problems};
use crate::checks::{Family, Trust};
use crate::finding::CheckName;

pub(super) fn parse(file: File) -> Result<Config, Problems> {
    let mut parser = Parser { problems: Vec::new(), config: Config::default() };
    parser.product(file.family, file.pci_ids.unwrap_or_default(), file.npus);
    parser.driver(file.driver.unwrap_or_default());
    parser.config.checks.npu_smi = parser.paths("npuSmi", file.npu_smi);
    let libraries = file.host_libraries.unwrap_or_default();
    parser.config.checks.host_libmspti = parser.path("hostLibraries.libmspti", libraries.libmspti);
    parser.config.checks.host_libtaskd = parser.path("hostLibraries.libtaskd", libraries.libtaskd);
    parser.config.checks.paths = parser.paths("paths", file.paths);
    parser.ports(file.ports);
    parser.clusterd(file.clusterd.unwrap_or_default());
    if let Some(skew) = parser.duration("clock.maxSkew", file.clock.unwrap_or_default().max_skew) {
        parser.config.checks.max_skew = skew;
    }
    parser.preload(file.preload.unwrap_or_default());
    if let Some(interval) = parser.interval("interval", Duration::from_millis(100), file.interval) {
        parser.config.checks.interval = interval;
    }
    parser.advisory(file.advisory);
    parser.readiness(file.readiness.unwrap_or_default());
    parser.faults(file.faults.unwrap_or_default());
    Problems::none_or(parser.problems, parser.config)
}

pub(super) struct Parser {
    problems: Vec<Problem>,
    pub(super) config: Config,
}

impl Parser {
    pub(super) fn problem(&mut self, at: &Location, key: impl Into<String>, message: impl Into<String>) {
        let position = (*at != Location::UNKNOWN).then(|| (at.line(), at.column()));
        self.problems.push(Problem { position, key: key.into(), message: message.into() });
    }

    fn product(&mut self, family: At<String>, ids: file::PciIds, npus: At<i64>) {
        self.config.checks.family = family.and_then(|family| self.family("family", &family));
        for (id, family) in ids.0 {
            let key = format!("pciIds.{id}");
            let digits = id.trim_start_matches("0x");
            let number = u16::from_str_radix(digits, 16);
            match number {
                Ok(number) if digits.len() == 4 => {
                    if let Some(family) = self.family(&key, &family) {
                        self.config.checks.pci_ids.insert(number, family);
                    }
                }
                _ => self.problem(
                    &family.referenced,
                    key,
                    "isn't a PCI device id; write four hexadecimal digits as `lspci -n` prints them, such as \"0xd802\"",
                ),
            }
        }
        if let Some(npus) = npus {
            match u32::try_from(npus.value) {
                Ok(number @ 1..=1024) => self.config.checks.npus = Some(number),
                _ => self.problem(
                    &npus.referenced,
                    "npus",
                    format!("{} isn't a number of NPUs; use one from 1 to 1024", npus.value),
                ),
            }
        }
    }

    fn family(&mut self, key: &str, family: &Spanned<String>) -> Option<Family> {
        let found = family.value.parse().ok();
        if found.is_none() {
            let names = variant_names(|family: Family| family.as_str());
            let problem = format!("{:?} isn't a product family; choose one of {names}", family.value);
            self.problem(&family.referenced, key, problem);
        }
        found
    }

    fn driver(&mut self, driver: file::Driver) {
        self.config.checks.driver.path = self.path("driver.path", driver.path);
        if let Some(version) = driver.minimum_version {
            match version.value.parse() {
                Ok(minimum) => self.config.checks.driver.minimum_version = Some(minimum),
                Err(error) => {
                    let problem = format!("{:?} can't be compared: {error}", version.value);
                    self.problem(&version.referenced, "driver.minimumVersion", problem);
                }
            }
        }
        if let Some(libraries) = driver.libraries {
            self.config.checks.driver.libraries.clear();
            for (index, library) in libraries.into_iter().enumerate() {
                if library.value.is_empty() || library.value.contains('/') {
                    let problem = format!(
                        "{:?} isn't the name of a library; write it without folders, such as libdcmi.so",
                        library.value
                    );
                    self.problem(&library.referenced, format!("driver.libraries[{index}]"), problem);
                }
                self.config.checks.driver.libraries.push(library.value);
            }
        }
        self.config.checks.driver.library_folders =
            self.paths("driver.libraryFolders", driver.library_folders);
        self.config.checks.driver.trust = match driver.trust {
            None | Some(file::Trust::Root) => Trust::Owner(0),
            Some(file::Trust::Anyone) => Trust::Anyone,
        };
    }

    pub(super) fn path(&mut self, key: &str, path: At<String>) -> Option<String> {
        let path = path?;
        let wrong = !path.value.starts_with('/') || path.value.contains('\0');
        if wrong || path.value.split('/').any(|part| part == "..") {
            let problem = format!("{:?} isn't an absolute path without `..`", path.value);
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
        self.config.checks.ports.clear();
        for (index, port) in ports.value.into_iter().enumerate() {
            match u16::try_from(port.value) {
                Ok(number) if number > 0 => self.config.checks.ports.push(number),
                _ => self.problem(
                    &port.referenced,
                    format!("ports[{index}]"),
                    format!("{} isn't a port; use a number from 1 to 65535", port.value),
                ),
            }
        }
    }

    fn clusterd(&mut self, clusterd: file::Clusterd) {
        if let Some(dial) = clusterd.dial {
            self.config.checks.clusterd.dial = dial;
        }
        if let Some(address) = clusterd.address {
            let is_valid = address.value.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains("//") && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            if !is_valid {
                let problem = format!("{:?} isn't `host:port`, such as 10.0.0.1:8899", address.value);
                self.problem(&address.referenced, "clusterd.address", problem);
            }
            self.config.checks.clusterd.address = address.value;
        }
        if let Some(timeout) = self.duration("clusterd.timeout", clusterd.timeout) {
            self.config.checks.clusterd.timeout = timeout;
        }
        if let Some(interval) = self.interval("clusterd.interval", Duration::from_secs(1), clusterd.interval)
        {
            self.config.checks.clusterd.interval = interval;
        }
    }

    fn preload(&mut self, preload: file::Preload) {
        if let Some(grace) = self.duration("preload.grace", preload.grace) {
            self.config.preload.grace = grace;
        }
        if let Some(interval) =
            self.interval("preload.interval", Duration::from_millis(100), preload.interval)
        {
            self.config.preload.interval = interval;
        }
    }

    fn advisory(&mut self, names: Option<Vec<Spanned<String>>>) {
        let Some(names) = names else { return };
        self.config.checks.advisory.clear();
        for (index, name) in names.into_iter().enumerate() {
            if let Ok(known) = name.value.parse() {
                self.config.checks.advisory.push(known);
            } else {
                let known = variant_names(|name: CheckName| name.as_str());
                let problem = format!("{:?} isn't a check; choose one of {known}", name.value);
                self.problem(&name.referenced, format!("advisory[{index}]"), problem);
            }
        }
    }

    fn readiness(&mut self, readiness: file::Readiness) {
        if let Some(time) = self.delay("readiness.failAfter", readiness.fail_after) {
            self.config.readiness.fail_after = time;
        }
        if let Some(time) = self.delay("readiness.recoverAfter", readiness.recover_after) {
            self.config.readiness.recover_after = time;
        }
        if let Some(time) = self.delay("readiness.unknownAfter", readiness.unknown_after) {
            self.config.readiness.unknown_after = time;
        }
        if let Some(time) = self.interval("readiness.heartbeat", Duration::from_mins(1), readiness.heartbeat)
        {
            self.config.readiness.heartbeat = time;
        }
        if let Some(taint) = readiness.taint {
            self.config.readiness.taint = taint;
        }
    }

    /// A duration that may be zero.
    pub(super) fn delay(&mut self, key: &str, duration: At<String>) -> Option<Duration> {
        if duration.as_ref().is_some_and(|text| humantime::parse_duration(&text.value) == Ok(Duration::ZERO))
        {
            return Some(Duration::ZERO);
        }
        self.duration(key, duration)
    }

    /// A duration of at least `min`: a shorter interval would load each node, or the API server.
    pub(super) fn interval(&mut self, key: &str, min: Duration, duration: At<String>) -> Option<Duration> {
        let at = duration.as_ref()?.referenced;
        let parsed = self.duration(key, duration)?;
        if parsed < min {
            let (parsed, min) = (format_duration(parsed), format_duration(min));
            self.problem(&at, key, format!("{parsed} is too short; use {min} or more"));
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
                    format!("{:?} isn't a duration up to an hour; write it as 30s or 2m", duration.value);
                self.problem(&duration.referenced, key, problem);
                None
            }
        }
    }
}

fn variant_names<T: VariantArray + Copy>(name: impl Fn(T) -> &'static str) -> String {
    T::VARIANTS.iter().map(|&variant| name(variant)).collect::<Vec<_>>().join(", ")
}
