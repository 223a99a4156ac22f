use std::time::Duration;

use serde_json::{Map, Value};

use super::{DurationRule, FrequencyRule, RuleError, Rules};
use crate::code::Code;
use crate::json::{self, ParseError, Warning, Warnings};
use crate::level::Level;

const FREQUENCY: &str = "FaultFrequency";
const DURATION: &str = "FaultDuration";
/// Options of the device plugin for resets, which don't matter here.
const GRACE: &str = "GraceTolerance";

pub(super) fn read(text: &str) -> Result<(Rules, Vec<Warning>), ParseError> {
    let mut warnings = Warnings::default();
    let mut rules = Rules::default();
    for (name, value) in json::object(text)? {
        if name.eq_ignore_ascii_case(FREQUENCY) {
            read_rules(FREQUENCY, &value, &mut warnings, frequency_rule, |code, rule| {
                rules.add_frequency_rule(code, rule)
            })?;
        } else if name.eq_ignore_ascii_case(DURATION) {
            read_rules(DURATION, &value, &mut warnings, duration_rule, |code, rule| {
                rules.add_duration_rule(code, rule)
            })?;
        } else if !name.eq_ignore_ascii_case(GRACE) {
            warnings.push(Warning::UnknownKey { key: json::excerpt(&name) });
        }
    }
    Ok((rules, warnings.into_vec()))
}

/// An element of one of the two lists.
struct Entry<'a> {
    key: String,
    members: &'a Map<String, Value>,
}

