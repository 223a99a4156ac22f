//! The course as text.

use std::fmt;

use super::{Course, Outcome};
use crate::report::escape;
use k8s_openapi::jiff::Timestamp;

/// A course for people.
#[derive(Debug)]
pub struct Text<'a>(pub &'a Course);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Course { job, fault, outcome, steps, lost_ranks, causes, unknown } = self.0;
        writeln!(f, "job {job}: {}", sentence(*outcome))?;
        if let Some(fault) = fault {
            writeln!(f, "fault {fault}")?;
        }
        if let Some(ranks) = lost_ranks {
            writeln!(f, "lost ranks {}", escape(ranks))?;
        }
        let first = steps.iter().find_map(|step| step.at);
        if let Some(first) = first {
            writeln!(f, "{}; times are UTC and relative to the first step", format_time(first, "%Y-%m-%d"))?;
        }
        for step in steps {
            let stage: &str = step.stage.into();
            let time = step.at.map_or_else(|| "-".to_owned(), |at| time(at, first.unwrap_or(at)));
            writeln!(f, "{time:<22} {stage:<8} {}", escape(&step.what))?;
            writeln!(f, "{:<31} {}", "", step.by)?;
        }
        if !causes.is_empty() {
            writeln!(f, "\npossible causes")?;
        }
        for cause in causes {
            writeln!(f, "  × {} ({})\n      {}", escape(&cause.what), cause.by, cause.remedy)?;
        }
        if !unknown.is_empty() {
            writeln!(f, "\nwhat isn't known")?;
        }
        for why in unknown {
            writeln!(f, "  ? {}", escape(why))?;
        }
        Ok(())
    }
}

const fn sentence(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Saved => "its checkpoint was saved",
        Outcome::Recovered => "another strategy recovered it, so no dump was needed",
        Outcome::NotSaved => "no checkpoint was saved",
        Outcome::Pending => "the outcome is still awaited",
        Outcome::Unknown => "it isn't known whether a checkpoint was saved",
    }
}

fn format_time(at: u64, format: &str) -> String {
    let stamp = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    stamp.map(|stamp| stamp.strftime(format).to_string()).unwrap_or_default()
}

/// The time of the day, and the seconds since the first step.
fn time(at: u64, first: u64) -> String {
    let clock = format_time(at, "%H:%M:%S");
    let elapsed = at.saturating_sub(first);
    format!("{clock} +{}.{} s", elapsed / 1000, elapsed % 1000 / 100)
}
