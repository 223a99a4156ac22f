//! The clock. ClusterD drops faults and device information whose times it doesn't believe.

use std::time::{Duration, SystemTime};

use crate::reason::Reason;
use crate::report::Finding;
use crate::root::HostRoot;

/// ClusterD's validation of public faults refuses times before 2025-01-01T00:00:00Z
/// (`clusterd/pkg/application/publicfault`): 20,089 days after 1970.
const EARLIEST: Duration = Duration::from_hours(20_089 * 24);

/// Time zones mistaken for one another shift an installation by less.
const A_DAY: Duration = Duration::from_hours(24);

/// Another clock and what it shows at the same moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Whose clock, as "the API server".
    pub whose: String,
    /// What it shows.
    pub time: SystemTime,
}

/// When the driver was installed, or packed; as far as it can be told.
pub(super) fn driver_installed(root: &HostRoot, driver: &str) -> Option<SystemTime> {
    root.follow(format!("{driver}/version.info")).ok()?.metadata().modified().ok()
}

/// Whether `now` can be right.
pub(super) fn judge(
    now: SystemTime,
    installed: Option<SystemTime>,
    reference: Option<&Reference>,
    max_skew: Duration,
) -> Finding {
    const ADVICE: &str = "set the clock and keep it by NTP (`timedatectl`, `chronyc tracking`)";
    let shown = humantime::format_rfc3339_seconds(clamp(now));
    if now.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since < EARLIEST)
        || now < SystemTime::UNIX_EPOCH
    {
        let message =
            format!("the clock shows {shown}, and ClusterD refuses faults from before 2025; {ADVICE}");
        return Finding::new(Reason::ClockBeforeClusterd, message);
    }
    if let Some(installed) = installed
        && installed.duration_since(now).is_ok_and(|behind| behind > A_DAY)
    {
        let installed = humantime::format_rfc3339_seconds(clamp(installed));
        let message =
            format!("the clock shows {shown}, before the driver was installed ({installed}); {ADVICE}");
        return Finding::new(Reason::ClockBehindDriver, message);
    }
    let Some(Reference { whose, time }) = reference else {
        let message = format!("the clock shows {shown} (no other clock to compare with)");
        return Finding::new(Reason::ClockPlausible, message);
    };
    let skew = now.duration_since(*time).unwrap_or_else(|error| error.duration());
    let seconds = skew.as_secs();
    if skew > max_skew {
        let message = format!("the clock differs by {seconds} s from that of {whose}; {ADVICE}");
        Finding::new(Reason::ClockSkewed, message)
    } else {
        Finding::new(Reason::ClockPlausible, format!("the clock differs by {seconds} s from that of {whose}"))
    }
}

/// RFC 3339 has four digits for a year, and a broken clock may show more.
fn clamp(time: SystemTime) -> SystemTime {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    time.clamp(SystemTime::UNIX_EPOCH, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judgements() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let now = 1_800_000_000;
        let server = |seconds| Reference { whose: "the API server".to_owned(), time: at(seconds) };
        for (clock, installed, reference, expected) in [
            (now, None, None, Reason::ClockPlausible),
            (0, None, None, Reason::ClockBeforeClusterd),
            (1_735_689_599, None, None, Reason::ClockBeforeClusterd),
            (1_735_689_600, None, None, Reason::ClockPlausible),
            (now, Some(now + 86_400), None, Reason::ClockPlausible),
            (now, Some(now + 86_401), None, Reason::ClockBehindDriver),
            (now, Some(0), Some(now + 30), Reason::ClockPlausible),
            (now, None, Some(now - 31), Reason::ClockSkewed),
            (now, None, Some(now + 31), Reason::ClockSkewed),
            (999_999_999_999, None, None, Reason::ClockPlausible),
        ] {
            let reference = reference.map(server);
            let finding = judge(at(clock), installed.map(at), reference.as_ref(), Duration::from_secs(30));
            assert_eq!(finding.reason, expected, "{clock} {installed:?} {reference:?}");
        }
    }
}
