//! Finds annotation keys that are probably misspelled.

use std::borrow::Cow;

use swansong_api::annotations::{
    INJECTED, LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH, OPTIONS, RECOVER_STRATEGY,
};

/// The largest distance of a key that is taken for [`RECOVER_STRATEGY`].
const SIMILAR: usize = 2;

/// [`RECOVER_STRATEGY`] in one part more than it may have changes, so one of them is in every similar key.
const PARTS: [&str; SIMILAR + 1] = ["recov", "er-str", "ategy"];

/// Whether `key` is [`RECOVER_STRATEGY`] or similar to it.
pub(crate) fn resembles_strategy(key: &str) -> bool {
    let name = key.rsplit('/').next().unwrap_or(key);
    if name.len().abs_diff(RECOVER_STRATEGY.len()) > 6 {
        return false;
    }
    let name = normalised(name);
    // Reviews come here for each label and annotation, and a distance costs a microsecond.
    PARTS.iter().any(|part| name.contains(part)) && distance(&name, RECOVER_STRATEGY) <= SIMILAR
}

/// The option that `key`, an annotation of Swansong, probably means; the key is unknown if it is `Err`.
pub(crate) fn check_option(key: &str) -> Result<(), Option<&'static str>> {
    if OPTIONS.contains(&key) || [INJECTED, LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH].contains(&key) {
        return Ok(());
    }
    let key = normalised(key);
    let nearest = OPTIONS.into_iter().map(|option| (distance(&key, option), option)).min();
    Err(nearest.filter(|(distance, _)| *distance <= 3).map(|(_, option)| option))
}

/// Lower case with hyphens, without white space and invisible characters.
fn normalised(key: &str) -> Cow<'_, str> {
    if key.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'/')) {
        return Cow::Borrowed(key);
    }
    let visible = key.chars().filter(|c| !c.is_whitespace() && !is_invisible(*c) && !c.is_control());
    visible
        .flat_map(char::to_lowercase)
        .map(|c| if matches!(c, '_' | '.') { '-' } else { c })
        .collect::<String>()
        .into()
}

/// Whether a character is invisible in most fonts.
pub(crate) const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{a0}' | '\u{200b}'..='\u{200f}' | '\u{202f}' | '\u{2060}' | '\u{feff}' | '\u{ad}')
}

/// The Levenshtein distance.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_strategy() {
        assert_eq!(PARTS.concat(), RECOVER_STRATEGY);
    }

    #[test]
    fn similar_keys_are_found() {
        for key in [
            "recover-strategy",
            "recover_strategy",
            "Recover-Strategy",
            "recover-stategy",
            "\u{a0}recover-strategy",
            "example.com/recover-strategy",
        ] {
            assert!(resembles_strategy(key), "{key:?}");
        }
        for key in ["recovery", "deployment-strategy", "recover-in-place", "strategy"] {
            assert!(!resembles_strategy(key), "{key:?}");
        }
        assert_eq!(check_option("swansong.dev/skip-preloads"), Err(Some("swansong.dev/skip-preload")));
        assert_eq!(check_option("swansong.dev/colour"), Err(None));
        assert_eq!(check_option("swansong.dev/inject"), Ok(()));
    }
}
