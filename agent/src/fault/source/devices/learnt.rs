//! What was there, and what is to be said now.

use std::collections::{BTreeMap, BTreeSet};

use strum::VariantArray as _;
use swansong_fault_model::{ActiveFault, CARD_DROP, Code, DriverFault, Severity, SourceUpdate, Subject};

use super::look::{Facts, There, Thing};

/// What was there once, and what was said last.
///
/// Only what was there can go: what a node never had is no fault that happens, and the checks of the host tell of it.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    there: BTreeSet<Thing>,
    /// What is gone, and why that is said.
    gone: BTreeMap<Thing, String>,
    said: BTreeMap<Subject, Said>,
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    All(Vec<Thing>),
    Blind,
}

impl Learnt {
    /// A fault that was told by an earlier process and still stands: so it was there.
    pub(super) fn remember(&mut self, subject: Subject, code: &Code) {
        let thing = match subject {
            Subject::Npu(npu) => (*code == Code::from(CARD_DROP)).then_some(Thing::Npu(npu)),
            Subject::Node => {
                DriverFault::VARIANTS.iter().find(|fault| fault.code() == *code).copied().map(Thing::Driver)
            }
        };
        self.there.extend(thing);
    }

    /// Forgets what was said, so that all of it is said again.
    pub(super) fn say_all_again(&mut self) {
        self.said.clear();
    }

    /// What is new. `at` is when, in milliseconds since 1970.
    pub(super) fn judge(&mut self, facts: Result<Facts, String>, at: u64) -> Vec<SourceUpdate> {
        let facts = match facts {
            Ok(facts) => facts,
            Err(why) => {
                let all: BTreeSet<Subject> =
                    self.there.iter().map(|thing| thing.subject()).chain([Subject::Node]).collect();
                return all.into_iter().filter_map(|subject| self.blind(subject, &why)).collect();
            }
        };
        self.learn(&facts);
        let npus: Vec<Thing> =
            self.there.iter().copied().filter(|thing| matches!(thing, Thing::Npu(_))).collect();
        let mut seen: Vec<SourceUpdate> = npus
            .into_iter()
            .filter_map(|thing| match facts.things.get(&thing) {
                Some(There::Unknown(why)) => self.blind(thing.subject(), why),
                _ => self.all(thing.subject(), at),
            })
            .collect();
        seen.extend(match unseen(&self.there, &facts) {
            Some(why) => self.blind(Subject::Node, &why),
            None => self.all(Subject::Node, at),
        });
        seen
    }

    fn learn(&mut self, facts: &Facts) {
        for (thing, there) in &facts.things {
            match there {
                There::Yes => {
                    self.there.insert(*thing);
                    self.gone.remove(thing);
                }
                There::No(why) if self.there.contains(thing) => {
                    self.gone.insert(*thing, why.clone());
                }
                There::No(_) | There::Unknown(_) => {}
            }
        }
        for thing in &self.there {
            if let Thing::Npu(number) = thing
                && !facts.things.contains_key(thing)
            {
                let why = format!("/dev/davinci{number} was there and is missing");
                self.gone.insert(*thing, why);
            }
        }
    }

    fn blind(&mut self, subject: Subject, why: &str) -> Option<SourceUpdate> {
        let before = self.said.insert(subject, Said::Blind);
        (before != Some(Said::Blind)).then(|| SourceUpdate::Unavailable { subject, reason: why.to_owned() })
    }

    fn all(&mut self, subject: Subject, at: u64) -> Option<SourceUpdate> {
        let gone: Vec<(Thing, String)> = self
            .gone
            .iter()
            .filter(|(thing, _)| thing.subject() == subject)
            .map(|(thing, why)| (*thing, why.clone()))
            .collect();
        let said = Said::All(gone.iter().map(|(thing, _)| *thing).collect());
        if self.said.get(&subject) == Some(&said) {
            return None;
        }
        self.said.insert(subject, said);
        let standing = gone.into_iter().map(|(thing, why)| thing.standing(why)).collect();
        Some(SourceUpdate::Snapshot { subject, faults: standing, at })
    }
}

/// Why nothing can be said of the driver as a whole: a part of it has to be there and never was while this looked, so a
/// fault that was told before may stand still; or nothing of it can be seen.
fn unseen(there: &BTreeSet<Thing>, facts: &Facts) -> Option<String> {
    let never = |thing: &&Thing| !there.contains(thing);
    let missing = facts.demanded.iter().filter(never).find_map(|thing| match facts.things.get(thing)? {
        There::No(why) | There::Unknown(why) => Some(why.clone()),
        There::Yes => None,
    });
    missing.or_else(|| {
        let mut driver = facts.things.iter().filter(|(thing, _)| matches!(thing, Thing::Driver(_)));
        let all_unknown = driver.clone().all(|(_, there)| matches!(there, There::Unknown(_)));
        driver.find_map(|(_, there)| match there {
            There::Unknown(why) if all_unknown => Some(why.clone()),
            _ => None,
        })
    })
}

impl Thing {
    const fn subject(self) -> Subject {
        match self {
            Self::Npu(npu) => Subject::Npu(npu),
            Self::Driver(_) => Subject::Node,
        }
    }

