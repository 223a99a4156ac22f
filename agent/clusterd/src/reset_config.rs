//! The ConfigMap `reset-config-<job>`: what ClusterD reads at a fault, and the contents of a new one.
//!
//! ClusterD first ends the ranks on the faulty node and then records the lost ranks in this ConfigMap. If it is missing or
//! invalid, ClusterD orders nothing: the job has ended and nothing was saved. MindCluster doesn't create it; its sample jobs
//! include one.
//!
//! Source: `clusterd/pkg/domain/common/utils.go` `WriteResetInfoToCM`, `setNewTaskInfo` and `type.go`
//! `TaskResetInfo` of MindCluster, and the jobs under `samples/train/resumable-training` of mindcluster-deploy.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The prefix of the name, before the job's name.
pub const NAME_PREFIX: &str = "reset-config-";

/// The label that MindCluster's device plugin selects, to copy the ConfigMap to the node.
pub const LABEL: (&str, &str) = ("reset", "true");

/// The data key that ClusterD reads and writes.
pub const RESET_JSON: &str = "reset.json";

/// The data key of the checksum, which ClusterD and the device plugin write and ClusterD doesn't check.
pub const CHECK_CODE: &str = "checkCode";

/// `reset.json` of MindCluster's samples; ClusterD reads no member of it and starts with defaults.
const INITIAL: &str = "{\n    \"status\":\"initializing\"\n}\n";

/// The name of the ConfigMap of the job `job`, in the job's namespace.
pub fn name_for(job: &str) -> String {
    format!("{NAME_PREFIX}{job}")
}

/// The data of a new ConfigMap.
pub fn initial() -> BTreeMap<String, String> {
    BTreeMap::from([(RESET_JSON.to_owned(), INITIAL.to_owned()), (CHECK_CODE.to_owned(), String::new())])
}

/// Whether ClusterD can use a job's ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// ClusterD can record lost ranks in it.
    Usable,
    /// It doesn't exist.
    Missing,
    /// ClusterD can't use it.
    Unusable(Unusable),
}

/// Why ClusterD can't use a ConfigMap, as a predicate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The data key is missing.
    #[error("has no data {RESET_JSON}")]
    NoResetJson,
    /// The value is empty.
    #[error("has an empty {RESET_JSON}")]
    Empty,
    /// The value doesn't parse; with the parser's message.
    #[error("has a {RESET_JSON} that isn't JSON: {0}")]
    NotJson(String),
    /// A member, or the whole, has another type than ClusterD's.
    #[error("has a {RESET_JSON} in which {path} isn't {expected}")]
    WrongType {
        /// The path of the member.
        path: String,
        expected: &'static str,
    },
    /// The device plugin is about to reset devices under the job.
    #[error(
        "has a {RESET_JSON} with Policy {policy:?} in {path}: the device plugin runs with hotReset=1, which ClusterD \
         refuses together with recover-strategy"
    )]
    HotReset {
        /// The path of the entry.
        path: String,
        /// `reset` or `restart`.
        policy: String,
    },
}

/// The state of a ConfigMap with this data; `None` if it doesn't exist.
pub fn state(data: Option<&BTreeMap<String, String>>) -> State {
    let Some(data) = data else { return State::Missing };
    match read(data.get(RESET_JSON).map(String::as_str)) {
        Ok(()) => State::Usable,
        Err(why) => State::Unusable(why),
    }
}

/// Checks whether ClusterD can use a `reset.json`; `None` if the key is missing.
///
/// As in Go's `encoding/json`, names match in any case, unknown members and `null` are ignored, and the last duplicate member
/// applies.
pub fn read(reset_json: Option<&str>) -> Result<(), Unusable> {
    let text = reset_json.ok_or(Unusable::NoResetJson)?;
    if text.trim().is_empty() {
        return Err(Unusable::Empty);
    }
    let value: Value = serde_json::from_str(text).map_err(|error| Unusable::NotJson(error.to_string()))?;
    let Some(info) = members(&value, "the whole")? else { return Ok(()) };
    for field in ["UpdateTime", "RetryTime", "GracefulExit"] {
        integer(info, field, "", i64::MIN..=i64::MAX)?;
    }
    for field in ["FaultFlushing", "RestartFaultProcess"] {
        of_type(info, field, "", "true or false", Value::is_boolean)?;
    }
    let Some(ranks) = list(info, "RankList", "")? else { return Ok(()) };
    ranks.iter().enumerate().try_for_each(|(index, rank)| read_rank(rank, &format!("RankList[{index}]")))
}

