//! What stands and stood, and what the rules make of it.
//!
//! Times are milliseconds of a clock that never goes back, given by the caller; one that does is taken for standing
//! still. When the caller asks makes no difference to what the answer is: what should have happened in between is made
//! up for, at the time at which it should have.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DurationRule, FrequencyRule, Rules};
use crate::code::Code;
use crate::level::Level;
use crate::source_update::Subject;

/// So many faults are followed. A node of 16 NPUs with all codes for which MindCluster has rules needs 700.
const MOST: usize = 2048;

/// A level that a rule gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EscalatedLevel {
    /// The level, which counts if it is graver than the one of the code.
    pub level: Level,
    /// Which rule.
    pub reason: EscalationReason,
}

/// Which rule raised a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscalationReason {
    /// It came so many times within such a time.
    Repeated {
        /// How often.
        times: u32,
        /// Within what.
        window: Duration,
    },
    /// It stood for more than this.
    Lasted {
        /// How long.
        after: Duration,
    },
}

/// Follows the faults for which there are rules.
#[derive(Debug, Clone, Default)]
pub struct EscalationTracker {
    rules: Rules,
    tracks: BTreeMap<(Subject, Code), Track>,
    now: u64,
    untracked: u64,
}

/// One code at one subject.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Track {
    /// Since when it stands.
    standing: Option<u64>,
    /// Since when it is away again, while it is still taken for lasting.
    away: Option<u64>,
    /// It stood long enough.
    lasted: bool,
    /// When it came, as far as that is within the window and the rule hasn't said yet that it is too often.
    came: VecDeque<u64>,
    /// It came too often, until it goes.
    repeated: bool,
    /// It came too often, until it is released: when the rule said so last.
    separated: Option<u64>,
    /// When anything was last heard of it.
    heard: u64,
}

/// The counters of one code at one subject, as they outlive a process. Its times have to mean the same to the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTrack {
    subject: Subject,
    code: Code,
    #[serde(flatten)]
    track: Track,
}

impl EscalationTracker {
    /// Continues with the counters of an earlier process, as far as there are rules for them.
    pub fn with_tracks(rules: Rules, saved: Vec<SavedTrack>) -> Self {
        let tracks = saved.into_iter().take(MOST);
        let tracks = tracks.map(|saved| ((saved.subject, saved.code), saved.track)).collect();
        let mut escalation = Self { tracks, ..Self::default() };
        escalation.set_rules(rules);
        escalation
    }

    /// The counters, for [`with_tracks`](Self::with_tracks).
    pub fn saved_tracks(&self) -> Vec<SavedTrack> {
        let saved = |((subject, code), track): (&(Subject, Code), &Track)| SavedTrack {
            subject: *subject,
            code: code.clone(),
            track: track.clone(),
        };
        self.tracks.iter().map(saved).collect()
    }

    /// The faults that are followed.
    pub fn followed(&self) -> Vec<(Subject, Code)> {
        self.tracks.keys().cloned().collect()
    }

