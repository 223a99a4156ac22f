//! Expands `{a,b}` and `{1..4}` in words.

use super::lexer::part_length;

/// A word that becomes more words than this isn't expanded.
const MAX_WORDS: usize = 256;

/// The words that `raw` becomes, still with their quotes; `None` if there are too many.
pub(super) fn expand(raw: &str) -> Option<Vec<String>> {
    if !raw.contains('{') {
        return Some(vec![raw.to_owned()]);
    }
    let (mut done, mut open) = (Vec::new(), vec![raw.to_owned()]);
    while let Some(word) = open.pop() {
        if done.len() + open.len() >= MAX_WORDS {
            return None;
        }
        match first_group(&word) {
            None => done.push(word),
            // `open` is a stack.
            Some((start, end, parts)) => {
                let (before, behind) = (&word[..start], &word[end..]);
                open.extend(parts.iter().rev().map(|part| format!("{before}{part}{behind}")));
            }
        }
    }
    Some(done)
}

/// The first group of braces that is expanded: where it begins and ends, and its parts.
fn first_group(word: &str) -> Option<(usize, usize, Vec<String>)> {
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut found: Option<(usize, usize, Vec<String>)> = None;
    let mut at = 0;
    while let Some(c) = word[at..].chars().next() {
        match c {
            '\\' | '\'' | '"' | '`' | '$' => {
                at += part_length(&word[at..]).max(c.len_utf8());
                continue;
            }
            '{' => open.push((at, Vec::new())),
            ',' => {
                if let Some((_, commas)) = open.last_mut() {
                    commas.push(at);
                }
            }
            '}' => {
                if let Some((start, commas)) = open.pop()
                    && let Some(parts) = parts(word, start, at, &commas)
                {
                    // The outer group of nested ones comes first.
                    found = Some((start, at + 1, parts));
                    if open.is_empty() {
                        return found;
                    }
                }
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    found
}

fn parts(word: &str, start: usize, end: usize, commas: &[usize]) -> Option<Vec<String>> {
    if !commas.is_empty() {
        let starts = std::iter::once(start + 1).chain(commas.iter().map(|comma| comma + 1));
        let ends = commas.iter().copied().chain([end]);
        return Some(starts.zip(ends).map(|(start, end)| word[start..end].to_owned()).collect());
    }
    let (first, last) = word[start + 1..end].split_once("..")?;
    // Leading zeros stay in the shell; they aren't read.
    let number =
        |text: &str| (text == "0" || !text.starts_with('0')).then(|| text.parse::<i64>().ok()).flatten();
    let (first, last) = (number(first)?, number(last)?);
    if first.abs_diff(last) >= MAX_WORDS as u64 {
        return None;
    }
    let numbers: Vec<i64> =
        if first <= last { (first..=last).collect() } else { (last..=first).rev().collect() };
    Some(numbers.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_become_words() {
        for (raw, expected) in [
            ("--{save,load}", vec!["--save", "--load"]),
            ("{--lora-r,8}", vec!["--lora-r", "8"]),
            ("node{1..3}:8", vec!["node1:8", "node2:8", "node3:8"]),
            ("{3..1}", vec!["3", "2", "1"]),
            ("a{b,c{d,e}}f", vec!["abf", "acdf", "acef"]),
            ("${A:-{b,c}}", vec!["${A:-{b,c}}"]),
            ("'{a,b}'\"{c,d}\"\\{e,f\\}", vec!["'{a,b}'\"{c,d}\"\\{e,f\\}"]),
            ("{}", vec!["{}"]),
            ("{a}", vec!["{a}"]),
            ("{,x}", vec!["", "x"]),
            ("{1..}", vec!["{1..}"]),
        ] {
            assert_eq!(expand(raw).expect("few words"), expected, "{raw}");
        }
        assert_eq!(expand(&"{a,b}".repeat(40)), None);
        assert!(expand(&"{".repeat(100_000)).is_some());
    }
}