/// An entry of `RankList`.
fn read_rank(rank: &Value, path: &str) -> Result<(), Unusable> {
    // ClusterD dereferences each entry without a check.
    let Some(rank) = members(rank, path)? else {
        return Err(Unusable::WrongType { path: path.to_owned(), expected: OBJECT });
    };
    integer(rank, "RankId", path, i64::MIN..=i64::MAX)?;
    integer(rank, "LogicId", path, i32::MIN.into()..=i32::MAX.into())?;
    for field in ["Status", "Policy", "InitialPolicy", "ErrorCodeHex"] {
        of_type(rank, field, path, "a string", Value::is_string)?;
    }
    for (index, code) in list(rank, "ErrorCode", path)?.into_iter().flatten().enumerate() {
        if !code.is_null() && code.as_i64().is_none() {
            return Err(Unusable::WrongType {
                path: format!("{path}.ErrorCode[{index}]"),
                expected: INTEGER,
            });
        }
    }
    match get(rank, "Policy").and_then(Value::as_str) {
        Some(policy @ ("reset" | "restart")) => {
            Err(Unusable::HotReset { path: path.to_owned(), policy: policy.to_owned() })
        }
        _ => Ok(()),
    }
}

const OBJECT: &str = "an object";
const INTEGER: &str = "a whole number in range";

/// The members of an object; `None` for `null`, which Go's decoder ignores.
fn members<'a>(value: &'a Value, path: &str) -> Result<Option<&'a Map<String, Value>>, Unusable> {
    match value {
        Value::Null => Ok(None),
        Value::Object(members) => Ok(Some(members)),
        _ => Err(Unusable::WrongType { path: path.to_owned(), expected: OBJECT }),
    }
}

/// A member by its name, preferably in the exact spelling.
fn get<'a>(members: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    let folded = || members.iter().find(|(name, _)| name.eq_ignore_ascii_case(field)).map(|(_, value)| value);
    members.get(field).or_else(folded).filter(|value| !value.is_null())
}

fn integer(
    members: &Map<String, Value>,
    field: &str,
    path: &str,
    range: std::ops::RangeInclusive<i64>,
) -> Result<(), Unusable> {
    of_type(members, field, path, INTEGER, |value| {
        value.as_i64().is_some_and(|number| range.contains(&number))
    })
}

fn list<'a>(
    members: &'a Map<String, Value>,
    field: &str,
    path: &str,
) -> Result<Option<&'a Vec<Value>>, Unusable> {
    of_type(members, field, path, "a list", Value::is_array)?;
    Ok(get(members, field).and_then(Value::as_array))
}

