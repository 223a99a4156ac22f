//! Texts of bounded length.

/// `text`, or as much of its start as fits into `most` bytes with an ellipsis behind it.
pub(super) fn cut(text: &str, most: usize) -> String {
    const ELLIPSIS: char = '…';
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most.saturating_sub(ELLIPSIS.len_utf8()));
    let mut cut = text[..end].to_owned();
    cut.push(ELLIPSIS);
    cut
}

/// The API server silently drops a warning with control characters.
pub(super) fn printable(mut text: String) -> String {
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_between_characters() {
        for (text, most, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "…"),
            ("abcdef", 5, "ab…"),
            ("äöü", 6, "äöü"),
            ("äöüß", 6, "ä…"),
            ("", 0, ""),
        ] {
            assert_eq!(cut(text, most), expected);
            assert!(cut(text, most).len() <= most);
        }
    }

    #[test]
    fn control_characters_become_blanks() {
        assert_eq!(printable("a\nb\u{7f}c\u{85}".to_owned()), "a b c ");
        assert_eq!(printable("ä".to_owned()), "ä");
    }
}
