//! Rules that raise the level of a fault which repeats or lasts.
//!
//! The idea is that of `faultCustomization.json` of the device plugin (`FaultFrequency`, `FaultDuration`): a link that
//! is down for a second is nothing, one that is down for twenty is a fault, and one that is down again and again is a
//! device to be looked at.

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

/// A fault that comes `times` times within `window` is at `level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrequencyRule {
    times: u32,
    window: Duration,
    level: Level,
    release: Option<Duration>,
}

/// A fault that stands for more than `after` is at `level`, until it is away for more than `recover`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationRule {
    after: Duration,
    recover: Duration,
    level: Level,
}

/// All rules; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    frequency: BTreeMap<Code, FrequencyRule>,
    lasting: BTreeMap<Code, DurationRule>,
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// A number out of MindCluster's limits.
    #[error("{what} is {value}, and has to be from {} to {}{unit}", .limits.start(), .limits.end())]
    OutOfLimits {
        /// Of what.
        what: &'static str,
        /// The number.
        value: u64,
        /// The limits.
        limits: RangeInclusive<u64>,
        /// ` seconds`, or nothing.
        unit: &'static str,
    },
    /// A level that such a rule can't have.
    #[error("a fault that lasts can't become {}; that is for faults that repeat", Level::ManuallySeparateNPU)]
    NotForLasting,
    /// A time to release what is never separated.
    #[error("only {} is released after a time", Level::ManuallySeparateNPU)]
    NothingToRelease,
}

impl FrequencyRule {
    /// A rule: `times` 1 to 100, `window` a minute to ten days. What is [`Level::ManuallySeparateNPU`] stays so for
    /// `release` after the last time that the rule said so, or for ever.
    ///
    /// # Errors
    ///
    /// When a number is out of MindCluster's limits, or there is nothing to release.
    pub fn new(
        times: u64,
        window: Duration,
        level: Level,
        release: Option<Duration>,
    ) -> Result<Self, RuleError> {
        within("the number of times", times, TIMES, "")?;
        within("the window", window.as_secs(), WINDOW, " seconds")?;
        if let Some(release) = release {
            within("the time to release", release.as_secs(), RELEASE, " seconds")?;
            if level != Level::ManuallySeparateNPU {
                return Err(RuleError::NothingToRelease);
            }
        }
        // At most a hundred.
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        Ok(Self { times, window, level, release })
    }
}

impl DurationRule {
    /// A rule: `after` up to ten minutes, `recover` up to a day.
    ///
    /// # Errors
    ///
    /// When a number is out of MindCluster's limits, or the level is [`Level::ManuallySeparateNPU`].
    pub fn new(after: Duration, recover: Duration, level: Level) -> Result<Self, RuleError> {
        within("the time that it stands", after.as_secs(), AFTER, " seconds")?;
        within("the time that it is away", recover.as_secs(), RECOVER, " seconds")?;
        if level == Level::ManuallySeparateNPU {
            return Err(RuleError::NotForLasting);
        }
        Ok(Self { after, recover, level })
    }
}

fn within(
    what: &'static str,
    value: u64,
    limits: RangeInclusive<u64>,
    unit: &'static str,
) -> Result<(), RuleError> {
    if limits.contains(&value) { Ok(()) } else { Err(RuleError::OutOfLimits { what, value, limits, unit }) }
}

impl Rules {
    /// From the text of a `faultCustomization.json`. A rule out of limits is left out with a warning, as the device
    /// plugin does.
    ///
    /// # Errors
    ///
    /// When it isn't such a file.
    pub fn from_json(text: &str) -> Result<(Self, Vec<Warning>), ParseError> {
        customization_file::read(text)
    }

    /// Adds a rule for a code; of two the first counts, and `false` is the answer to the second.
    pub fn add_frequency_rule(&mut self, code: Code, rule: FrequencyRule) -> bool {
        let is_new = !self.frequency.contains_key(&code);
        self.frequency.entry(code).or_insert(rule);
        is_new
    }

    /// Adds a rule for a code; of two the first counts, and `false` is the answer to the second.
    pub fn add_duration_rule(&mut self, code: Code, rule: DurationRule) -> bool {
        let is_new = !self.lasting.contains_key(&code);
        self.lasting.entry(code).or_insert(rule);
        is_new
    }

    /// These rules, and for codes without one of a kind those of `others`.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        for (code, rule) in &others.frequency {
            self.add_frequency_rule(code.clone(), *rule);
        }
        for (code, rule) in &others.lasting {
            self.add_duration_rule(code.clone(), *rule);
        }
        self
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.frequency.is_empty() && self.lasting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_rules_go_before_those_of_others() {
        let code = Code::from_number;
        let lasts = |seconds| {
            DurationRule::new(Duration::from_secs(seconds), Duration::ZERO, Level::SeparateNPU)
                .expect("sound")
        };
        let repeats = FrequencyRule::new(2, Duration::from_mins(1), Level::SeparateNPU, None).expect("sound");
        let (mut own, mut others, mut both) = (Rules::default(), Rules::default(), Rules::default());
        assert!(own.add_duration_rule(code(1), lasts(1)));
        assert!(others.add_duration_rule(code(1), lasts(2)) && others.add_duration_rule(code(2), lasts(2)));
        assert!(others.add_frequency_rule(code(1), repeats));
        assert!(both.add_duration_rule(code(1), lasts(1)) && both.add_duration_rule(code(2), lasts(2)));
        assert!(both.add_frequency_rule(code(1), repeats));
        assert_eq!(own.or(&others), both);
    }

    #[test]
    fn only_what_is_separated_by_hand_is_released() {
        let minute = Duration::from_mins(1);
        assert_eq!(
            FrequencyRule::new(1, minute, Level::SeparateNPU, Some(minute)),
            Err(RuleError::NothingToRelease)
        );
    }
}