    /// That it has gone.
    fn standing(self, why: String) -> ActiveFault {
        let code = match self {
            Self::Npu(_) => Code::from(CARD_DROP),
            Self::Driver(fault) => fault.code(),
        };
        ActiveFault { code, severity: Some(Severity::Critical), name: Some(why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANAGER: Thing = Thing::Driver(DriverFault::ManagerMissing);
    const HDC: Thing = Thing::Driver(DriverFault::HdcMissing);

    #[expect(clippy::unnecessary_wraps, reason = "what can't be seen is the other half")]
    fn facts(things: &[(Thing, There)]) -> Result<Facts, String> {
        Ok(Facts { things: things.iter().cloned().collect(), demanded: vec![MANAGER] })
    }

    fn no() -> There {
        There::No("gone".to_owned())
    }

    fn unknown() -> There {
        There::Unknown("hidden".to_owned())
    }

    /// What was said, short: a subject, and how many faults stand there or `None` for blindness.
    fn said(seen: Vec<SourceUpdate>) -> Vec<(String, Option<usize>)> {
        let short = |seen| match seen {
            SourceUpdate::Snapshot { subject, faults: standing, .. } => {
                (subject.to_string(), Some(standing.len()))
            }
            SourceUpdate::Unavailable { subject, .. } => (subject.to_string(), None),
            SourceUpdate::Event(event) => panic!("{event:?}"),
        };
        seen.into_iter().map(short).collect()
    }

    fn well(subject: &str) -> (String, Option<usize>) {
        (subject.to_owned(), Some(0))
    }

    #[test]
    fn what_was_there_can_go_and_come_back() {
        let mut learnt = Learnt::default();
        let both = facts(&[(Thing::Npu(0), There::Yes), (MANAGER, There::Yes)]);
        assert_eq!(said(learnt.judge(both.clone(), 1)), [well("npu0"), well("node")]);
        assert_eq!(learnt.judge(both.clone(), 2), [], "nothing new");
        let gone = learnt.judge(facts(&[(MANAGER, There::Yes)]), 3);
        let [SourceUpdate::Snapshot { subject: Subject::Npu(0), faults: standing, at: 3 }] = &gone[..] else {
            panic!("{gone:?}")
        };
        assert_eq!((standing[0].code.as_str(), standing[0].severity), ("40F84E00", Some(Severity::Critical)));
        assert_eq!(said(learnt.judge(both, 4)), [well("npu0")]);
        let manager = learnt.judge(facts(&[(Thing::Npu(0), There::Yes), (MANAGER, no())]), 5);
        let [SourceUpdate::Snapshot { subject: Subject::Node, faults: standing, .. }] = &manager[..] else {
            panic!("{manager:?}")
        };
        assert_eq!(standing[0].code.as_str(), "120011101");
    }

    #[test]
    fn what_was_never_there_is_no_fault() {
        let mut learnt = Learnt::default();
        let seen = learnt.judge(facts(&[(Thing::Npu(1), no()), (MANAGER, There::Yes), (HDC, no())]), 1);
        assert_eq!(said(seen), [well("node")]);
    }

    #[test]
    fn nothing_is_well_by_not_being_seen() {
        let mut learnt = Learnt::default();
        let all = [(Thing::Npu(0), There::Yes), (MANAGER, There::Yes), (HDC, There::Yes)];
        learnt.judge(facts(&all), 1);
        learnt.judge(facts(&[(MANAGER, There::Yes), (HDC, no())]), 2);
        assert_eq!(
            said(learnt.judge(Err("not mounted".to_owned()), 3)),
            [("node".to_owned(), None), ("npu0".to_owned(), None)]
        );
        assert_eq!(learnt.judge(Err("not mounted".to_owned()), 4), [], "said once");
        // Of the driver a part can be seen, and what stood before at the other stands.
        let part = facts(&[(Thing::Npu(0), unknown()), (MANAGER, There::Yes), (HDC, unknown())]);
        assert_eq!(said(learnt.judge(part, 5)), [("node".to_owned(), Some(1))]);
        assert_eq!(said(learnt.judge(facts(&all), 6)), [well("npu0"), well("node")]);
        let none = facts(&[(Thing::Npu(0), There::Yes), (MANAGER, unknown()), (HDC, unknown())]);
        assert_eq!(said(learnt.judge(none, 7)), [("node".to_owned(), None)]);
    }

    #[test]
    fn a_fault_of_an_earlier_process_is_not_over_by_a_restart() {
        let mut learnt = Learnt::default();
        let missing = facts(&[(MANAGER, no()), (HDC, There::Yes)]);
        assert_eq!(said(learnt.judge(missing.clone(), 1)), [("node".to_owned(), None)]);
        let mut learnt = Learnt::default();
        learnt.remember(Subject::Node, &DriverFault::ManagerMissing.code());
        learnt.remember(Subject::Npu(2), &Code::from(CARD_DROP));
        learnt.remember(Subject::Npu(3), &Code::from(0x80E0_1801));
        assert_eq!(
            said(learnt.judge(missing, 1)),
            [("npu2".to_owned(), Some(1)), ("node".to_owned(), Some(1))]
        );
        let back = facts(&[(Thing::Npu(2), There::Yes), (MANAGER, There::Yes), (HDC, There::Yes)]);
        assert_eq!(said(learnt.judge(back, 2)), [well("npu2"), well("node")]);
    }

    #[test]
    fn all_is_said_again_when_asked_for() {
        let mut learnt = Learnt::default();
        let all = facts(&[(Thing::Npu(0), There::Yes), (MANAGER, There::Yes)]);
        learnt.judge(all.clone(), 1);
        learnt.say_all_again();
        assert_eq!(said(learnt.judge(all, 2)), [well("npu0"), well("node")]);
    }
}
