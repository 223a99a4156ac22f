//! Lines of MindIO's and the TaskD Manager's logs that show the course of a dump.

use super::{Cause, Stage, Step};

/// A text in a line, and what it means.
#[derive(Debug, PartialEq, Eq)]
pub struct Meaning {
    /// All of them are in the line, in this order.
    pub texts: &'static [&'static str],
    pub stage: Stage,
    pub meaning: &'static str,
    /// What to do if there is no checkpoint; nothing for a line of the usual course.
    pub remedy: &'static str,
}

const fn usual(texts: &'static [&'static str], stage: Stage, meaning: &'static str) -> Meaning {
    Meaning { texts, stage, meaning, remedy: "" }
}

const fn cause(
    texts: &'static [&'static str],
    stage: Stage,
    meaning: &'static str,
    remedy: &'static str,
) -> Meaning {
    Meaning { texts, stage, meaning, remedy }
}

/// The lines that MindIO 7.2 and 26.0 and TaskD of the same releases write.
pub const MEANINGS: [Meaning; 15] = [
    cause(
        &["start_mindio_controller failed"],
        Stage::Ranks,
        "MindIO has no controller: the TaskD Manager lacks POD_IP or TTP_PORT",
        "Create the Pods again while the webhook runs.",
    ),
    cause(
        &["the libtaskd.so has not been loaded"],
        Stage::Ranks,
        "the TaskD Manager couldn't load its library",
        "Check the image: swansong image-check.",
    ),
    cause(
        &["Trying to connect to", "errno:111"],
        Stage::Ranks,
        "nothing listens at a training process's address of MindIO's controller",
        "See controller-address, controller-listening and service-ports in swansong doctor.",
    ),
    usual(&["status error, rank:", "diff_time"], Stage::Ranks, "MindIO misses the heartbeats of a rank"),
    usual(&["selected error ranks:"], Stage::Ranks, "MindIO decides with these lost ranks"),
    usual(
        &["wait Mindx notify stop train"],
        Stage::Order,
        "MindIO has reported the fault and waits for the order",
    ),
    usual(&["mindx calling notify to dump!"], Stage::Order, "ClusterD's order to save has arrived"),
    cause(
        &["wait mindx wake up action ret:110"],
        Stage::Order,
        "no order to save came in time",
        "See reset-config, recovery-enabled and job-summary in swansong doctor, and ClusterD's log.",
    ),
    cause(
        &["NormalCallback found mindx event:17"],
        Stage::Order,
        "the order arrived before MindIO had detected a lost rank, so a dead rank may have been chosen to save",
        "Leave the fault to ClusterD, or end the rank by swansong.dev/fast-dump.",
    ),
    cause(
        &["has no complete data"],
        Stage::Save,
        "too few healthy ranks have the optimizer's state",
        "Keep replicas of the optimizer on several nodes (distributed optimizer with data parallelism).",
    ),
    cause(
        &["do not support dump!"],
        Stage::Save,
        "the trainer has registered no groups, or a state that can't be saved",
        "Check the trainer: swansong lint-script.",
    ),
    cause(
        &["ProcessInner failed after reply error retry", "ACTION_OP_SAVECKPT"],
        Stage::Save,
        "the save took longer than MindIO allows",
        "Set TTP_NORMAL_ACTION_TIME_LIMIT to 1800 in the environment of the TaskD Manager.",
    ),
    cause(
        &["reply dump result failed"],
        Stage::Save,
        "MindIO's controller was gone when a rank had saved",
        "Let the launcher hook protect rank 0's Pod: launcher-hook in swansong doctor.",
    ),
    cause(
        &["don`t have dump config"],
        Stage::Order,
        "ClusterD or a platform ordered a second save",
        "See whether a platform and ClusterD both give orders (platform-mode in swansong doctor).",
    ),
    cause(
        &["already started dump work flow"],
        Stage::Order,
        "ClusterD or a platform ordered a second save",
        "See whether a platform and ClusterD both give orders (platform-mode in swansong doctor).",
    ),
];

/// Where a line was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSource {
    pub pod: String,
    pub container: String,
}

/// A line that says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// When the container wrote it, in milliseconds since 1970, by the clock of its node.
    pub at: Option<u64>,
    pub source: LogSource,
    pub meaning: &'static Meaning,
    pub text: String,
}

impl LogLine {
    /// The lines of a log that say something, of each kind the last one. Each line begins with the time of the API server's logs.
    pub fn of(source: &LogSource, log: &str) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for line in log.lines() {
            let Some(meaning) = MEANINGS.iter().find(|meaning| meaning.is_in(line)) else { continue };
            let (at, text) = split_time(line);
            found.retain(|earlier| earlier.meaning != meaning);
            found.push(Self { at, source: source.clone(), meaning, text: text.to_owned() });
        }
        found
    }

    fn by(&self) -> String {
        format!("log of {}/{}", self.source.pod, self.source.container)
    }

    pub(super) fn step(&self) -> Step {
        let what = format!("{} ({})", self.meaning.meaning, self.text.trim());
        Step { at: self.at, stage: self.meaning.stage, by: self.by(), what }
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        let Meaning { meaning, remedy, .. } = self.meaning;
        let cause = || Cause { what: (*meaning).to_owned(), remedy: (*remedy).to_owned(), by: self.by() };
        (!remedy.is_empty()).then(cause)
    }

    /// The ranks of `selected error ranks: [..]`.
    pub(super) fn lost_ranks(&self) -> Option<String> {
        let (_, list) = self.text.split_once("selected error ranks: [")?;
        Some(list.split_once(']')?.0.to_owned())
    }
}

impl Meaning {
    fn is_in(&self, line: &str) -> bool {
        let mut rest = line;
        self.texts.iter().all(|text| {
            rest.split_once(text).is_some_and(|(_, after)| {
                rest = after;
                true
            })
        })
    }
}

/// The time in front of a line, as the kubelet writes it.
fn split_time(line: &str) -> (Option<u64>, &str) {
    let Some((time, text)) = line.split_once(' ') else { return (None, line) };
    match time.parse::<k8s_openapi::jiff::Timestamp>() {
        Ok(time) => (u64::try_from(time.as_millisecond()).ok(), text),
        Err(_) => (None, line),
    }
}
