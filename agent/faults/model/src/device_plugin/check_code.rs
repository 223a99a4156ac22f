//! JSON as Go's `json.Marshal` writes it, and its sum.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The CheckCode of a device list: lower-case hexadecimal SHA-256 of the member `DeviceInfo`, as `MakeDataHash` of
/// `ascend-device-plugin/pkg/common/common.go` makes it and `EqualDataHash` of ClusterD makes it anew of what it read.
///
/// That is why the text itself isn't summed up: a text with other blanks or escapes is the same to ClusterD, and one whose
/// sum fits only as it stands is not.
pub fn check_code(device_list: &BTreeMap<String, String>, update_time: i64) -> String {
    let sum = Sha256::digest(device_info(device_list, update_time));
    sum.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The member `DeviceInfo`: compact, keys sorted by their bytes.
fn device_info(device_list: &BTreeMap<String, String>, update_time: i64) -> String {
    let mut json = String::from(r#"{"DeviceList":{"#);
    for (index, (key, value)) in device_list.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        string(&mut json, key);
        json.push(':');
        string(&mut json, value);
    }
    // Writing to a String can't fail.
    let _ = write!(json, r#"}},"UpdateTime":{update_time}}}"#);
    json
}

/// A text as Go's encoder escapes it: what HTML or JavaScript would take for something else too. (`\b` and `\f` are short
/// since Go 1.22; none is in the name of a device or in the JSON of a fault.)
fn string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                // Writing to a String can't fail.
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_go_writes_it() {
        let list = BTreeMap::from([
            ("b".to_owned(), "<a href=\"x\">&\u{2028}\u{2029}".to_owned()),
            ("B".to_owned(), "\\ \n\r\t\u{1}\u{7f}é".to_owned()),
        ]);
        assert_eq!(
            device_info(&list, -1),
            "{\"DeviceList\":{\"B\":\"\\\\ \\n\\r\\t\\u0001\u{7f}é\",\
             \"b\":\"\\u003ca href=\\\"x\\\"\\u003e\\u0026\\u2028\\u2029\"},\"UpdateTime\":-1}"
        );
        assert_eq!(device_info(&BTreeMap::new(), 0), r#"{"DeviceList":{},"UpdateTime":0}"#);
    }
}