/// Parses a list of rules, each for several codes.
fn read_rules<R: Copy>(
    key: &str,
    value: &Value,
    warnings: &mut Warnings,
    read: impl Fn(&Entry<'_>, Level) -> Result<Result<R, RuleError>, ParseError>,
    mut add: impl FnMut(Code, R) -> bool,
) -> Result<(), ParseError> {
    let wrong_type = |key: String| ParseError::WrongType { key, expected: "a list of objects" };
    let entries = match value {
        Value::Null => return Ok(()),
        Value::Array(entries) => entries,
        _ => return Err(wrong_type(key.to_owned())),
    };
    for (index, entry) in entries.iter().enumerate() {
        let key = format!("{key}[{index}]");
        let Value::Object(members) = entry else { return Err(wrong_type(key)) };
        let entry = Entry { key, members };
        let codes = match entry.get("EventId") {
            Some(list) => json::codes(&format!("{}.EventId", entry.key), list, warnings)?,
            None => Vec::new(),
        };
        let name = entry.text("FaultHandling")?;
        // All types are checked before any value, as a wrong type makes the whole file invalid.
        let rule = match Level::from_name(name) {
            Some(level) => read(&entry, level)?.map_err(|error| error.to_string()),
            None => read(&entry, Level::NotHandleFault)
                .map(|_| Err(format!("FaultHandling `{}` is no level", json::excerpt(name))))?,
        };
        match rule {
            Err(problem) => warnings.push(Warning::InvalidRule { key: entry.key, problem }),
            Ok(_) if codes.is_empty() => {
                let problem = "EventId lists no code".to_owned();
                warnings.push(Warning::InvalidRule { key: entry.key, problem });
            }
            Ok(rule) => {
                for code in codes {
                    if !add(code.clone(), rule) {
                        warnings.push(Warning::DuplicateRule { key: entry.key.clone(), code });
                    }
                }
            }
        }
    }
    Ok(())
}

fn frequency_rule(entry: &Entry<'_>, level: Level) -> Result<Result<FrequencyRule, RuleError>, ParseError> {
    let times = entry.number("Times")?.unwrap_or(0);
    let window = entry.seconds("TimeWindow")?.unwrap_or_default();
    let release = entry.seconds("ReleaseTimeWindow")?.filter(|_| level == Level::ManuallySeparateNPU);
    Ok(FrequencyRule::new(times, window, level, release))
}

fn duration_rule(entry: &Entry<'_>, level: Level) -> Result<Result<DurationRule, RuleError>, ParseError> {
    let after = entry.seconds("FaultTimeout")?.unwrap_or_default();
    let recover = entry.seconds("RecoverTimeout")?.unwrap_or_default();
    Ok(DurationRule::new(after, recover, level))
}

impl Entry<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        let found = self.members.iter().rfind(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Result<&str, ParseError> {
        match self.get(name) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(self.wrong_type(name, "a text")),
        }
    }

    /// A negative number becomes the largest one, which is outside all limits too.
    fn number(&self, name: &str) -> Result<Option<u64>, ParseError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) if value.is_i64() || value.is_u64() => Ok(Some(value.as_u64().unwrap_or(u64::MAX))),
            Some(_) => Err(self.wrong_type(name, "a whole number")),
        }
    }

    fn seconds(&self, name: &str) -> Result<Option<Duration>, ParseError> {
        Ok(self.number(name)?.map(Duration::from_secs))
    }

    fn wrong_type(&self, name: &str, expected: &'static str) -> ParseError {
        ParseError::WrongType { key: format!("{}.{name}", self.key), expected }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// MindCluster's file with fewer codes.
    const SHIPPED: &str = r#"{
      "GraceTolerance": {"WaitProcessReadCMTime": 30, "WaitDeviceResetTime": 150, "WaitFaultSelfHealingTime": 15},
      "FaultFrequency": [
        {"EventId": ["80C98000", "80B78000"], "TimeWindow": 86400, "Times": 2, "FaultHandling": "ManuallySeparateNPU"},
        {"EventId": ["81078603"], "TimeWindow": 86400, "Times": 5, "FaultHandling": "ManuallySeparateNPU",
         "ReleaseTimeWindow": 172800}
      ],
      "FaultDuration": [
        {"EventId": ["81078603"], "FaultTimeout": 20, "RecoverTimeout": 60, "FaultHandling": "PreSeparateNPU"}
      ]
    }"#;

    fn code(text: &str) -> Code {
        text.parse().expect("a code")
    }

    #[test]
    fn parses_mindclusters_file() {
        let (rules, warnings) = Rules::from_json(SHIPPED).expect("valid");
        assert_eq!(warnings, []);
        let day = Duration::from_hours(24);
        let twice = FrequencyRule::new(2, day, Level::ManuallySeparateNPU, None).expect("valid");
        let five = FrequencyRule::new(5, day, Level::ManuallySeparateNPU, Some(day * 2)).expect("valid");
        let duration =
            DurationRule::new(Duration::from_secs(20), Duration::from_mins(1), Level::PreSeparateNPU)
                .expect("valid");
        let mut expected = Rules::default();
        assert!(
            expected.add_frequency_rule(code("80C98000"), twice)
                && expected.add_frequency_rule(code("80b78000"), twice)
        );
        assert!(
            expected.add_frequency_rule(code("81078603"), five)
                && expected.add_duration_rule(code("81078603"), duration)
        );
        assert_eq!(rules, expected);
    }

    #[test]
    fn ignores_rules_outside_the_limits() {
        let frequency = |change: Value| {
            let mut rule =
                json!({"EventId": ["1"], "TimeWindow": 60, "Times": 1, "FaultHandling": "SeparateNPU"});
            for (key, value) in change.as_object().expect("an object") {
                rule[key] = value.clone();
            }
            json!({"FaultFrequency": [rule]}).to_string()
        };
        let duration = |change: Value| {
            let mut rule = json!({"EventId": ["1"], "FaultTimeout": 0, "RecoverTimeout": 0, "FaultHandling": "SeparateNPU"});
            for (key, value) in change.as_object().expect("an object") {
                rule[key] = value.clone();
            }
            json!({"FaultDuration": [rule]}).to_string()
        };
        for (text, word) in [
            (frequency(json!({"TimeWindow": 59})), "window is 59"),
            (frequency(json!({"TimeWindow": 864_001})), "to 864000 seconds"),
            (frequency(json!({"Times": 0})), "times is 0"),
            (frequency(json!({"Times": -1})), "from 1 to 100"),
            (frequency(json!({"Times": null})), "times is 0"),
            (frequency(json!({"FaultHandling": "Normal"})), "`Normal` is no level"),
            (
                frequency(json!({"FaultHandling": "ManuallySeparateNPU", "ReleaseTimeWindow": 59})),
                "release is 59",
            ),
            (frequency(json!({"EventId": []})), "EventId lists no code"),
            (duration(json!({"FaultTimeout": 601})), "active time is 601"),
            (duration(json!({"RecoverTimeout": 86_401})), "inactive time is 86401"),
            (duration(json!({"FaultHandling": "ManuallySeparateNPU"})), "can't become ManuallySeparateNPU"),
        ] {
            let (rules, warnings) = Rules::from_json(&text).expect(&text);
            assert!(rules.is_empty(), "{text}");
            assert_eq!(warnings.len(), 1, "{text}: {warnings:?}");
            let warning = warnings[0].to_string();
            assert!(warning.contains(word) && warning.contains("[0]"), "{text}: {warning}");
        }
        for text in [frequency(json!({})), duration(json!({}))] {
            let (rules, warnings) = Rules::from_json(&text).expect(&text);
            assert!(!rules.is_empty() && warnings.is_empty(), "{text}: {warnings:?}");
        }
    }

    #[test]
    fn rejects_invalid_files() {
        for (text, word) in [
            ("", "JSON"),
            (r#"{"FaultFrequency": {}}"#, "`FaultFrequency` must be a list"),
            (r#"{"FaultFrequency": [1]}"#, "`FaultFrequency[0]` must be a list of objects"),
            (
                r#"{"FaultDuration": [{"FaultTimeout": "20"}]}"#,
                "`FaultDuration[0].FaultTimeout` must be a whole number",
            ),
            (r#"{"FaultDuration": [{"FaultTimeout": 1.5}]}"#, "a whole number"),
            (r#"{"FaultDuration": [{"FaultHandling": 1}]}"#, "FaultHandling` must be a text"),
            (
                r#"{"FaultDuration": [{"EventId": "1"}]}"#,
                "`FaultDuration[0].EventId` must be a list of texts",
            ),
        ] {
            let error = Rules::from_json(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn first_of_two_rules_applies() {
        let text = r#"{"faultduration": [
            {"EventId": ["1", "x"], "FaultTimeout": 1, "FaultHandling": "SeparateNPU"},
            {"EventId": ["01"], "FaultTimeout": 2, "FaultHandling": "SeparateNPU"}], "FaultFrequency": null, "x": 0}"#;
        let (rules, warnings) = Rules::from_json(text).expect("valid");
        assert_eq!(rules.duration[&code("1")].after, Duration::from_secs(1));
        assert_eq!(
            warnings,
            [
                Warning::InvalidCode { key: "FaultDuration[0].EventId".to_owned(), text: "x".to_owned() },
                Warning::DuplicateRule { key: "FaultDuration[1]".to_owned(), code: code("1") },
                Warning::UnknownKey { key: "x".to_owned() },
            ]
        );
    }
}