    /// With these rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Other rules. What is followed goes on under them; what no rule is for any more is forgotten.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        let rules = &self.rules;
        self.tracks.retain(|(_, code), track| {
            track.lasted &= rules.lasting.contains_key(code);
            let frequency = rules.frequency.get(code);
            track.repeated &= frequency.is_some_and(|rule| rule.level != Level::ManuallySeparateNPU);
            if frequency.is_none_or(|rule| rule.level != Level::ManuallySeparateNPU) {
                track.separated = None;
            }
            if frequency.is_none() {
                track.came.clear();
            }
            rules.have(code)
        });
    }

    /// A fault came. One that stands already hasn't come.
    pub fn record_occurrence(&mut self, subject: Subject, code: &Code, now: u64) {
        let now = self.at(now);
        self.with(subject, code, now, |track, lasting, frequency| {
            if track.standing.is_none() {
                track.standing = Some(now);
                track.away = None;
                if lasting.is_none() {
                    track.count(now, frequency);
                }
            }
        });
    }

    /// An earlier process followed this fault: whether it `stands`, and the level to which a rule had `raised` it. It
    /// hasn't come now, and times are counted from now on.
    pub fn restore(&mut self, subject: Subject, code: &Code, stands: bool, raised: Option<Level>, now: u64) {
        let now = self.at(now);
        self.with(subject, code, now, |track, lasting, frequency| {
            track.standing = track.standing.or(stands.then_some(now));
            let Some(level) = raised else { return };
            if lasting.is_some_and(|rule| rule.level == level) {
                track.lasted = true;
                track.away = (!stands).then_some(now);
            } else if frequency.is_some_and(|rule| rule.level == level) {
                if level == Level::ManuallySeparateNPU {
                    track.separated.get_or_insert(now);
                } else {
                    track.repeated |= stands;
                }
            }
        });
    }

    /// A fault went.
    pub fn record_recovery(&mut self, subject: Subject, code: &Code, now: u64) {
        let now = self.at(now);
        if !self.tracks.contains_key(&(subject, code.clone())) {
            return;
        }
        self.with(subject, code, now, |track, _, _| {
            if track.standing.take().is_some() {
                track.away = track.lasted.then_some(now);
                track.repeated &= track.lasted;
            }
        });
    }

    /// A fault of which the source says only that it happened. The answer is the level of this one notice, by a rule
    /// about how often it comes.
    pub fn record_notice(&mut self, subject: Subject, code: &Code, now: u64) -> Option<EscalatedLevel> {
        let now = self.at(now);
        self.with(subject, code, now, |track, lasting, frequency| {
            // A moment doesn't last.
            if lasting.is_some() || !track.count(now, frequency) {
                return None;
            }
            track.repeated &= track.standing.is_some();
            frequency.map(FrequencyRule::raise)
        })
        .flatten()
    }

    /// Somebody gave a device free again: what was separated by hand isn't any more.
    pub fn release(&mut self, subject: Subject) {
        for ((_, _), track) in self.tracks.iter_mut().filter(|((of, _), _)| *of == subject) {
            track.separated = None;
            track.came.clear();
        }
    }

    /// The level that a rule gives a code now. It may outlast the fault itself: a fault that lasted is over only when it
    /// has been away for long enough, and a device that was separated by hand when it is released.
    pub fn escalated_level(&mut self, subject: Subject, code: &Code, now: u64) -> Option<EscalatedLevel> {
        let now = self.at(now);
        let track = self.tracks.get_mut(&(subject, code.clone()))?;
        let (lasting, frequency) = self.rules.of(code);
        track.settle(now, lasting, frequency);
        track.raise(lasting, frequency)
    }

    /// Whether and what changed by itself since the last call of anything here: the faults whose level isn't what it
    /// was.
    pub fn advance(&mut self, now: u64) -> Vec<(Subject, Code)> {
        let now = self.at(now);
        let mut changed = Vec::new();
        let rules = &self.rules;
        self.tracks.retain(|(subject, code), track| {
            let (lasting, frequency) = rules.of(code);
            let before = track.raise(lasting, frequency);
            track.settle(now, lasting, frequency);
            if track.raise(lasting, frequency) != before {
                changed.push((*subject, code.clone()));
            }
            !track.is_idle()
        });
        changed
    }

    /// When something changes by itself, if nothing is heard until then.
    pub fn next_deadline(&self) -> Option<u64> {
        let next = |((_, code), track): (&(Subject, Code), &Track)| {
            let (lasting, frequency) = self.rules.of(code);
            track.next(lasting, frequency)
        };
        self.tracks.iter().filter_map(next).min()
    }

    /// Faults that no rule was applied to, because too many are followed already.
    pub const fn untracked(&self) -> u64 {
        self.untracked
    }

    fn at(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }

    /// Works on a track that is settled, and makes it if there is a rule for it and room.
    fn with<T>(
        &mut self,
        subject: Subject,
        code: &Code,
        now: u64,
        work: impl FnOnce(&mut Track, Option<&DurationRule>, Option<&FrequencyRule>) -> T,
    ) -> Option<T> {
        if !self.rules.have(code) {
            return None;
        }
        let key = (subject, code.clone());
        if !self.tracks.contains_key(&key) && self.tracks.len() >= MOST && !self.make_room() {
            self.untracked += 1;
            return None;
        }
        let (lasting, frequency) = self.rules.of(code);
        let track = self.tracks.entry(key).or_default();
        track.settle(now, lasting, frequency);
        track.heard = now;
        Some(work(track, lasting, frequency))
    }

    /// Forgets one of those that merely came before: the one not heard of for longest.
    fn make_room(&mut self) -> bool {
        let spare = self.tracks.iter().filter(|(_, track)| track.only_came());
        let Some(key) = spare.min_by_key(|(_, track)| track.heard).map(|(key, _)| key.clone()) else {
            return false;
        };
        self.tracks.remove(&key).is_some()
    }
}

