//! Objects as text.

use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

use crate::screen::{Screen, Tone};

/// What the API server itself adds to every object.
const BOOKKEEPING: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "namespace", "resourceVersion", "uid"];

/// Longer runs of changed lines are shortened.
const LONGEST_RUN: usize = 14;
const SHOWN_OF_LONGER: usize = 3;

/// An object as YAML, keys in the order of the alphabet as the API server has them, its bookkeeping
/// left out and texts of several lines named only.
pub(crate) fn yaml(object: &Value) -> Result<String, serde_saphyr::ser::Error> {
    let mut object = sorted(object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !BOOKKEEPING.contains(&key.as_str()));
    }
    serde_saphyr::to_string(&object)
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(Map::from_iter(entries))
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::String(text) if text.contains('\n') => format!("({} lines)", text.lines().count()).into(),
        other => other.clone(),
    }
}

/// Shows what changed between two texts, each change below the line above it; the rest is folded.
pub(crate) fn diff(screen: &Screen, before: &str, after: &str) {
    let diff = TextDiff::from_lines(before, after);
    let changes: Vec<_> = diff.iter_all_changes().map(|change| (change.tag(), change.value())).collect();
    let mut above = None;
    for run in changes.chunk_by(|(one, _), (other, _)| one == other) {
        let (tag, last) = run[run.len() - 1];
        let (mark, tone) = match tag {
            ChangeTag::Insert => ('+', Tone::Good),
            ChangeTag::Delete => ('-', Tone::Bad),
            ChangeTag::Equal => {
                above = Some((run.len() - 1, last));
                continue;
            }
        };
        if let Some((folded, line)) = above.take() {
            let fold = if folded > 0 { format!("  # {folded} lines more above") } else { String::new() };
            screen.tinted(Tone::Faint, format_args!("    {}{fold}", line.trim_end()));
        }
        let shown = if run.len() > LONGEST_RUN { SHOWN_OF_LONGER } else { run.len() };
        for (_, line) in &run[..shown] {
            screen.tinted(tone, format_args!("  {mark} {}", line.trim_end()));
        }
        if shown < run.len() {
            screen.tinted(Tone::Faint, format_args!("  {mark} # {} lines more", run.len() - shown));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bookkeeping_is_left_out_and_keys_are_in_order() {
        let object = json!({
            "spec": { "b": [{ "d": 1, "c": "x" }], "a": "on" },
            "metadata": { "uid": "1", "name": "n", "managedFields": [] },
        });
        let text = yaml(&object).unwrap();
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            back,
            json!({ "metadata": { "name": "n" }, "spec": { "a": "on", "b": [{ "c": "x", "d": 1 }] } })
        );
        assert!(text.find("a:").unwrap() < text.find("b:").unwrap(), "{text}");
    }
}
