//! Validates the file's content. All problems are reported, not only the first.

use std::time::Duration;

use humantime::format_duration;
use serde_saphyr::{Location, Spanned};
use strum::VariantArray;

use super::file::{self, At, File};
use super::{Config, Problem, Problems};
use crate::checks::{Family, Trust};
use crate::finding::CheckName;

/// The shortest interval of what loads each node.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);

pub(super) fn parse(file: File) -> Result<Config, Problems> {
    let mut parser = Parser::default();
    let mut config = Config::default();
    let checks = &mut config.checks;
    parser.option("family", file.family, &mut checks.family, |name: String| family(&name));
    for (id, name) in file.pci_ids.unwrap_or_default() {
        let key = format!("pciIds.{id}");
        let entry = pci_id(&id).and_then(|id| Ok((id, family(&name.value)?)));
        checks.pci_ids.extend(parser.accept(&key, &name.referenced, entry));
    }
    parser.option("npus", file.npus, &mut checks.npus, npus);
    parser.driver(file.driver.unwrap_or_default(), &mut checks.driver);
    parser.list("npuSmi", file.npu_smi, &mut checks.npu_smi, path);
    let libraries = file.host_libraries.unwrap_or_default();
    parser.option("hostLibraries.libmspti", libraries.libmspti, &mut checks.host_libmspti, path);
    parser.option("hostLibraries.libtaskd", libraries.libtaskd, &mut checks.host_libtaskd, path);
    parser.list("paths", file.paths, &mut checks.paths, path);
    parser.list("ports", file.ports, &mut checks.ports, port);
    let clusterd = file.clusterd.unwrap_or_default();
    checks.clusterd.dial = clusterd.dial.unwrap_or(checks.clusterd.dial);
    parser.set("clusterd.address", clusterd.address, &mut checks.clusterd.address, host_and_port);
    parser.set("clusterd.timeout", clusterd.timeout, &mut checks.clusterd.timeout, duration);
    let every_second = interval(Duration::from_secs(1));
    parser.set("clusterd.interval", clusterd.interval, &mut checks.clusterd.interval, every_second);
    let max_skew = file.clock.unwrap_or_default().max_skew;
    parser.set("clock.maxSkew", max_skew, &mut checks.max_skew, duration);
    parser.list("advisory", file.advisory, &mut checks.advisory, check_name);
    parser.set("interval", file.interval, &mut checks.interval, interval(SHORTEST));
    let (preload, settings) = (file.preload.unwrap_or_default(), &mut config.preload);
    parser.set("preload.grace", preload.grace, &mut settings.grace, duration);
    parser.set("preload.interval", preload.interval, &mut settings.interval, interval(SHORTEST));
    let (readiness, settings) = (file.readiness.unwrap_or_default(), &mut config.readiness);
    parser.set("readiness.failAfter", readiness.fail_after, &mut settings.fail_after, delay);
    parser.set("readiness.recoverAfter", readiness.recover_after, &mut settings.recover_after, delay);
    parser.set("readiness.unknownAfter", readiness.unknown_after, &mut settings.unknown_after, delay);
    let every_minute = interval(Duration::from_mins(1));
    parser.set("readiness.heartbeat", readiness.heartbeat, &mut settings.heartbeat, every_minute);
    settings.taint = readiness.taint.unwrap_or(settings.taint);
    parser.faults(file.faults.unwrap_or_default(), &mut config.faults);
    Problems::none_or(parser.problems, config)
}

#[derive(Default)]
pub(super) struct Parser {
    problems: Vec<Problem>,
}

impl Parser {
    pub(super) fn problem(&mut self, at: &Location, key: impl Into<String>, message: impl Into<String>) {
        let position = (*at != Location::UNKNOWN).then(|| (at.line(), at.column()));
        self.problems.push(Problem { position, key: key.into(), message: message.into() });
    }

    /// The accepted value; a problem is recorded.
    pub(super) fn accept<T>(&mut self, key: &str, at: &Location, parsed: Result<T, String>) -> Option<T> {
        parsed.map_err(|message| self.problem(at, key, message)).ok()
    }

    pub(super) fn parse<T, U>(
        &mut self,
        key: &str,
        value: At<T>,
        parse: impl FnOnce(T) -> Result<U, String>,
    ) -> Option<U> {
        let Spanned { value, referenced, .. } = value?;
        self.accept(key, &referenced, parse(value))
    }

    /// Sets a value that has a default.
    pub(super) fn set<T, U>(
        &mut self,
        key: &str,
        value: At<T>,
        target: &mut U,
        parse: impl FnOnce(T) -> Result<U, String>,
    ) {
        if let Some(parsed) = self.parse(key, value, parse) {
            *target = parsed;
        }
    }

