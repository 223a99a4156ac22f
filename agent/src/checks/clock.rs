//! The clock. ClusterD drops faults and device information with implausible times.

use std::time::{Duration, SystemTime};

use crate::finding::{Finding, Reason};
use crate::host::HostRoot;

/// ClusterD's validation of public faults refuses times before 2025-01-01T00:00:00Z
/// (`clusterd/pkg/application/publicfault`): 20,089 days after 1970.
const EARLIEST: Duration = Duration::from_hours(20_089 * 24);

/// A wrong time zone shifts the time of an installation by less.
const DAY: Duration = Duration::from_hours(24);

/// The time of another clock when the check ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceClock {
    /// The clock's owner in messages, such as "the API server".
    pub owner: String,
    /// The time that it shows.
    pub time: SystemTime,
}

/// When the driver was installed or packaged, if known.
pub(super) fn driver_installed(root: &HostRoot, driver: &str) -> Option<SystemTime> {
    root.resolve(format!("{driver}/version.info")).ok()?.metadata().modified().ok()
}

/// Whether `now` is plausible.
pub(super) fn check(
    now: SystemTime,
    installed: Option<SystemTime>,
    reference: Option<&ReferenceClock>,
    max_skew: Duration,
) -> Finding {
    const ADVICE: &str = "set the clock and synchronise it by NTP (`timedatectl`, `chronyc tracking`)";
    let shown = humantime::format_rfc3339_seconds(clamp(now));
    if now.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since < EARLIEST)
        || now < SystemTime::UNIX_EPOCH
    {
        let message =
            format!("the clock shows {shown}, and ClusterD refuses faults from before 2025; {ADVICE}");
        return Finding::new(Reason::ClockBeforeClusterd, message);
    }
    if let Some(installed) = installed
        && installed.duration_since(now).is_ok_and(|behind| behind > DAY)
    {
        let installed = humantime::format_rfc3339_seconds(clamp(installed));
        let message =
            format!("the clock shows {shown}, before the driver was installed ({installed}); {ADVICE}");
        return Finding::new(Reason::ClockBeforeDriver, message);
    }
    let Some(ReferenceClock { owner, time }) = reference else {
        let message = format!("the clock shows {shown} (no other clock to compare with)");
        return Finding::new(Reason::ClockPlausible, message);
    };
    let skew = now.duration_since(*time).unwrap_or_else(|error| error.duration());
    let seconds = skew.as_secs();
    if skew > max_skew {
        let message = format!("the clock differs by {seconds} s from that of {owner}; {ADVICE}");
        Finding::new(Reason::ClockSkewed, message)
    } else {
        Finding::new(Reason::ClockPlausible, format!("the clock differs by {seconds} s from that of {owner}"))
    }
}

/// RFC 3339 allows four digits for the year, and a broken clock may need more.
fn clamp(time: SystemTime) -> SystemTime {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    time.clamp(SystemTime::UNIX_EPOCH, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_implausible_times() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let now = 1_800_000_000;
        let server = |seconds| ReferenceClock { owner: "the API server".to_owned(), time: at(seconds) };
        for (clock, installed, reference, expected) in [
            (now, None, None, Reason::ClockPlausible),
            (0, None, None, Reason::ClockBeforeClusterd),
            (1_735_689_599, None, None, Reason::ClockBeforeClusterd),
            (1_735_689_600, None, None, Reason::ClockPlausible),
            (now, Some(now + 86_400), None, Reason::ClockPlausible),
            (now, Some(now + 86_401), None, Reason::ClockBeforeDriver),
            (now, Some(0), Some(now + 30), Reason::ClockPlausible),
            (now, None, Some(now - 31), Reason::ClockSkewed),
            (now, None, Some(now + 31), Reason::ClockSkewed),
            (999_999_999_999, None, None, Reason::ClockPlausible),
        ] {
            let reference = reference.map(server);
            let finding = check(at(clock), installed.map(at), reference.as_ref(), Duration::from_secs(30));
            assert_eq!(finding.reason, expected, "{clock} {installed:?} {reference:?}");
        }
    }
}
