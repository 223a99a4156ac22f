//! Options for the validity and rotation of the certificates that Swansong manages.

use std::time::Duration;

use anyhow::ensure;
use humantime::format_duration;
use swansong_certs::Settings;

/// A certificate is valid for at least this many checks, so that failed ones don't prevent its renewal.
const MIN_CHECKS: u32 = 10;

#[derive(Debug, clap::Args)]
pub(super) struct Rotation {
    /// Validity of the certificate that Swansong manages; renewed after two thirds of it
    #[arg(long, env = "SWANSONG_TLS_VALIDITY", value_name = "TIME", default_value = "90days",
          value_parser = humantime::parse_duration)]
    tls_validity: Duration,
    /// Validity of its CA; replaced after two thirds of it
    #[arg(long, env = "SWANSONG_CA_VALIDITY", value_name = "TIME", default_value = "3650days",
          value_parser = humantime::parse_duration)]
    ca_validity: Duration,
    /// How long a new CA is in the caBundle before its certificate is served
    #[arg(long, env = "SWANSONG_CA_SETTLE_TIME", value_name = "TIME", default_value = "5m",
          value_parser = humantime::parse_duration)]
    ca_settle_time: Duration,
    /// Interval between checks of Secret and caBundle
    #[arg(long, env = "SWANSONG_CHECK_INTERVAL", value_name = "TIME", default_value = "10s", hide = true,
          value_parser = humantime::parse_duration)]
    check_interval: Duration,
}

impl Rotation {
    /// Rejects times with which a certificate could expire before it is replaced.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let shown = |time| format_duration(time).to_string();
        ensure!(!self.check_interval.is_zero(), "--check-interval 0s would check without a pause");
        let min = self.check_interval.saturating_mul(MIN_CHECKS);
        ensure!(
            self.tls_validity >= min,
            "--tls-validity {} is too short for a check every {}; use {} or more",
            shown(self.tls_validity),
            shown(self.check_interval),
            shown(min)
        );
        // A third of the validity remains for the rotation, which may take half of that.
        let min = self.ca_settle_time.saturating_mul(6).max(self.tls_validity);
        ensure!(
            self.ca_validity >= min,
            "--ca-validity {} is too short for --tls-validity {} and --ca-settle-time {}; use {} or more",
            shown(self.ca_validity),
            shown(self.tls_validity),
            shown(self.ca_settle_time),
            shown(min)
        );
        Ok(())
    }

    pub(super) fn settings(&self, dns_names: Vec<String>) -> Settings {
        Settings {
            ca_validity: self.ca_validity,
            leaf_validity: self.tls_validity,
            settle_time: self.ca_settle_time,
            ..Settings::new(dns_names)
        }
    }

    pub(super) const fn check_interval(&self) -> Duration {
        self.check_interval
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use swansong_certs::CHECK_INTERVAL;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        rotation: Rotation,
    }

    fn parse(arguments: &[&str]) -> Rotation {
        Line::parse_from(["swansong"].iter().chain(arguments)).rotation
    }

    #[test]
    fn defaults_are_those_of_the_crate() {
        let rotation = parse(&[]);
        let (ours, theirs) = (rotation.settings(Vec::new()), Settings::new(Vec::new()));
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        assert_eq!(rotation.check_interval(), CHECK_INTERVAL);
        rotation.check().expect("valid");
    }

    #[test]
    fn rejects_times_that_are_too_short_for_each_other() {
        for (arguments, needle) in [
            (["--check-interval=0s"].as_slice(), "--check-interval 0s"),
            (&["--tls-validity=1m"], "--tls-validity 1m is too short for a check every 10s; use 1m 40s"),
            (&["--ca-validity=30days"], "--ca-validity 30days is too short for --tls-validity"),
            (&["--ca-validity=20m", "--tls-validity=20m"], "and --ca-settle-time 5m; use 30m or more"),
        ] {
            let error = parse(arguments).check().expect_err("rejected").to_string();
            assert!(error.contains(needle), "{error}");
        }
        let quick = ["--check-interval=100ms", "--ca-settle-time=1s", "--tls-validity=20s"];
        parse(&quick).check().expect("for tests");
    }
}
