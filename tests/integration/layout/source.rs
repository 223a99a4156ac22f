//! Just enough of a Rust lexer to see what code refers to.

/// The code without comments, with strings emptied.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let (length, kept) = match next {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), ""),
            '/' if rest.starts_with("/*") => (rest.find("*/").map_or(rest.len(), |end| end + 2), ""),
            '"' => (string(rest), "\"\""),
            '\'' => (character(rest), "'"),
            'r' if !code.ends_with(|before: char| before.is_alphanumeric() || before == '_') => {
                match raw_string(rest) {
                    Some(length) => (length, "\"\""),
                    None => (1, "r"),
                }
            }
            _ => (next.len_utf8(), &rest[..next.len_utf8()]),
        };
        code.push_str(kept);
        code.extend(rest[..length].chars().filter(|&char| char == '\n' && kept != "\n"));
        rest = &rest[length..];
    }
    code
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (place, char) in text.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return place + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal; 1 for the mark of a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => text[3..].find('\'').map_or(1, |end| end + 4),
        (Some(_), Some((place, '\''))) => place + 1,
        _ => 1,
    }
}

fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].find(|char| char != '#')?;
    let start = hashes + 2;
    text[1 + hashes..].starts_with('"').then_some(())?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(text[start..].find(&end).map_or(text.len(), |place| start + place + end.len()))
}

/// Code without its `#[cfg(test)]` items, and the names of the modules among them that are files.
pub(crate) fn without_tests(code: &str) -> (String, Vec<String>) {
    let (mut kept, mut modules, mut rest) = (String::new(), Vec::new(), code);
    while let Some(start) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..start]);
        let item = &rest[start + "#[cfg(test)]".len()..];
        let end = item_end(item);
        if let Some(name) = item[..end].trim().trim_start_matches("pub(crate) ").strip_prefix("mod ") {
            modules.extend(name.strip_suffix(';').map(|name| name.trim().to_owned()));
        }
        rest = &item[end..];
    }
    kept.push_str(rest);
    (kept, modules)
}

/// Where the first item ends: after its braces, or after its semicolon or comma.
fn item_end(code: &str) -> usize {
    let mut depth = 0_usize;
    for (place, char) in code.char_indices() {
        match char {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && char == '}' {
                    return place + 1;
                }
            }
            ';' | ',' if depth == 0 => return place + 1,
            _ => {}
        }
    }
    code.len()
}

/// The paths in code that begin with `crate` or `super`, groups in braces spread out.
pub(crate) fn paths(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for first in ["crate::", "super::"] {
        for (place, _) in code.match_indices(first) {
            let before = code[..place].chars().next_back();
            if !before.is_some_and(|char| char.is_alphanumeric() || "_:".contains(char)) {
                spread(&code[place..], Vec::new(), &mut paths);
            }
        }
    }
    paths
}

/// Reads one path or group; the length of what was read.
fn spread(code: &str, mut path: Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let mut place = 0;
    loop {
        place += code[place..].len() - code[place..].trim_start().len();
        let rest = &code[place..];
        if rest.starts_with('{') {
            place += 1;
            while place < code.len() && !code[place..].trim_start().starts_with('}') {
                let read = spread(&code[place..], path.clone(), paths);
                place += read;
                let skipped = code[place..].find([',', '}']).unwrap_or(code.len() - place);
                place += skipped;
                if code[place..].starts_with(',') {
                    place += 1;
                }
            }
            place += code[place..].find('}').map_or(0, |end| end + 1);
            return place;
        }
        let end = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
        if end > 0 {
            path.push(rest[..end].to_owned());
        }
        place += end;
        if end == 0 || !code[place..].starts_with("::") {
            paths.push(path);
            return place;
        }
        place += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_code_without_comments_and_strings() {
        let text = "a(\"x // \\\" y\"); // b\nlet c: &'a str = r#\"d \" e\"#; let f = '\"'; /* g */ h";
        assert_eq!(
            code(text),
            "a(\"\"); \nlet c: &'a str = \"\"; let f = '; /* g */ h".replace("/* g */", "")
        );
    }

    #[test]
    fn finds_paths_in_groups_and_expressions() {
        let found = paths("use crate::{a::{self, B}, c as d};\nfn e() { super::super::f::g() } mycrate::h");
        let expected: [&[&str]; 4] =
            [&["crate", "a", "self"], &["crate", "a", "B"], &["crate", "c"], &["super", "super", "f", "g"]];
        assert_eq!(found, expected);
    }

    #[test]
    fn takes_out_test_items() {
        let (kept, modules) = without_tests("a;#[cfg(test)]\nmod b;\n#[cfg(test)] mod c { d {} } e");
        assert_eq!((kept.as_str(), modules), ("a;\n e", vec!["b".to_owned()]));
    }
}
