//! What is told of a node, and when. Pure: no clock, no API server; time and what the node shows are handed in.
//!
//! ```text
//! checks → seen → standing (holds against flapping) ┐
//! what the node shows: condition, label, taint, boot ┴→ step: what to write, whom to tell
//! ```
//!
//! It compares what is true with what the node *shows*, not with what was sent: a write that failed, a restart, and
//! somebody else's hand on the node all look the same, a difference, and are mended the same way.

mod holds;
mod ledger;
mod story;

#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, SystemTime};

use self::holds::Holds;
use self::ledger::Ledger;
pub(crate) use self::story::shorten;
pub use self::story::{Standing, Story};
use crate::check::CheckName;
use crate::reason::Reason;
use crate::report::{Check, Ready};

/// The condition's type.
pub const CONDITION: &str = "DumpReady";
/// The label, with the values `true`, `false` and `unknown`.
pub const LABEL: &str = "swansong.dev/dump-ready";
/// The taint's key; its effect is `NoSchedule`.
pub const TAINT: &str = "swansong.dev/not-ready";
/// The annotation that says in which boot the node was checked.
pub const BOOT_ID: &str = "swansong.dev/boot-id";

/// How long things have to stand before they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// A failure.
    pub fail_after: Duration,
    /// Health after a failure; longer when it has come and gone often.
    pub recover_after: Duration,
    /// That nothing can be told.
    pub unknown_after: Duration,
    /// The longest time between two writes; the shortest, when nothing happens, is half of it.
    pub heartbeat: Duration,
    /// Whether a node that isn't ready gets the taint.
    pub taint: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fail_after: Duration::from_secs(1),
            recover_after: Duration::from_secs(3),
            unknown_after: Duration::from_secs(30),
            heartbeat: Duration::from_mins(10),
            taint: false,
        }
    }
}

/// What the checks say now.
#[derive(Debug, Clone, Copy)]
pub enum Looked<'a> {
    /// The first round hasn't ended.
    NotYet,
    /// A round has begun long ago and doesn't end.
    Hangs,
    /// A round broke off, and there is no newer one.
    Failed,
    /// The last round.
    Done(&'a [Check]),
}

/// Two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// One that never goes back, since any beginning.
    pub elapsed: Duration,
    /// The one on the wall.
    pub wall: SystemTime,
}

/// What the node shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The condition [`CONDITION`].
    pub condition: Option<Condition>,
    /// The label [`LABEL`].
    pub label: Option<String>,
    /// Whether the taint [`TAINT`] is there.
    pub tainted: bool,
    /// The annotation [`BOOT_ID`].
    pub boot_id: Option<String>,
}

/// A node condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: Ready,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When it was written last, to the second.
    pub heartbeat: SystemTime,
    /// When the status changed last, to the second.
    pub transition: SystemTime,
}

/// Why something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The status changed.
    Transition,
    /// Other checks fail than before.
    Details,
    /// Somebody else has changed it.
    Correction,
    /// So that everybody sees that the agent lives.
    Heartbeat,
}

impl Cause {
    /// The name in metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transition => "transition",
            Self::Details => "details",
            Self::Correction => "correction",
            Self::Heartbeat => "heartbeat",
        }
    }

    /// All of them.
    pub const ALL: [Self; 4] = [Self::Transition, Self::Details, Self::Correction, Self::Heartbeat];
}

/// What to write, all of it in one request, so that no reader sees the half of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Why.
    pub cause: Cause,
    /// The condition.
    pub condition: Condition,
    /// The label's value.
    pub label: &'static str,
    /// The annotation's value; `None` leaves it alone.
    pub boot_id: Option<String>,
}

/// What to tell as an Event on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Whether it is bad.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// The checks it is about, and what they said while they failed.
    pub checks: Vec<(CheckName, Reason)>,
}

/// What follows from a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Condition, label and annotation.
    pub write: Option<Write>,
    /// The taint: `Some(true)` to add it, `Some(false)` to take it away.
    pub taint: Option<bool>,
    /// An Event.
    pub news: Option<News>,
    /// Something is about to change: look again soon.
    pub unsettled: bool,
}

