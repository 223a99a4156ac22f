//! Computes the CheckCode over JSON as Go's `json.Marshal` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The CheckCode of a device list: lower-case hexadecimal SHA-256 of the member `DeviceInfo`, as `MakeDataHash` of
/// `ascend-device-plugin/pkg/common/common.go` computes it and `EqualDataHash` of ClusterD computes it again from the parsed data.
///
/// Therefore the text itself isn't hashed: ClusterD accepts a text with other white space or escapes, and rejects one whose
/// hash is right only in its literal form.
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
        write_string(&mut json, key);
        json.push(':');
        write_string(&mut json, value);
    }
    // Writing to a String can't fail.
    let _ = write!(json, r#"}},"UpdateTime":{update_time}}}"#);
    json
}

/// Writes a string as Go's encoder does, with escaped HTML and JavaScript characters. (`\b` and `\f` have short forms since
/// Go 1.22; neither occurs in device names or in the JSON of faults.)
fn write_string(json: &mut String, text: &str) {
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
    fn writes_json_as_go_does() {
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
