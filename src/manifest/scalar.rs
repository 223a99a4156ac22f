//! Resolves plain scalars like kubectl's parser.
//!
//! kubectl reads YAML with go.yaml.in/yaml/v2, which resolves YAML 1.1 booleans and Go's integer literals
//! (`resolve.go`). A YAML 1.2 parser would read `on` as a string and `0777` as a decimal number, so its object would differ
//! from the API server's.

/// The value of a scalar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scalar {
    /// An empty scalar, `~` or `null`.
    Null,
    /// `true`, `yes`, `on`, `y` and their opposites.
    Bool(bool),
    /// An integer in decimal.
    Integer(String),
    /// A number with fraction or exponent, or too big for 64 bits, as JSON writes it with all its digits.
    Float(String),
    /// `.nan` and `.inf`, for which JSON has no number.
    NotFinite,
    Text,
}

/// Resolves a plain scalar.
pub fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Scalar::NotFinite,
        _ if is_infinity(text) => Scalar::NotFinite,
        _ => number(text).unwrap_or(Scalar::Text),
    }
}

fn is_infinity(text: &str) -> bool {
    matches!(text.strip_prefix(['+', '-']).unwrap_or(text), ".inf" | ".Inf" | ".INF")
}

fn number(text: &str) -> Option<Scalar> {
    match text.as_bytes().first()? {
        b'.' => float(&without_separators(text)?),
        b'0'..=b'9' | b'+' | b'-' => {
            let plain = text.replace('_', "");
            integer(&plain).map(Scalar::Integer).or_else(|| float(&plain))
        }
        _ => None,
    }
}

/// The text without the underscores between digits; `None` if one is elsewhere.
fn without_separators(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let misplaced = |at: usize| !digit(at.checked_sub(1)) || !digit(Some(at + 1));
    let wrong = text.match_indices('_').any(|(at, _)| misplaced(at));
    (!wrong).then(|| text.replace('_', ""))
}

/// Go's `strconv.ParseInt(text, 0, 64)`, then `ParseUint`.
fn integer(text: &str) -> Option<String> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (Some('-'), &text[1..]),
        b'+' => (Some('+'), &text[1..]),
        _ => (None, text),
    };
    let prefix = digits.get(..2).unwrap_or_default().to_ascii_lowercase();
    let (radix, digits) = match prefix.as_str() {
        "0x" => (16, &digits[2..]),
        "0o" => (8, &digits[2..]),
        "0b" => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match sign {
        None => Some(magnitude.to_string()),
        Some('-') if magnitude == 0 => Some("0".to_owned()),
        Some('-') => (magnitude <= i64::MIN.unsigned_abs()).then(|| format!("-{magnitude}")),
        Some(_) => i64::try_from(magnitude).ok().map(|value| value.to_string()),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, as JSON writes it.
fn float(text: &str) -> Option<Scalar> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (mantissa, ""),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    if let Some(exponent) = exponent {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if unsigned.is_empty() || !digits(unsigned) {
            return None;
        }
    }
    if !text.parse::<f64>().is_ok_and(f64::is_finite) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let mut json = String::with_capacity(text.len());
    if negative {
        json.push('-');
    }
    json.push_str(if whole.is_empty() { "0" } else { whole });
    // Go's JSON writes 8000.0 as 8000, and a port so written is accepted.
    if fraction.bytes().any(|byte| byte != b'0') || (exponent.is_some() && !fraction.is_empty()) {
        json.push('.');
        json.push_str(fraction);
    }
    if let Some(exponent) = exponent {
        json.push('e');
        json.push_str(exponent);
    }
    Some(Scalar::Float(if json == "-0" { "0".to_owned() } else { json }))
}

/// Whether a parser of any YAML version could read the plain text as something other than a string.
///
/// Beyond [`resolve`]: base-60 numbers, dates, `=`, `<<`, hexadecimal and binary forms of other parsers.
pub fn is_ambiguous(text: &str) -> bool {
    if resolve(text) != Scalar::Text || matches!(text, "=" | "<<") {
        return true;
    }
    let first = text.as_bytes().first().copied().unwrap_or_default();
    let numeric = first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.');
    numeric
        && text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || b"+-._:xXoOtTzZ ".contains(&byte))
}

/// A number as a mapping's key: Go formats floats as `strconv.FormatFloat(f, 'g', -1, 32)`.
pub fn float_key(json: &str) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "kubectl formats float keys with 32 bits")]
    let value = json.parse::<f64>().unwrap_or_default() as f32;
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        value.to_string()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right column was computed by sigs.k8s.io/yaml v1.6.0, which kubectl 1.37 uses.
    #[test]
    fn plain_scalars_as_kubectl_reads_them() {
        for (text, json) in [
            ("True", "true"),
            ("yes", "true"),
            ("Off", "false"),
            ("y", "true"),
            ("N", "false"),
            ("tRue", "\"tRue\""),
            ("~", "null"),
            ("Null", "null"),
            ("0", "0"),
            ("-0", "0"),
            ("007", "7"),
            ("0777", "511"),
            ("0o17", "15"),
            ("0x1F", "31"),
            ("-0x1F", "-31"),
            ("0b101", "5"),
            ("08", "8"),
            ("1_000", "1000"),
            ("+12", "12"),
            ("18446744073709551615", "18446744073709551615"),
            ("0xFFFFFFFFFFFFFFFFF", "\"0xFFFFFFFFFFFFFFFFF\""),
            ("1.5", "1.5"),
            (".5", "0.5"),
            ("5.", "5"),
            ("8000.0", "8000"),
            ("1e3", "1e3"),
            ("1e999", "\"1e999\""),
            ("1.2.3", "\"1.2.3\""),
            ("2026-11-29", "\"2026-11-29\""),
            ("12:30", "\"12:30\""),
            ("-", "\"-\""),
            ("0x", "\"0x\""),
            ("_1", "\"_1\""),
            ("1_", "1"),
        ] {
            let shown = match resolve(text) {
                Scalar::Null => "null".to_owned(),
                Scalar::Bool(value) => value.to_string(),
                Scalar::Integer(json) | Scalar::Float(json) => json,
                Scalar::NotFinite => "?".to_owned(),
                Scalar::Text => format!("{text:?}"),
            };
            assert_eq!(shown, json, "{text}");
        }
    }

    #[test]
    fn digits_are_never_lost() {
        let text = "123456789012345678901234567890.12345678901234567890";
        assert_eq!(resolve(text), Scalar::Float(text.to_owned()));
    }

    #[test]
    fn what_other_parsers_may_take_for_a_number_is_ambiguous() {
        for text in ["12:30", "2026-11-29", "1e3", "0x1F", "=", "<<", "on", "1_000", "1.2.3.4:5"] {
            assert!(is_ambiguous(text), "{text}");
        }
        for text in ["abc", "v1", "-c", "/bin/sh", "8000/TCP", "10.0.0.1/24"] {
            assert!(!is_ambiguous(text), "{text}");
        }
    }
}