/// The memory between two looks.
#[derive(Debug)]
pub struct Readiness {
    settings: Settings,
    node: String,
    /// `None` where the kernel doesn't tell.
    boot_id: Option<String>,
    holds: Holds,
    standing: Option<Ready>,
    story: Option<Story>,
    /// What failed when something last did.
    failed: Vec<(CheckName, Reason)>,
    sent: Option<Story>,
    shown: Ledger,
    tainted: Ledger,
    /// The heartbeat that the node shows, and when it has to be followed by the next.
    due: Option<(SystemTime, Duration)>,
    started: bool,
    /// Nothing is known from before, so the first definite look counts at once.
    fresh: bool,
}

impl Readiness {
    /// Knows nothing yet. `boot_id` is that of the running kernel.
    pub fn new(settings: Settings, node: impl Into<String>, boot_id: Option<String>) -> Self {
        Self {
            holds: Holds::default(),
            settings,
            node: node.into(),
            boot_id,
            standing: None,
            story: None,
            failed: Vec::new(),
            sent: None,
            shown: Ledger::default(),
            tainted: Ledger::default(),
            due: None,
            started: false,
            fresh: false,
        }
    }

    /// What stands now; `None` before anything is known.
    pub const fn standing(&self) -> Option<Ready> {
        self.standing
    }

    /// What follows from a look at `now`, given what the node shows.
    pub fn step(&mut self, now: Now, looked: Looked<'_>, told: &Told) -> Step {
        if !self.started {
            self.started = true;
            self.begin(told);
        }
        let seen = Story::of(looked);
        let mut step = Step { news: self.settle(now.elapsed, looked, &seen), ..Step::default() };
        step.unsettled = self.standing.is_some_and(|standing| standing != seen.ready);
        // A former process knew more than one that has just begun.
        let begun = !matches!(looked, Looked::NotYet);
        if begun && self.standing == Some(seen.ready) && !self.fresh {
            self.story = Some(seen);
        }
        if let (Some(standing), Some(story)) = (self.standing, self.story.clone()) {
            step.write = self.difference(now, standing, &story, told);
            step.taint = self.taint(now.elapsed, standing, told);
        }
        if let Some(Write { cause: Cause::Details, .. }) = step.write
            && step.news.is_none()
            && self.standing == Some(Ready::False)
        {
            step.news = self.news(Ready::False);
        }
        step
    }

    /// Goes on from what the node shows, unless that is from before the last boot.
    fn begin(&mut self, told: &Told) {
        let Some(condition) = &told.condition else {
            self.fresh = true;
            return;
        };
        if self.boot_id.is_none() || self.boot_id == told.boot_id {
            self.standing = Some(condition.status);
            self.story = Some(Story::told(condition));
        } else {
            self.fresh = true;
            self.standing = Some(Ready::Unknown);
            self.story = Some(Story::since_boot());
        }
    }

    /// Takes in what was seen; news if something else stands from now on.
    fn settle(&mut self, now: Duration, looked: Looked<'_>, seen: &Story) -> Option<News> {
        let held = self.holds.held(now, seen.ready);
        let complete = matches!(looked, Looked::Done(_));
        let enough = match (self.standing, seen.ready) {
            (Some(standing), seen) if standing == seen && !(self.fresh && complete) => return None,
            _ if self.fresh && complete => true,
            (_, Ready::False) => held >= self.settings.fail_after,
            (_, Ready::True) => held >= self.holds.recovery(now, self.settings.recover_after),
            (_, Ready::Unknown) => held >= self.settings.unknown_after,
        };
        if !enough {
            return None;
        }
        self.fresh = false;
        let before = self.standing.replace(seen.ready);
        self.story = Some(seen.clone());
        if before == Some(seen.ready) {
            return None;
        }
        self.shown.expect();
        self.tainted.expect();
        if before == Some(Ready::True) {
            self.holds.relapsed(now);
        }
        self.news(seen.ready)
    }

