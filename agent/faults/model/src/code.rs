use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Codes of a device's network, not of the device itself, such as a RoCE link that is down
/// (`NetworkFaultCodes` of `ascend-device-plugin/pkg/common/fault_code.go`).
pub const NETWORK_CODES: [u64; 4] = [0x8107_8603, 0x8107_8607, 0x1_1000_0002, 0x1_1000_1024];

/// A fault code: hexadecimal digits in upper case, as MindCluster writes it.
///
/// The driver's codes are 32 bits wide (`event_id` of `dcmi_dms_fault_event`); those that MindCluster makes itself have
/// nine digits, some with a leading zero (`020001002`). The text keeps leading zeros; codes are compared by their numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Code {
    number: u64,
    text: Box<str>,
}

/// The text is no fault code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no fault code: one to sixteen hexadecimal digits, as in 80E01801")]
pub struct InvalidCode(String);

impl Code {
    /// Creates a code of any width; MindCluster's own are wider than the driver's.
    pub fn from_number(number: u64) -> Self {
        Self { number, text: format!("{number:X}").into() }
    }

    pub const fn number(&self) -> u64 {
        self.number
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Creates a code of the driver.
impl From<u32> for Code {
    fn from(event_id: u32) -> Self {
        Self { number: event_id.into(), text: format!("{event_id:X}").into() }
    }
}

impl FromStr for Code {
    type Err = InvalidCode;

    /// Ignores white space and a prefix `0x`.
    fn from_str(text: &str) -> Result<Self, InvalidCode> {
        let trimmed = text.trim();
        let digits = trimmed.strip_prefix("0x").or_else(|| trimmed.strip_prefix("0X")).unwrap_or(trimmed);
        // from_str_radix alone would accept a sign.
        if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(InvalidCode(text.chars().take(40).collect()));
        }
        let number = u64::from_str_radix(digits, 16).map_err(|_| InvalidCode(digits.to_owned()))?;
        Ok(Self { number, text: digits.to_ascii_uppercase().into() })
    }
}

impl TryFrom<String> for Code {
    type Error = InvalidCode;

    fn try_from(text: String) -> Result<Self, InvalidCode> {
        text.parse()
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.text.into()
    }
}

impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Code {}

impl PartialOrd for Code {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Code {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.number.cmp(&other.number)
    }
}

impl Hash for Code {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_and_parses_codes_of_driver_and_mindcluster() {
        assert_eq!(Code::from(0x8107_8603).as_str(), "81078603");
        assert_eq!(Code::from(0x40F8_4E00).to_string(), "40F84E00");
        let own: Code = "020001002".parse().expect("nine digits are more than 32 bits");
        assert_eq!((own.number(), own.as_str()), (0x2000_1002, "020001002"));
        assert_eq!("0x110001024".parse::<Code>().map(|code| code.number()), Ok(0x1_1000_1024));
    }

    #[test]
    fn equal_numbers_are_equal_codes() {
        assert_eq!("80e01801".parse::<Code>(), Ok(Code::from(0x80E0_1801)));
        assert_eq!("20001002".parse::<Code>(), "020001002".parse());
    }

    #[test]
    fn rejects_other_texts() {
        for text in ["", " ", "-1", "+1", "0x", "12345678901234567", "80E0 1801", "[0x08520003,na]", "８"] {
            assert!(text.parse::<Code>().is_err(), "{text:?}");
        }
    }
}
