//! The log of a training process: the lines that `training/train.c` prints.

use std::collections::{BTreeMap, BTreeSet};

/// What one training process reported about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainingLog {
    /// Its node rank.
    pub rank: Option<u32>,
    /// How many pods the job has.
    pub ranks: u32,
    /// Paths of the libraries that are mapped into it.
    pub mapped: BTreeSet<String>,
    /// The environment variables that it reports.
    pub env: BTreeMap<String, String>,
    /// Addresses and ports of rank 0 that answered it.
    pub reached: BTreeSet<(String, u16)>,
    /// Ranks that it answered, and on which port.
    pub accepted: BTreeSet<(u32, u16)>,
    /// Whether it reached, or was reached by, all other ranks; `None` while it is still trying.
    pub complete: Option<bool>,
}

impl TrainingLog {
    /// Parses a container's log and skips lines of other programs.
    pub fn read(log: &str) -> Self {
        let mut report = Self::default();
        for line in log.lines() {
            if let Some(fact) = line.trim_end().strip_prefix("swansong-demo: ") {
                report.note(&fact.split(' ').collect::<Vec<_>>());
            }
        }
        report
    }

    fn note(&mut self, fact: &[&str]) {
        match fact {
            ["rank", rank, "of", ranks] => {
                self.rank = rank.parse().ok();
                self.ranks = ranks.parse().unwrap_or_default();
            }
            ["mapped", path] => {
                self.mapped.insert((*path).to_owned());
            }
            ["env", entry @ ..] => {
                let entry = entry.join(" ");
                if let Some((name, value)) = entry.split_once('=') {
                    self.env.insert(name.to_owned(), value.to_owned());
                }
            }
            ["reached", endpoint, _] => {
                if let Some((address, port)) = endpoint.rsplit_once(':')
                    && let Ok(port) = port.parse()
                {
                    self.reached.insert((address.to_owned(), port));
                }
            }
            ["accepted", "rank", rank, "on", port] => {
                if let (Ok(rank), Ok(port)) = (rank.parse(), port.parse()) {
                    self.accepted.insert((rank, port));
                }
            }
            ["complete"] => self.complete = Some(true),
            ["incomplete"] => self.complete = Some(false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_its_own_lines_and_skips_others() {
        let report = TrainingLog::read(
            "ERROR: ld.so: object 'x' cannot be preloaded\n\
             swansong-demo: loaded libtaskd.so\n\
             swansong-demo: rank 1 of 2\n\
             swansong-demo: mapped /a/libtaskd.so\n\
             swansong-demo: not mapped libmspti.so\n\
             swansong-demo: env TTP_PORT=8000\n\
             swansong-demo: unset POD_IP\n\
             swansong-demo: reached 10.0.0.7:8000 ttp-port\n\
             swansong-demo: not reached 10.0.0.7:9601\n\
             swansong-demo: incomplete\n",
        );
        let expected = TrainingLog {
            rank: Some(1),
            ranks: 2,
            mapped: ["/a/libtaskd.so".to_owned()].into(),
            env: [("TTP_PORT".to_owned(), "8000".to_owned())].into(),
            reached: [("10.0.0.7".to_owned(), 8000)].into(),
            accepted: BTreeSet::new(),
            complete: Some(false),
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn rank_zero_reports_the_ranks_that_it_answered() {
        let report = TrainingLog::read("swansong-demo: accepted rank 1 on 9601\nswansong-demo: complete\n");
        assert_eq!(report.accepted, [(1, 9601)].into());
        assert_eq!(report.complete, Some(true));
    }
}
