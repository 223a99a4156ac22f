//! How long the certificates that Swansong keeps live, and how patiently they are changed.

use std::time::Duration;

use anyhow::ensure;
use humantime::format_duration;
use swansong_certs::Settings;

/// So many looks at least before a replica that is silent counts as gone.
const LOOKS: u32 = 10;

#[derive(Debug, clap::Args)]
pub(super) struct Rotation {
    /// Life of the certificate that Swansong keeps; renewed when two thirds are over
    #[arg(long, env = "SWANSONG_TLS_VALIDITY", value_name = "TIME", default_value = "90days",
          value_parser = humantime::parse_duration)]
    tls_validity: Duration,
    /// Life of its certificate authority; replaced when two thirds are over
    #[arg(long, env = "SWANSONG_CA_VALIDITY", value_name = "TIME", default_value = "3650days",
          value_parser = humantime::parse_duration)]
    ca_validity: Duration,
    /// How long a new authority is in the caBundle before its certificate is served
    #[arg(long, env = "SWANSONG_CA_SETTLE_TIME", value_name = "TIME", default_value = "5m",
          value_parser = humantime::parse_duration)]
    ca_settle_time: Duration,
    /// How long a replica may be silent before an authority is given up whose certificate it served
    #[arg(long, env = "SWANSONG_REPLICA_EXPIRY", value_name = "TIME", default_value = "30m",
          value_parser = humantime::parse_duration)]
    replica_expiry: Duration,
    /// How often Secret and caBundle are looked at
    #[arg(long, env = "SWANSONG_CHECK_INTERVAL", value_name = "TIME", default_value = "10s", hide = true,
          value_parser = humantime::parse_duration)]
    check_interval: Duration,
}

impl Rotation {
    /// Refuses times with which a certificate could end, or lose its trust, before it is replaced.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let shown = |time| format_duration(time).to_string();
        ensure!(
            !self.check_interval.is_zero(),
            "--check-interval 0s would be a look without end; give it time"
        );
        let least = self.check_interval.saturating_mul(LOOKS);
        ensure!(
            self.replica_expiry >= least,
            "--replica-expiry {} is too short for a look every {}; give it {} or more",
            shown(self.replica_expiry),
            shown(self.check_interval),
            shown(least)
        );
        ensure!(
            self.tls_validity >= least,
            "--tls-validity {} is too short for a look every {}; give it {} or more",
            shown(self.tls_validity),
            shown(self.check_interval),
            shown(least)
        );
        ensure!(
            self.ca_validity >= self.tls_validity,
            "--ca-validity {} is too short: no certificate outlives its authority; give it {} or more",
            shown(self.ca_validity),
            shown(self.tls_validity)
        );
        // A third of its life is there for the change, of which that may take half.
        let least = self.ca_settle_time.saturating_add(self.replica_expiry).saturating_mul(6);
        ensure!(
            self.ca_validity >= least,
            "--ca-validity {} is too short for a change of --ca-settle-time and --replica-expiry; give it {} or more",
            shown(self.ca_validity),
            shown(least)
        );
        Ok(())
    }

    pub(super) fn settings(&self, dns_names: Vec<String>) -> Settings {
        Settings {
            authority_validity: self.ca_validity,
            leaf_validity: self.tls_validity,
            settle: self.ca_settle_time,
            replica_expiry: self.replica_expiry,
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
    fn defaults_are_those_of_the_certificates() {
        let rotation = parse(&[]);
        let (ours, theirs) = (rotation.settings(Vec::new()), Settings::new(Vec::new()));
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        assert_eq!(rotation.check_interval(), CHECK_INTERVAL);
        rotation.check().expect("sound");
    }

    #[test]
    fn times_that_do_not_fit_together_are_refused() {
        for (arguments, needle) in [
            (["--check-interval=0s"].as_slice(), "--check-interval 0s"),
            (
                &["--replica-expiry=1m"],
                "--replica-expiry 1m is too short for a look every 10s; give it 1m 40s",
            ),
            (&["--tls-validity=1m"], "--tls-validity 1m is too short"),
            (&["--ca-validity=30days"], "--ca-validity 30days is too short: no certificate outlives"),
            (&["--ca-validity=1h", "--tls-validity=1h"], "--ca-validity 1h is too short for a change"),
        ] {
            let error = parse(arguments).check().expect_err("refused").to_string();
            assert!(error.contains(needle), "{error}");
        }
        let quick = ["--check-interval=100ms", "--ca-settle-time=1s", "--replica-expiry=2s"];
        parse(&quick).check().expect("quick for tests");
    }
}
