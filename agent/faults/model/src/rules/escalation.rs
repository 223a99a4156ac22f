//! Applies the rules to the history of faults.
//!
//! Times are milliseconds of a monotonic clock, given by the caller; if it goes back, the last time applies. The results
//! don't depend on how often the caller calls: each call first applies what was due since the last one, at its own time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DurationRule, FrequencyRule, Rules};
use crate::code::Code;
use crate::level::Level;
use crate::source_update::Subject;

/// The limit of tracked faults. A node with 16 NPUs and all codes of MindCluster's rules needs 700.
const MAX_TRACKED: usize = 2048;

/// A level that a rule sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EscalatedLevel {
    /// The level; it applies if it is higher than that of the code.
    pub level: Level,
    /// The rule that matched.
    pub reason: EscalationReason,
}

/// The rule that raised the level of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscalationReason {
    /// The fault occurred `times` times within `window`.
    Repeated {
        /// The number of occurrences.
        times: u32,
        /// The time window.
        window: Duration,
    },
    /// The fault was active for more than `after`.
    Lasted { after: Duration },
}

/// Tracks the faults that have rules.
#[derive(Debug, Clone, Default)]
pub struct EscalationTracker {
    rules: Rules,
    tracks: BTreeMap<(Subject, Code), Track>,
    now: u64,
    untracked: u64,
}

/// The history of one code at one subject.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Track {
    /// Since when it is active.
    active: Option<u64>,
    /// Since when it is inactive, while a duration rule still applies.
    inactive: Option<u64>,
    /// Whether a duration rule applies.
    lasted: bool,
    /// The occurrences within the window since a frequency rule last matched.
    occurrences: VecDeque<u64>,
    /// Whether a frequency rule applies until the fault ends.
    repeated: bool,
    /// When a frequency rule with [`Level::ManuallySeparateNPU`] last matched; it applies until its release.
    separated: Option<u64>,
    /// When the source last reported it.
    reported: u64,
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
        let tracks = saved.into_iter().take(MAX_TRACKED);
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

    /// Replaces the rules. Tracked faults continue under the new rules; those without a rule are dropped.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        let rules = &self.rules;
        self.tracks.retain(|(_, code), track| {
            track.lasted &= rules.duration.contains_key(code);
            let frequency = rules.frequency.get(code);
            track.repeated &= frequency.is_some_and(|rule| rule.level != Level::ManuallySeparateNPU);
            if frequency.is_none_or(|rule| rule.level != Level::ManuallySeparateNPU) {
                track.separated = None;
            }
            if frequency.is_none() {
                track.occurrences.clear();
            }
            rules.has_rule(code)
        });
    }

    /// Records that a fault began. It has no effect on an active fault.
    pub fn record_occurrence(&mut self, subject: Subject, code: &Code, now: u64) {
        let now = self.clamp(now);
        self.update(subject, code, now, |track, duration, frequency| {
            if track.active.is_none() {
                track.active = Some(now);
                track.inactive = None;
                if duration.is_none() {
                    track.count(now, frequency);
                }
            }
        });
    }

    /// Restores a fault of an earlier process: whether it `is_active`, and the level to which a rule had `raised` it. It isn't
    /// counted as an occurrence, and durations begin now.
    pub fn restore(
        &mut self,
        subject: Subject,
        code: &Code,
        is_active: bool,
        raised: Option<Level>,
        now: u64,
    ) {
        let now = self.clamp(now);
        self.update(subject, code, now, |track, duration, frequency| {
            track.active = track.active.or(is_active.then_some(now));
            let Some(level) = raised else { return };
            if duration.is_some_and(|rule| rule.level == level) {
                track.lasted = true;
                track.inactive = (!is_active).then_some(now);
            } else if frequency.is_some_and(|rule| rule.level == level) {
                if level == Level::ManuallySeparateNPU {
                    track.separated.get_or_insert(now);
                } else {
                    track.repeated |= is_active;
                }
            }
        });
    }

    /// Records that a fault ended.
    pub fn record_recovery(&mut self, subject: Subject, code: &Code, now: u64) {
        let now = self.clamp(now);
        if !self.tracks.contains_key(&(subject, code.clone())) {
            return;
        }
        self.update(subject, code, now, |track, _, _| {
            if track.active.take().is_some() {
                track.inactive = track.lasted.then_some(now);
                track.repeated &= track.lasted;
            }
        });
    }

    /// Records a notice. Returns the level of this notice if a frequency rule matches.
    pub fn record_notice(&mut self, subject: Subject, code: &Code, now: u64) -> Option<EscalatedLevel> {
        let now = self.clamp(now);
        self.update(subject, code, now, |track, duration, frequency| {
            // Duration rules don't apply to notices.
            if duration.is_some() || !track.count(now, frequency) {
                return None;
            }
            track.repeated &= track.active.is_some();
            frequency.map(FrequencyRule::raise)
        })
        .flatten()
    }

    /// The level that a rule sets for a code now. It may outlast the fault: a duration rule applies until the fault has been
    /// inactive for its recovery time, and [`Level::ManuallySeparateNPU`] until the release.
    pub fn escalated_level(&mut self, subject: Subject, code: &Code, now: u64) -> Option<EscalatedLevel> {
        let now = self.clamp(now);
        let track = self.tracks.get_mut(&(subject, code.clone()))?;
        let (duration, frequency) = self.rules.for_code(code);
        track.advance(now, duration, frequency);
        track.raise(duration, frequency)
    }

    /// Applies what is due. Returns the faults whose level changed by time alone since the last call of any method.
    pub fn advance(&mut self, now: u64) -> Vec<(Subject, Code)> {
        let now = self.clamp(now);
        let mut changed = Vec::new();
        let rules = &self.rules;
        self.tracks.retain(|(subject, code), track| {
            let (duration, frequency) = rules.for_code(code);
            let before = track.raise(duration, frequency);
            track.advance(now, duration, frequency);
            if track.raise(duration, frequency) != before {
                changed.push((*subject, code.clone()));
            }
            !track.is_idle()
        });
        changed
    }

    /// When a level changes by time alone, unless something is recorded before.
    pub fn next_deadline(&self) -> Option<u64> {
        let next = |((_, code), track): (&(Subject, Code), &Track)| {
            let (duration, frequency) = self.rules.for_code(code);
            track.next(duration, frequency)
        };
        self.tracks.iter().filter_map(next).min()
    }

    /// The number of faults that weren't tracked because of the limit.
    pub const fn untracked(&self) -> u64 {
        self.untracked
    }

    fn clamp(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }

    /// Updates a track after it was advanced. Creates it if there is a rule and room.
    fn update<T>(
        &mut self,
        subject: Subject,
        code: &Code,
        now: u64,
        update: impl FnOnce(&mut Track, Option<&DurationRule>, Option<&FrequencyRule>) -> T,
    ) -> Option<T> {
        if !self.rules.has_rule(code) {
            return None;
        }
        let key = (subject, code.clone());
        if !self.tracks.contains_key(&key) && self.tracks.len() >= MAX_TRACKED && !self.evict() {
            self.untracked += 1;
            return None;
        }
        let (duration, frequency) = self.rules.for_code(code);
        let track = self.tracks.entry(key).or_default();
        track.advance(now, duration, frequency);
        track.reported = now;
        Some(update(track, duration, frequency))
    }

    /// Drops the track that was reported least recently among those with past occurrences only.
    fn evict(&mut self) -> bool {
        let candidates = self.tracks.iter().filter(|(_, track)| track.has_only_occurrences());
        let Some(key) = candidates.min_by_key(|(_, track)| track.reported).map(|(key, _)| key.clone()) else {
            return false;
        };
        self.tracks.remove(&key).is_some()
    }
}

