//! Reads YAML into a shape for serde, and finds all of its problems.

use serde::de::{DeserializeOwned, IgnoredAny};

use super::{Problem, Problems};

/// Reads YAML into a shape whose `deny_unknown_fields` makes it strict, and checks it; an empty text is all defaults.
///
/// `free_keys` names the mapping, if there is one, whose keys are the user's own and may be called anything.
///
/// # Errors
///
/// With all problems of the shape, each with its line, and those that `check` finds in the rest. With the first problem if
/// the text isn't YAML.
pub fn read_shape<T: DeserializeOwned, C>(
    text: &str,
    free_keys: Option<&str>,
    check: impl FnOnce(T) -> Result<C, Problems>,
) -> Result<C, Problems> {
    let mut problems: Vec<Problem> = Vec::new();
    let mut rest = text.to_owned();
    // serde stops at the first problem, so its entry is taken out for the next attempt.
    let shape = loop {
        let problem = match read_once(&rest, free_keys) {
            Ok(shape) => break Some(shape),
            Err(problem) => problem,
        };
        let without = problem.position.and_then(|(line, _)| without_entry(&rest, line));
        if !is_consequence(&problem, &problems) {
            problems.push(problem);
        }
        match without.filter(|without| is_yaml(without)) {
            Some(without) => rest = without,
            None => break None,
        }
    };
    match shape.map(check) {
        Some(Ok(checked)) if problems.is_empty() => return Ok(checked),
        Some(Err(found)) => {
            let own: Vec<_> = found.iter().filter(|it| !is_consequence(it, &problems)).cloned().collect();
            problems.extend(own);
        }
        _ => {}
    }
    problems.sort_by_key(|problem| problem.position);
    Err(problems.into())
}

fn read_once<T: DeserializeOwned>(text: &str, free_keys: Option<&str>) -> Result<T, Problem> {
    let options = serde_saphyr::options! { with_snippet: false };
    let mut path = String::new();
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            path = error.path().to_string();
            error.into_inner()
        })
    })
    .map_err(|error| unreadable(as_written(&path, free_keys), &error))
}

fn is_yaml(text: &str) -> bool {
    serde_saphyr::from_str::<IgnoredAny>(text).map_or_else(
        |error| matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. }),
        |_| true,
    )
}

/// The text without the entry on a line and what is nested in it. Other lines keep their numbers. `None` if the line has no
/// entry.
fn without_entry(text: &str, line: u64) -> Option<String> {
    let at = usize::try_from(line).ok()?.checked_sub(1)?;
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_item = |line: &str| line.trim_start().starts_with("- ");
    let entry = text.lines().nth(at).filter(|entry| !entry.trim().is_empty())?;
    let mut is_inside = true;
    let lines = text.lines().enumerate().map(|(index, line)| {
        is_inside &= index <= at
            || line.trim().is_empty()
            || indent(line) > indent(entry)
            || (indent(line) == indent(entry)
                && !is_item(entry)
                && line.trim_start().starts_with(['-', ']', '}']));
        if index == at || (index > at && is_inside) { "" } else { line }
    });
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Whether a problem is about a parent of an entry that was taken out.
fn is_consequence(problem: &Problem, known: &[Problem]) -> bool {
    known.iter().any(|known| {
        let inner = known.key.strip_prefix(problem.key.as_str());
        inner.is_some_and(|inner| inner.is_empty() || problem.key.is_empty() || inner.starts_with(['.', '[']))
    })
}

/// A problem of the YAML itself, or of its shape, at `key`.
fn unreadable(key: String, error: &serde_saphyr::Error) -> Problem {
    use serde_saphyr::Error;
    let error = error.without_snippet();
    let position = error.location().map(|at| (at.line(), at.column()));
    let message = match error {
        Error::SerdeUnknownField { expected, .. } => {
            format!("is no key that is known here; choose among {}, or remove it", expected.join(", "))
        }
        Error::DuplicateMappingKey { key: Some(name), .. } => format!("has the key {name} twice; keep one"),
        Error::MultipleDocuments { .. } => "starts a second document; the configuration is one".to_owned(),
        other => in_plain_words(without_position(&other.to_string())),
    };
    Problem { position, key, message }
}

/// A path without what isn't in the file: `.` for the whole, `?` for what the parser couldn't name, and the member
/// `value` of [`serde_saphyr::Spanned`], which no key of a shape is called.
fn as_written(path: &str, free_keys: Option<&str>) -> String {
    let is_free =
        free_keys.is_some_and(|free| path.strip_prefix(free).is_some_and(|rest| rest.starts_with('.')));
    if is_free {
        let path = path.trim_end_matches(".?");
        // The one left of two is the user's own key.
        let inner = path.strip_suffix(".value").filter(|outer| outer.contains('.'));
        return inner.unwrap_or(path).to_owned();
    }
    let keys = path.split('.').filter(|key| !matches!(*key, "" | "?" | "value"));
    keys.collect::<Vec<_>>().join(".").replace(".value[", "[")
}

/// The parser ends its messages with the position, which a [`Problem`] has in front.
fn without_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(text, _)| text)
}