    /// Sets a value without a default.
    pub(super) fn option<T, U>(
        &mut self,
        key: &str,
        value: At<T>,
        target: &mut Option<U>,
        parse: impl FnOnce(T) -> Result<U, String>,
    ) {
        self.set(key, value, target, |value| parse(value).map(Some));
    }

    /// Sets a list, in place of the default.
    fn list<T, U>(
        &mut self,
        key: &str,
        values: Option<Vec<Spanned<T>>>,
        target: &mut Vec<U>,
        parse: impl Fn(T) -> Result<U, String>,
    ) {
        let Some(values) = values else { return };
        let values = values.into_iter().enumerate();
        *target = values
            .filter_map(|(index, value)| self.parse(&format!("{key}[{index}]"), Some(value), &parse))
            .collect();
    }

    fn driver(&mut self, driver: file::Driver, settings: &mut crate::checks::DriverSettings) {
        self.option("driver.path", driver.path, &mut settings.path, path);
        self.option("driver.minimumVersion", driver.minimum_version, &mut settings.minimum_version, |text| {
            text.parse().map_err(|error| format!("{text:?} can't be compared: {error}"))
        });
        self.list("driver.libraries", driver.libraries, &mut settings.libraries, library);
        self.list("driver.libraryFolders", driver.library_folders, &mut settings.library_folders, path);
        settings.trust = match driver.trust {
            None | Some(file::Trust::Root) => Trust::Owner(0),
            Some(file::Trust::Anyone) => Trust::Anyone,
        };
    }
}

fn family(name: &str) -> Result<Family, String> {
    let names = || variant_names(|family: Family| family.as_str());
    name.parse().map_err(|_| format!("{name:?} isn't a product family; choose one of {}", names()))
}

fn pci_id(id: &str) -> Result<u16, String> {
    let digits = id.trim_start_matches("0x");
    let number = u16::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 4);
    number.ok_or_else(|| {
        "isn't a PCI device id; write four hexadecimal digits as `lspci -n` prints them, such as \"0xd802\""
            .to_owned()
    })
}

fn npus(number: i64) -> Result<u32, String> {
    let valid = u32::try_from(number).ok().filter(|number| (1..=1024).contains(number));
    valid.ok_or_else(|| format!("{number} isn't a number of NPUs; use one from 1 to 1024"))
}

fn library(name: String) -> Result<String, String> {
    if name.is_empty() || name.contains('/') {
        return Err(format!(
            "{name:?} isn't the name of a library; write it without folders, such as libdcmi.so"
        ));
    }
    Ok(name)
}

pub(super) fn path(path: String) -> Result<String, String> {
    let wrong = !path.starts_with('/') || path.contains('\0');
    if wrong || path.split('/').any(|part| part == "..") {
        return Err(format!("{path:?} isn't an absolute path without `..`"));
    }
    let trimmed = path.trim_end_matches('/');
    Ok(if trimmed.is_empty() { path } else { trimmed.to_owned() })
}

fn port(number: i64) -> Result<u16, String> {
    let valid = u16::try_from(number).ok().filter(|number| *number > 0);
    valid.ok_or_else(|| format!("{number} isn't a port; use a number from 1 to 65535"))
}

fn host_and_port(address: String) -> Result<String, String> {
    let is_valid = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains("//") && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if is_valid { Ok(address) } else { Err(format!("{address:?} isn't `host:port`, such as 10.0.0.1:8899")) }
}

#[expect(clippy::needless_pass_by_value, reason = "all parsers of values have this form")]
fn check_name(name: String) -> Result<CheckName, String> {
    let names = || variant_names(|name: CheckName| name.as_str());
    name.parse().map_err(|_| format!("{name:?} isn't a check; choose one of {}", names()))
}

/// A duration that may be zero.
pub(super) fn delay(text: String) -> Result<Duration, String> {
    if humantime::parse_duration(&text) == Ok(Duration::ZERO) { Ok(Duration::ZERO) } else { duration(text) }
}

/// A duration of at least `min`: a shorter interval would load each node, or the API server.
pub(super) fn interval(min: Duration) -> impl Fn(String) -> Result<Duration, String> {
    move |text| {
        let parsed = duration(text)?;
        if parsed < min {
            let (parsed, min) = (format_duration(parsed), format_duration(min));
            return Err(format!("{parsed} is too short; use {min} or more"));
        }
        Ok(parsed)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "all parsers of values have this form")]
fn duration(text: String) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(&text).ok();
    let valid = parsed.filter(|time| !time.is_zero() && *time <= Duration::from_hours(1));
    valid.ok_or_else(|| format!("{text:?} isn't a duration up to an hour; write it as 30s or 2m"))
}

fn variant_names<T: VariantArray + Copy>(name: impl Fn(T) -> &'static str) -> String {
    T::VARIANTS.iter().map(|&variant| name(variant)).collect::<Vec<_>>().join(", ")
}
