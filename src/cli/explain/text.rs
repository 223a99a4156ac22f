//! The explanation as text.

use std::fmt::Write;
use swansong_api::documented::Documented as _;

use swansong_inject::reason::Reason;
use swansong_inject::report::{Action, ActionKind, TemplateReport};

use super::report::{Entry, Report};
use crate::cli::files::printable;
use crate::cli::trainer_text::arithmetic;
use swansong_trainer::Verdict;

/// In characters; longer values get separate lines to align the reasons.
const MAX_VALUE_WIDTH: usize = 34;

/// Formats the report, with the file of each object if `files`.
pub(super) fn page(report: &Report, files: bool) -> String {
    let mut page = Page { out: String::new(), files };
    for (index, entry) in report.documents.iter().enumerate() {
        let brief = entry.templates.is_empty() && entry.warnings.is_empty() && entry.notes.is_empty();
        let before = index.checked_sub(1).and_then(|before| report.documents.get(before));
        if before.is_some_and(|before| !(brief && before.templates.is_empty())) {
            page.line(0, "");
        }
        page.entry(entry);
    }
    if report.documents.is_empty() {
        page.line(0, "no objects in the input");
    }
    if !report.reminders.is_empty() {
        page.line(0, "");
        page.line(0, "Admission can't add these, so check them yourself:");
        for reminder in &report.reminders {
            page.line(2, &format!("- {reminder}"));
        }
    }
    page.out
}

struct Page {
    out: String,
    files: bool,
}

const fn mark(action: ActionKind) -> char {
    match action {
        ActionKind::Added => '+',
        ActionKind::Merged => '~',
        ActionKind::Kept => '=',
        ActionKind::Skipped => '-',
    }
}

impl Page {
    fn line(&mut self, indent: usize, text: &str) {
        // Writing to a String can't fail.
        let _ = writeln!(self.out, "{:indent$}{}", "", printable(text));
    }

    fn entry(&mut self, entry: &Entry) {
        let kind = &entry.title;
        let name = if entry.name.is_empty() { "(no name)" } else { &entry.name };
        let name =
            if entry.namespace.is_empty() { name.to_owned() } else { format!("{}/{name}", entry.namespace) };
        let file = if self.files { format!("{}, ", entry.file) } else { String::new() };
        let item = entry.path.strip_prefix("/items/").map_or(String::new(), |item| format!(", item {item}"));
        let place = format!("({file}document {}{item})", entry.document + 1);
        self.line(0, &format!("{kind} {name}  {place}"));
        self.line(2, &verdict(entry));
        if entry.injected && !entry.strategies.is_empty() {
            self.line(2, &format!("strategies: {}", entry.strategies.join(", ")));
        }
        if !entry.actions.is_empty() {
            self.line(2, "the job's own metadata");
            self.table(&entry.actions);
        }
        // The reason for the object is above; only an opt-out is copied to its templates.
        for template in entry.templates.iter().filter(|it| entry.injected || !it.actions.is_empty()) {
            self.template(template);
        }
        for trainer in entry.trainers.iter().filter(|trainer| !trainer.report.trainings.is_empty()) {
            self.line(
                2,
                &format!("{}: {} save a dying checkpoint", trainer.place(), verb(trainer.report.verdict)),
            );
            for training in &trainer.report.trainings {
                self.line(4, &format!("{} ({})", training.program, training.framework.as_str()));
                for line in arithmetic(training) {
                    self.line(4, &line);
                }
            }
        }
        for warning in &entry.warnings {
            self.line(2, &format!("WARNING {warning}"));
        }
        for note in &entry.notes {
            self.line(2, &format!("note: {note}"));
        }
    }

    fn template(&mut self, template: &TemplateReport) {
        let rank = if template.rank_zero { ", rank 0" } else { "" };
        let title = format!("{}{rank}", title(&template.path));
        match template.skip {
            Some(reason) => {
                self.line(2, &format!("{title}: unchanged: {} ({reason})", sentence(reason)));
            }
            None => self.line(2, &title),
        }
        self.table(&template.actions);
        for container in &template.containers {
            self.line(4, &format!("container {}", container.name));
            self.table(&container.actions);
        }
    }

    fn table(&mut self, rows: &[Action]) {
        let value = |row: &Action| row.value.clone().unwrap_or_default();
        let fits = |value: &str| value.chars().count() <= MAX_VALUE_WIDTH;
        let shown = |row: &Action| match (value(row), value(row).split(':').count()) {
            (value, _) if fits(&value) => value,
            (_, 1) => "(below)".to_owned(),
            (_, count) => format!("({count} below)"),
        };
        let width = |text: &str| text.chars().count();
        let field_width = rows.iter().map(|row| width(&row.field)).max().unwrap_or_default();
        let value_width = rows.iter().map(|row| width(&shown(row))).max().unwrap_or_default();
        for row in rows {
            let (mark, field, shown, reason) = (mark(row.action), &row.field, shown(row), short(row.reason));
            let line = format!("{mark} {field:field_width$}  {shown:value_width$}  {reason}");
            self.line(6, line.trim_end());
            if !fits(&value(row)) {
                value(row).split(':').for_each(|part| self.line(10, part));
            }
        }
    }
}

fn verb(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unknown => "can't tell whether it can",
        other => other.into(),
    }
}

/// Summary in one line.
fn verdict(entry: &Entry) -> String {
    if let Some(reason) = entry.skip {
        let but = if entry.changes == 0 { "" } else { " except for the changes below" };
        let remedy = match reason.remedy() {
            "Nothing." => String::new(),
            remedy => format!(". {remedy}"),
        };
        return format!("unchanged{but}: {} ({reason}){remedy}", sentence(reason));
    }
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let changes = count(entry.changes, "change");
    let warnings = count(entry.warnings.len(), "warning");
    let done = if entry.changes == 0 { "nothing to add" } else { &format!("injected: {changes}") };
    let condition = if entry.incomplete { ", provided that the ConfigMap of the note exists" } else { "" };
    match (entry.changes, entry.warnings.len()) {
        (0, 0) => format!("nothing to do: already complete{condition}"),
        (_, 0) => format!("complete after injection: {changes}{condition}"),
        (_, _) => format!("{done}; {warnings} to fix"),
    }
}

/// A reason in a table; common ones are abbreviated.
fn short(reason: Reason) -> &'static str {
    match reason {
        Reason::Required => "was missing",
        Reason::AlreadyPresent => "already right",
        Reason::AddedToPods => "added to each Pod when it is created",
        Reason::StrategyCopied | Reason::OptionCopied => "copied from the job",
        other => sentence(other),
    }
}

fn sentence(reason: Reason) -> &'static str {
    reason.meaning().trim().trim_end_matches('.')
}

fn title(path: &str) -> String {
    let part = path.rsplit('/').nth(1).unwrap_or_default().replace("~1", "/").replace("~0", "~");
    if path.is_empty() {
        "the pod".to_owned()
    } else if path.starts_with("/spec/replicaSpecs/") {
        format!("replica {part}")
    } else if path.starts_with("/spec/tasks/") {
        format!("task {part}")
    } else {
        "pod template".to_owned()
    }
}