fn of_type(
    members: &Map<String, Value>,
    field: &str,
    path: &str,
    expected: &'static str,
    is: impl Fn(&Value) -> bool,
) -> Result<(), Unusable> {
    if get(members, field).is_none_or(is) {
        return Ok(());
    }
    let path = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    Err(Unusable::WrongType { path, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(reset_json: &str) -> String {
        read(Some(reset_json)).expect_err(reset_json).to_string()
    }

    #[test]
    fn new_config_map_is_usable_and_equals_mindclusters_samples() {
        let data = initial();
        assert_eq!(state(Some(&data)), State::Usable);
        assert_eq!(data.keys().collect::<Vec<_>>(), [CHECK_CODE, RESET_JSON]);
        assert_eq!(data[CHECK_CODE], "");
        let json: Value = serde_json::from_str(&data[RESET_JSON]).expect("JSON");
        assert_eq!(json, serde_json::json!({"status": "initializing"}));
    }

    #[test]
    fn distinguishes_missing_from_unusable() {
        assert_eq!(state(None), State::Missing);
        assert_eq!(state(Some(&BTreeMap::new())), State::Unusable(Unusable::NoResetJson));
        let empty = BTreeMap::from([(RESET_JSON.to_owned(), String::new())]);
        assert_eq!(state(Some(&empty)), State::Unusable(Unusable::Empty));
    }

    #[test]
    fn accepts_what_clusterd_and_the_device_plugin_write() {
        for json in [
            // As ClusterD writes it at a fault, and afterwards.
            r#"{"RankList":[{"RankId":3,"LogicId":0,"Status":"fault","Policy":"","InitialPolicy":"","ErrorCode":null,"ErrorCodeHex":""}],"UpdateTime":1756000000,"RetryTime":1,"FaultFlushing":true,"GracefulExit":0,"RestartFaultProcess":false}"#,
            r#"{"RankList":[],"UpdateTime":0,"RetryTime":0,"FaultFlushing":false,"GracefulExit":0,"RestartFaultProcess":false}"#,
            // Releases before 7.0 have fewer members.
            r#"{"RankList":null,"UpdateTime":1756000000}"#,
            r#"{"ranklist":[{"rankid":1,"policy":"isolate","errorcode":[2164264963]}],"UPDATETIME":1}"#,
            "{}",
            "null",
            "\n{ \"status\" : 1 }\n",
        ] {
            assert_eq!(read(Some(json)), Ok(()), "{json}");
        }
    }

    #[test]
    fn rejects_what_go_rejects() {
        for (json, words) in [
            ("", "an empty reset.json"),
            (" \n", "an empty reset.json"),
            ("initializing", "isn't JSON: expected value"),
            ("{}{}", "isn't JSON: trailing characters"),
            (r#"{"status":"initializing""#, "isn't JSON: EOF"),
            ("[]", "in which the whole isn't an object"),
            (r#""initializing""#, "in which the whole isn't an object"),
            (r#"{"RankList":{}}"#, "in which RankList isn't a list"),
            (r#"{"RankList":[null]}"#, "in which RankList[0] isn't an object"),
            (r#"{"RankList":[{},3]}"#, "in which RankList[1] isn't an object"),
            (r#"{"ranklist":[{"RankId":"3"}]}"#, "RankList[0].RankId isn't a whole number"),
            (r#"{"RankList":[{"LogicId":2147483648}]}"#, "RankList[0].LogicId isn't a whole number"),
            (r#"{"RankList":[{"ErrorCode":[1,"2"]}]}"#, "RankList[0].ErrorCode[1] isn't a whole number"),
            (r#"{"RankList":[{"Status":1}]}"#, "RankList[0].Status isn't a string"),
            (r#"{"RetryTime":1.0}"#, "RetryTime isn't a whole number"),
            (r#"{"UpdateTime":9223372036854775808}"#, "UpdateTime isn't a whole number"),
            (r#"{"FaultFlushing":"false"}"#, "FaultFlushing isn't true or false"),
        ] {
            let error = error(json);
            assert!(error.contains(words), "{json}: {error}");
        }
        assert_eq!(read(None).expect_err("no key").to_string(), "has no data reset.json");
    }

    /// `setNewTaskInfo`: "hotReset=1 is not compatible with process-recover".
    #[test]
    fn hot_reset_in_progress_is_unusable() {
        for policy in ["reset", "restart"] {
            let json = format!(r#"{{"RankList":[{{"Policy":"ignore"}},{{"Policy":"{policy}"}}]}}"#);
            let error = error(&json);
            assert!(error.contains("RankList[1]") && error.contains("hotReset=1"), "{error}");
        }
        assert_eq!(read(Some(r#"{"RankList":[{"Policy":"Reset"},{"Policy":"restart_request"}]}"#)), Ok(()));
    }

    #[test]
    fn name_has_the_prefix() {
        assert_eq!(name_for("llama"), "reset-config-llama");
    }
}
