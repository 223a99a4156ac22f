//! Finds annotation keys that are probably misspelled.

use std::borrow::Cow;

use swansong_api::annotations::{
    INJECTED, LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH, OPTIONS, PREFIX, RECOVER_STRATEGY,
};

/// The largest distance of a key that is taken for [`RECOVER_STRATEGY`].
const SIMILAR: usize = 2;

/// [`RECOVER_STRATEGY`] in one part more than it may have changes, so one of them is in every similar key.
const PARTS: [&str; SIMILAR + 1] = ["recov", "er-str", "ategy"];

/// Whether `key` is [`RECOVER_STRATEGY`] or similar to it.
pub fn resembles_strategy(key: &str) -> bool {
    let name = key.rsplit('/').next().unwrap_or(key);
    let is_as_long = |name: &str| name.len().abs_diff(RECOVER_STRATEGY.len()) <= 6;
    // Characters that are removed have several bytes.
    if name.is_ascii() && !is_as_long(name) {
        return false;
    }
    let mut name = normalised(name);
    if let Some(stem) = name.strip_suffix("ies") {
        name = format!("{stem}y").into();
    }
    // Reviews come here for each label and annotation, and a distance costs a microsecond.
    is_as_long(&name)
        && PARTS.iter().any(|part| name.contains(part))
        && distance(&name, RECOVER_STRATEGY) <= SIMILAR
}

/// Whether `key` is an annotation of Swansong, also by another spelling of its prefix, such as `swansong.io/`.
pub(crate) fn is_option(key: &str) -> bool {
    const NAME: &str = "swansong";
    let Some((domain, _)) = key.split_once('/') else { return false };
    // Longer domains, such as swansong.example.com, are those of others.
    domain.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME))
        && domain.bytes().filter(|byte| *byte == b'.').count() <= 1
}

/// The option that `key`, an annotation of Swansong, probably means; the key is unknown if it is `Err`.
pub(crate) fn check_option(key: &str) -> Result<(), Option<&'static str>> {
    if OPTIONS.contains(&key) || [INJECTED, LAUNCHER_HOOK_MODULE, LAUNCHER_HOOK_PTH].contains(&key) {
        return Ok(());
    }
    let name = normalised(key.rsplit('/').next().unwrap_or(key));
    let distance_to = |option: &str| distance(&name, option.strip_prefix(PREFIX).unwrap_or(option));
    let nearest = OPTIONS.into_iter().map(|option| (distance_to(option), option)).min();
    Err(nearest.filter(|(distance, _)| *distance <= 3 && *distance < name.len()).map(|(_, option)| option))
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
    matches!(
        c,
        '\u{a0}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202f}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e0fff}'
    )
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
            "recover-strategies",
            "recoverStrategy",
            "\u{a0}\u{a0}\u{a0}\u{a0}recover-strategy",
            "recover\u{2060}\u{200b}\u{ad}-\u{fe0f}strategy",
            "recover\u{2010}strategy",
        ] {
            assert!(resembles_strategy(key), "{key:?}");
        }
        for key in ["recovery", "deployment-strategy", "recover-in-place", "strategy"] {
            assert!(!resembles_strategy(key), "{key:?}");
        }
        assert_eq!(check_option("swansong.dev/skip-preloads"), Err(Some("swansong.dev/skip-preload")));
        assert_eq!(check_option("swansong.dev/colour"), Err(None));
        assert_eq!(check_option("swansong.dev/inject"), Ok(()));
        for key in ["swansong.dev/Inject", "swansong.io/inject", "Swansong.dev/inject", "swansong/injects"] {
            assert!(is_option(key), "{key}");
            assert_eq!(check_option(key), Err(Some("swansong.dev/inject")), "{key}");
        }
        for key in [
            "swansong",
            "example.com/swansong.dev",
            "swan.song/inject",
            "swansonß.dev/x",
            "swansong.example.com/x",
        ] {
            assert!(!is_option(key), "{key}");
        }
    }
}