impl Rules {
    fn have(&self, code: &Code) -> bool {
        self.frequency.contains_key(code) || self.lasting.contains_key(code)
    }

    fn of(&self, code: &Code) -> (Option<&DurationRule>, Option<&FrequencyRule>) {
        (self.lasting.get(code), self.frequency.get(code))
    }
}

impl Track {
    /// Makes up for what time alone has changed until `now`.
    fn settle(&mut self, now: u64, lasting: Option<&DurationRule>, frequency: Option<&FrequencyRule>) {
        if let Some(rule) = lasting {
            if let (Some(since), false) = (self.standing, self.lasted) {
                let until = since.saturating_add(millis(rule.after));
                if now > until {
                    self.lasted = true;
                    // What counts as often is then how often it lasted.
                    self.count(until, frequency);
                }
            }
            if let Some(away) = self.away
                && now.saturating_sub(away) > millis(rule.recover)
            {
                self.away = None;
                self.lasted = false;
                self.repeated = false;
            }
        } else {
            self.away = None;
        }
        if let Some(rule) = frequency {
            self.forget(now, rule);
            let released =
                |since: u64| rule.release.is_some_and(|release| now.saturating_sub(since) > millis(release));
            if self.separated.is_some_and(released) {
                self.separated = None;
            }
        }
    }

    /// It came at `at`. `true` when that is too often; then counting begins anew.
    fn count(&mut self, at: u64, frequency: Option<&FrequencyRule>) -> bool {
        let Some(rule) = frequency else { return false };
        self.forget(at, rule);
        self.came.push_back(at);
        if self.came.len() < rule.times as usize {
            return false;
        }
        self.came.clear();
        if rule.level == Level::ManuallySeparateNPU {
            self.separated = Some(at);
        } else {
            self.repeated = true;
        }
        true
    }

    fn forget(&mut self, now: u64, rule: &FrequencyRule) {
        let begin = now.saturating_sub(millis(rule.window));
        while self.came.front().is_some_and(|&came| came < begin) {
            self.came.pop_front();
        }
    }

    fn raise(
        &self,
        lasting: Option<&DurationRule>,
        frequency: Option<&FrequencyRule>,
    ) -> Option<EscalatedLevel> {
        let lasted = lasting.filter(|_| self.lasted).map(DurationRule::raise);
        let repeated =
            frequency.filter(|_| self.repeated || self.separated.is_some()).map(FrequencyRule::raise);
        lasted.into_iter().chain(repeated).max_by_key(|raise| raise.level)
    }

    fn next(&self, lasting: Option<&DurationRule>, frequency: Option<&FrequencyRule>) -> Option<u64> {
        let after = |since: u64, time: Duration| since.saturating_add(millis(time)).saturating_add(1);
        let lasts = lasting.and_then(|rule| match (self.standing, self.lasted, self.away) {
            (Some(since), false, _) => Some(after(since, rule.after)),
            (None, true, Some(away)) => Some(after(away, rule.recover)),
            _ => None,
        });
        let released = frequency.and_then(|rule| Some(after(self.separated?, rule.release?)));
        lasts.into_iter().chain(released).min()
    }

    fn is_idle(&self) -> bool {
        self.only_came() && self.came.is_empty()
    }

    fn only_came(&self) -> bool {
        self.standing.is_none() && !self.lasted && self.separated.is_none()
    }
}

impl FrequencyRule {
    fn raise(&self) -> EscalatedLevel {
        EscalatedLevel {
            level: self.level,
            reason: EscalationReason::Repeated { times: self.times, window: self.window },
        }
    }
}

impl DurationRule {
    fn raise(&self) -> EscalatedLevel {
        EscalatedLevel { level: self.level, reason: EscalationReason::Lasted { after: self.after } }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
