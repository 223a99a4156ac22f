//! What a training process told: the lines that `training/train.c` prints.

use std::collections::{BTreeMap, BTreeSet};

/// Everything one training process told about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its node rank.
    pub rank: Option<u32>,
    /// How many pods the job has.
    pub ranks: u32,
    /// Paths of the libraries that are mapped into it.
    pub mapped: BTreeSet<String>,
    /// Variables it has, of those it looks at.
    pub env: BTreeMap<String, String>,
    /// Addresses and ports of rank 0 that answered it.
    pub reached: BTreeSet<(String, u16)>,
    /// Ranks that it answered, and on which port.
    pub accepted: BTreeSet<(u32, u16)>,
    /// Whether it reached, or was reached by, all it should; nothing while it is still at it.
    pub complete: Option<bool>,
}

impl Told {
    /// Reads a container's log. Lines of others are passed over.
    pub fn read(log: &str) -> Self {
        let mut told = Self::default();
        for line in log.lines() {
            if let Some(fact) = line.trim_end().strip_prefix("swansong-demo: ") {
                told.note(&fact.split(' ').collect::<Vec<_>>());
            }
        }
        told
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
    fn lines_are_read_and_those_of_others_are_not() {
        let told = Told::read(
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
        let expected = Told {
            rank: Some(1),
            ranks: 2,
            mapped: ["/a/libtaskd.so".to_owned()].into(),
            env: [("TTP_PORT".to_owned(), "8000".to_owned())].into(),
            reached: [("10.0.0.7".to_owned(), 8000)].into(),
            accepted: BTreeSet::new(),
            complete: Some(false),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn rank_zero_tells_whom_it_answered() {
        let told = Told::read("swansong-demo: accepted rank 1 on 9601\nswansong-demo: complete\n");
        assert_eq!(told.accepted, [(1, 9601)].into());
        assert_eq!(told.complete, Some(true));
    }
}