    fn news(&mut self, ready: Ready) -> Option<News> {
        let story = self.story.as_ref()?;
        let checks = match ready {
            Ready::True => std::mem::take(&mut self.failed),
            Ready::False | Ready::Unknown => story.details.clone().unwrap_or_default(),
        };
        if ready != Ready::True {
            self.failed.clone_from(&checks);
        }
        let mut message = story.message.clone();
        if ready == Ready::True && !checks.is_empty() {
            let again: Vec<&str> = checks.iter().map(|(name, _)| name.as_str()).collect();
            message = format!("{message}; recovered: {}", again.join(", "));
        }
        let reason = match ready {
            Ready::True => "DumpReady",
            Ready::False => "DumpNotReady",
            Ready::Unknown => "DumpReadinessUnknown",
        };
        Some(News { warning: ready != Ready::True, reason, message, checks })
    }

    /// What has to be written for the node to show what stands.
    fn difference(&mut self, now: Now, standing: Ready, story: &Story, told: &Told) -> Option<Write> {
        let label = label(standing);
        let shows_standing = told.condition.as_ref().filter(|condition| {
            condition.status == standing
                && told.label.as_deref() == Some(label)
                && (self.boot_id.is_none() || told.boot_id == self.boot_id)
        });
        let cause = match shows_standing {
            None => self.shown.mismatch(now.elapsed)?,
            Some(condition) => {
                self.shown.matches();
                let due = self.due(now, condition);
                if self.tells(condition, story) {
                    (due <= now.elapsed).then_some(Cause::Heartbeat)?
                } else if self.shown.pay(now.elapsed) {
                    Cause::Details
                } else {
                    (due <= now.elapsed).then_some(Cause::Heartbeat)?
                }
            }
        };
        let former = told.condition.as_ref().filter(|condition| condition.status == standing);
        let condition = Condition {
            status: standing,
            reason: story.reason.clone(),
            message: story.message.clone(),
            heartbeat: now.wall,
            transition: former.map_or(now.wall, |former| former.transition),
        };
        self.sent = Some(story.clone());
        Some(Write { cause, condition, label, boot_id: self.boot_id.clone() })
    }

    /// Whether the condition names the failing checks. Their messages may hold numbers that change at every look, and
    /// wait for the heartbeat.
    fn tells(&self, condition: &Condition, story: &Story) -> bool {
        let same_words = condition.message == story.message && condition.reason == story.reason;
        same_words
            || self.sent.as_ref().is_some_and(|sent| {
                sent.message == condition.message
                    && sent.reason == condition.reason
                    && sent.details.is_some()
                    && sent.details == story.details
            })
    }

    /// When the next heartbeat is due, on the clock that never goes back. It lies in the second half of the window, at
    /// a place that differs from node to node and from time to time, and that a restart finds again.
    fn due(&mut self, now: Now, condition: &Condition) -> Duration {
        match self.due {
            Some((seen, due)) if seen == condition.heartbeat => due,
            before => {
                let half = self.settings.heartbeat / 2;
                let mut hasher = DefaultHasher::new();
                (&self.node, condition.heartbeat).hash(&mut hasher);
                let part = u32::try_from(hasher.finish() >> 32).unwrap_or(u32::MAX);
                let wait = half + half.mul_f64(f64::from(part) / f64::from(u32::MAX));
                // A later heartbeat is one that was just written; the first may be old. A clock that was set back
                // makes no heartbeat wait for longer than a window.
                let age = match before {
                    None => now.wall.duration_since(condition.heartbeat).unwrap_or_default(),
                    Some(_) => Duration::ZERO,
                };
                let due = now.elapsed + wait.saturating_sub(age);
                self.due = Some((condition.heartbeat, due));
                due
            }
        }
    }

    /// A node that nothing is known of keeps its taint, or its lack of one.
    fn taint(&mut self, now: Duration, standing: Ready, told: &Told) -> Option<bool> {
        let wanted = match standing {
            Ready::False => self.settings.taint,
            Ready::Unknown => self.settings.taint && told.tainted,
            Ready::True => false,
        };
        if wanted == told.tainted {
            self.tainted.matches();
            return None;
        }
        self.tainted.mismatch(now).map(|_| wanted)
    }
}

/// The label's value.
const fn label(ready: Ready) -> &'static str {
    match ready {
        Ready::True => "true",
        Ready::False => "false",
        Ready::Unknown => "unknown",
    }
}