/// Rephrases messages of the parser so that they say what to write.
fn in_plain_words(message: &str) -> String {
    let plain = match message {
        "expected mapping start" => "must be a mapping, as `key: value`",
        "expected sequence start" => "must be a list, as `[a, b]`",
        "expected string scalar" => "must be one value, neither a list nor a mapping",
        "invalid boolean" => "must be true or false",
        _ if message.starts_with("cannot deserialize null") => "has no value; give one, or remove the key",
        _ if message.starts_with("externally tagged enum") => "must be a single value",
        _ => {
            match message.strip_prefix("invalid ").map(|kind| kind.strip_prefix(['i', 'u']).unwrap_or("?")) {
                Some(bits) if bits.parse::<u8>().is_ok() => "must be a whole number",
                _ => message,
            }
        }
    };
    plain.to_owned()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Shape {
        #[serde(rename = "number")]
        _number: u8,
        #[serde(rename = "names")]
        _names: std::collections::BTreeMap<String, String>,
        #[serde(rename = "list")]
        _list: Option<serde_saphyr::Spanned<Vec<String>>>,
        #[serde(rename = "flag")]
        _flag: bool,
        #[serde(rename = "word")]
        _word: Option<Word>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        One,
    }

    #[test]
    fn faults_name_line_and_key() {
        for (text, expected) in [
            ("number: x\n", "line 1, column 9: number: must be a whole number"),
            ("names: 1\n", "names: must be a mapping"),
            ("list: 1\n", "list: must be a list"),
            ("list: [a, [b]]\n", "list[1]: must be one value"),
            ("flag: 5\n", "flag: must be true or false"),
            ("word: [a]\n", "word: must be a single value"),
            ("names: {a: null}\n", "names.a: has no value"),
            (
                "\nnumbr: 1\n",
                "line 2, column 1: numbr: is no key that is known here; choose among number, names, list",
            ),
            ("names:\n  value: [1]\n", "line 2, column 10: names.value: "),
            ("number: 1\nnumber: 2\n", "has the key number twice"),
            ("number: 1\n---\nnumber: 2\n", "starts a second document"),
        ] {
            let faults =
                read_shape::<Shape, ()>(text, Some("names"), |_| Ok(())).expect_err(text).to_string();
            assert!(faults.contains(expected), "{text:?}: {faults}");
        }
        read_shape::<Shape, ()>("", None, |_| Ok(())).expect("all defaults");
    }

    #[test]
    fn every_problem_is_found_at_once() {
        let text = "\
number: x
unknown:
  number: 3
  deeper: { a: b }
list:
- a
- [b]
flag: [
  5, 6,
]
names: { a: null }
word: two
";
        let check = |_: Shape| {
            Err::<(), _>(
                Problem {
                    position: Some((5, 1)),
                    key: "list".to_owned(),
                    message: "of the removed list".to_owned(),
                }
                .into(),
            )
        };
        let problems = read_shape::<Shape, ()>(text, Some("names"), check).expect_err("refused");
        let keys: Vec<_> = problems.iter().map(|it| (it.position.map(|at| at.0), it.key.as_str())).collect();
        let expected =
            [(1, "number"), (2, "unknown"), (7, "list[1]"), (8, "flag"), (11, "names.a"), (12, "word")];
        assert_eq!(keys, expected.map(|(line, key)| (Some(line), key)), "{problems}");
    }

    #[test]
    fn the_rest_of_what_is_not_yaml_is_not_judged() {
        let problems = read_shape::<Shape, ()>("number: x\nflag: {\nword: two\n", None, |_| Ok(()))
            .expect_err("refused");
        assert_eq!(problems.iter().count(), 1, "{problems}");
    }
}
