//! Texts for people, made to fit.

/// One line without control characters, white space as single blanks, at most `most` characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut room = most;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        // The blank goes only where something of the word follows.
        if !line.is_empty() {
            if room < 2 {
                break;
            }
            line.push(' ');
            room -= 1;
        }
        line.extend(word.chars().take(room));
        room = room.saturating_sub(word.chars().count());
        if room == 0 {
            break;
        }
    }
    line
}

/// As [`one_line`], at most `most` *bytes*.
pub(crate) fn one_line_of_bytes(text: &str, most: usize) -> String {
    let mut line = one_line(text, most);
    line.truncate(line.floor_char_boundary(most));
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn white_space_becomes_single_blanks() {
        assert_eq!(one_line(" a\tb\r\n\n c\u{a0}d\u{0}e\u{3000}", 99), "a b c d e");
        assert_eq!(one_line("ab cd", 4), "ab c");
        assert_eq!(one_line("ab cd", 3), "ab");
        assert_eq!(one_line("\n \t", 3), "");
        assert_eq!(one_line_of_bytes("故障", 5), "故");
    }

    proptest! {
        #[test]
        fn it_fits_and_stays_when_cleaned_again(text in any::<String>(), most in 0usize..40) {
            let line = one_line(&text, most);
            prop_assert!(line.chars().count() <= most);
            prop_assert_eq!(&one_line(&line, most), &line);
            prop_assert!(!line.chars().any(|c| c != ' ' && (c.is_whitespace() || c.is_control())));
            let bytes = one_line_of_bytes(&text, most);
            prop_assert!(bytes.len() <= most);
        }
    }
}