impl Rules {
    fn has_rule(&self, code: &Code) -> bool {
        self.frequency.contains_key(code) || self.duration.contains_key(code)
    }

    fn for_code(&self, code: &Code) -> (Option<&DurationRule>, Option<&FrequencyRule>) {
        (self.duration.get(code), self.frequency.get(code))
    }
}

impl Track {
    /// Applies what time alone has changed until `now`.
    fn advance(&mut self, now: u64, duration: Option<&DurationRule>, frequency: Option<&FrequencyRule>) {
        if let Some(rule) = duration {
            if let (Some(since), false) = (self.active, self.lasted) {
                let until = since.saturating_add(millis(rule.after));
                if now > until {
                    self.lasted = true;
                    // The frequency rule counts how often the fault lasted then.
                    self.count(until, frequency);
                }
            }
            if let Some(inactive) = self.inactive
                && now.saturating_sub(inactive) > millis(rule.recover)
            {
                self.inactive = None;
                self.lasted = false;
                self.repeated = false;
            }
        } else {
            self.inactive = None;
        }
        if let Some(rule) = frequency {
            self.drop_expired(now, rule);
            let released =
                |since: u64| rule.release.is_some_and(|release| now.saturating_sub(since) > millis(release));
            if self.separated.is_some_and(released) {
                self.separated = None;
            }
        }
    }

    /// Counts an occurrence at `at`. Returns whether the frequency rule matches, which resets the count.
    fn count(&mut self, at: u64, frequency: Option<&FrequencyRule>) -> bool {
        let Some(rule) = frequency else { return false };
        self.drop_expired(at, rule);
        self.occurrences.push_back(at);
        if self.occurrences.len() < rule.times as usize {
            return false;
        }
        self.occurrences.clear();
        if rule.level == Level::ManuallySeparateNPU {
            self.separated = Some(at);
        } else {
            self.repeated = true;
        }
        true
    }

    fn drop_expired(&mut self, now: u64, rule: &FrequencyRule) {
        let begin = now.saturating_sub(millis(rule.window));
        while self.occurrences.front().is_some_and(|&at| at < begin) {
            self.occurrences.pop_front();
        }
    }

    fn raise(
        &self,
        duration: Option<&DurationRule>,
        frequency: Option<&FrequencyRule>,
    ) -> Option<EscalatedLevel> {
        let lasted = duration.filter(|_| self.lasted).map(DurationRule::raise);
        let repeated =
            frequency.filter(|_| self.repeated || self.separated.is_some()).map(FrequencyRule::raise);
        lasted.into_iter().chain(repeated).max_by_key(|raise| raise.level)
    }

    fn next(&self, duration: Option<&DurationRule>, frequency: Option<&FrequencyRule>) -> Option<u64> {
        let after = |since: u64, time: Duration| since.saturating_add(millis(time)).saturating_add(1);
        let expiry = duration.and_then(|rule| match (self.active, self.lasted, self.inactive) {
            (Some(since), false, _) => Some(after(since, rule.after)),
            (None, true, Some(inactive)) => Some(after(inactive, rule.recover)),
            _ => None,
        });
        let released = frequency.and_then(|rule| Some(after(self.separated?, rule.release?)));
        expiry.into_iter().chain(released).min()
    }

    fn is_idle(&self) -> bool {
        self.has_only_occurrences() && self.occurrences.is_empty()
    }

    fn has_only_occurrences(&self) -> bool {
        self.active.is_none() && !self.lasted && self.separated.is_none()
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
