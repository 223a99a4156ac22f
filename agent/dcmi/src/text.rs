//! Text from the library.

/// The text up to the first zero byte as one printable line; `None` if it is empty.
///
/// Invalid UTF-8, non-printing characters and direction marks are removed, as the text goes into Events, logs and
/// terminals.
pub(crate) fn one_line(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words = words.map(|word| word.chars().filter(|c| is_printable(*c)).collect::<String>());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

fn is_printable(c: char) -> bool {
    !matches!(c,
        '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{E000}'..='\u{F8FF}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
        | '\u{FFF0}'..='\u{FFFF}' | '\u{E0000}'..='\u{10FFFF}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn removes_non_printing_text() {
        for (bytes, line) in [
            (&b"node type=NPU, sensor name=HBM\0rubbish"[..], Some("node type=NPU, sensor name=HBM")),
            (b"", None),
            (b"\0text", None),
            (b" \t\r\n ", None),
            (b"two\nlines\x1b[31m", Some("two lines [31m")),
            (b"\xff\xfe\x80", None),
            ("芯片\u{202e}故障\u{200b}".as_bytes(), Some("芯片故障")),
            (&"芯".as_bytes()[..2], None),
        ] {
            assert_eq!(one_line(bytes).as_deref(), line, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_become_one_printable_line(bytes: Vec<u8>) {
            let Some(line) = one_line(&bytes) else { return Ok(()) };
            prop_assert!(!line.is_empty() && line.trim() == line);
            prop_assert!(line.chars().all(|c| !c.is_control() && is_printable(c)));
            prop_assert!(line.len() <= bytes.len());
        }
    }
}
