//! Shortens texts for users.

/// One line of at max `max` characters, without control characters, with single spaces.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line: String = words.collect::<Vec<_>>().join(" ").chars().take(max).collect();
    line.trim_end().to_owned()
}

/// As [`one_line`], at max `max` *bytes*.
pub(crate) fn one_line_of_bytes(text: &str, max: usize) -> String {
    let mut line = one_line(text, max);
    line.truncate(line.floor_char_boundary(max));
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn white_space_becomes_single_spaces() {
        assert_eq!(one_line(" a\tb\r\n\n c\u{a0}d\u{0}e\u{3000}", 99), "a b c d e");
        assert_eq!(one_line("ab cd", 4), "ab c");
        assert_eq!(one_line("ab cd", 3), "ab");
        assert_eq!(one_line("\n \t", 3), "");
        assert_eq!(one_line_of_bytes("故障", 5), "故");
    }

    proptest! {
        #[test]
        fn fits_and_is_idempotent(text in any::<String>(), max in 0usize..40) {
            let line = one_line(&text, max);
            prop_assert!(line.chars().count() <= max);
            prop_assert_eq!(&one_line(&line, max), &line);
            prop_assert!(!line.chars().any(|c| c != ' ' && (c.is_whitespace() || c.is_control())));
            let bytes = one_line_of_bytes(&text, max);
            prop_assert!(bytes.len() <= max);
        }
    }
}
