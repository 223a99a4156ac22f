//! Rules that raise the level of faults that repeat or last, as `FaultFrequency` and `FaultDuration` in the device plugin's
//! `faultCustomization.json` do: a link that is down for a second is ignored, one that is down for twenty is a fault, and one
//! that fails repeatedly needs maintenance.

mod customization_file;
mod escalation;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

pub use self::escalation::{EscalatedLevel, EscalationReason, EscalationTracker, SavedTrack};
use crate::code::Code;
use crate::json::{ParseError, Warning};
use crate::level::Level;

/// `MinFaultFrequencyTimeWindow` to `MaxFaultFrequencyTimeWindow` of `ascend-device-plugin/pkg/common/constants.go`.
const WINDOW: RangeInclusive<u64> = 60..=864_000;
const TIMES: RangeInclusive<u64> = 1..=100;
const RELEASE: RangeInclusive<u64> = 60..=4_294_967_296;
const AFTER: RangeInclusive<u64> = 0..=600;
const RECOVER: RangeInclusive<u64> = 0..=86_400;

/// A fault that occurs `times` times within `window` gets `level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrequencyRule {
    times: u32,
    window: Duration,
    level: Level,
    release: Option<Duration>,
}

/// A fault that is active for more than `after` gets `level`, until it has been inactive for more than `recover`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationRule {
    after: Duration,
    recover: Duration,
    level: Level,
}

/// The rules by fault code; empty by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    frequency: BTreeMap<Code, FrequencyRule>,
    duration: BTreeMap<Code, DurationRule>,
}

/// Why a rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// A number is outside MindCluster's limits.
    #[error("{what} is {value}, and has to be from {} to {}{unit}", .limits.start(), .limits.end())]
    OutOfLimits {
        what: &'static str,
        value: u64,
        limits: RangeInclusive<u64>,
        /// ` seconds` or empty.
        unit: &'static str,
    },
    /// A duration rule has a level for frequency rules only.
    #[error("a fault that lasts can't become {}; that is for faults that repeat", Level::ManuallySeparateNPU)]
    NotForDurationRules,
    /// A release time for a level that isn't released.
    #[error("only {} is released after a time", Level::ManuallySeparateNPU)]
    NothingToRelease,
}

impl FrequencyRule {
    /// Creates a rule; `times` is 1 to 100, `window` a minute to ten days. [`Level::ManuallySeparateNPU`] ends `release` after
    /// the rule last matched, or never.
    ///
    /// # Errors
    ///
    /// When a number is outside MindCluster's limits, or another level has a release time.
    pub fn new(
        times: u64,
        window: Duration,
        level: Level,
        release: Option<Duration>,
    ) -> Result<Self, RuleError> {
        check_limits("the number of times", times, TIMES, "")?;
        check_limits("the window", window.as_secs(), WINDOW, " seconds")?;
        if let Some(release) = release {
            check_limits("the time to release", release.as_secs(), RELEASE, " seconds")?;
            if level != Level::ManuallySeparateNPU {
                return Err(RuleError::NothingToRelease);
            }
        }
        // At most 100.
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        Ok(Self { times, window, level, release })
    }
}

impl DurationRule {
    /// Creates a rule; `after` is at most ten minutes, `recover` at most a day.
    ///
    /// # Errors
    ///
    /// When a number is outside MindCluster's limits, or the level is [`Level::ManuallySeparateNPU`].
    pub fn new(after: Duration, recover: Duration, level: Level) -> Result<Self, RuleError> {
        check_limits("the active time", after.as_secs(), AFTER, " seconds")?;
        check_limits("the inactive time", recover.as_secs(), RECOVER, " seconds")?;
        if level == Level::ManuallySeparateNPU {
            return Err(RuleError::NotForDurationRules);
        }
        Ok(Self { after, recover, level })
    }
}

fn check_limits(
    what: &'static str,
    value: u64,
    limits: RangeInclusive<u64>,
    unit: &'static str,
) -> Result<(), RuleError> {
    if limits.contains(&value) { Ok(()) } else { Err(RuleError::OutOfLimits { what, value, limits, unit }) }
}

impl Rules {
    /// Parses a `faultCustomization.json`. As in the device plugin, rules outside the limits are ignored, with a warning.
    ///
    /// # Errors
    ///
    /// When the text isn't such a file.
    pub fn from_json(text: &str) -> Result<(Self, Vec<Warning>), ParseError> {
        customization_file::read(text)
    }

    /// Adds a rule for a code. Returns `false` if the code already has one, which remains.
    pub fn add_frequency_rule(&mut self, code: Code, rule: FrequencyRule) -> bool {
        let is_new = !self.frequency.contains_key(&code);
        self.frequency.entry(code).or_insert(rule);
        is_new
    }

    /// Adds a rule for a code. Returns `false` if the code already has one, which remains.
    pub fn add_duration_rule(&mut self, code: Code, rule: DurationRule) -> bool {
        let is_new = !self.duration.contains_key(&code);
        self.duration.entry(code).or_insert(rule);
        is_new
    }

    /// Adds the rules of `others` for codes that have none of that kind.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        for (code, rule) in &others.frequency {
            self.add_frequency_rule(code.clone(), *rule);
        }
        for (code, rule) in &others.duration {
            self.add_duration_rule(code.clone(), *rule);
        }
        self
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.frequency.is_empty() && self.duration.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn or_keeps_own_rules() {
        let code = Code::from_number;
        let duration = |seconds| {
            DurationRule::new(Duration::from_secs(seconds), Duration::ZERO, Level::SeparateNPU)
                .expect("valid")
        };
        let frequency =
            FrequencyRule::new(2, Duration::from_mins(1), Level::SeparateNPU, None).expect("valid");
        let (mut own, mut others, mut both) = (Rules::default(), Rules::default(), Rules::default());
        assert!(own.add_duration_rule(code(1), duration(1)));
        assert!(
            others.add_duration_rule(code(1), duration(2)) && others.add_duration_rule(code(2), duration(2))
        );
        assert!(others.add_frequency_rule(code(1), frequency));
        assert!(both.add_duration_rule(code(1), duration(1)) && both.add_duration_rule(code(2), duration(2)));
        assert!(both.add_frequency_rule(code(1), frequency));
        assert_eq!(own.or(&others), both);
    }

    #[test]
    fn only_manual_separation_has_a_release_time() {
        let minute = Duration::from_mins(1);
        assert_eq!(
            FrequencyRule::new(1, minute, Level::SeparateNPU, Some(minute)),
            Err(RuleError::NothingToRelease)
        );
    }
}
