use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::source_update::Subject;

/// A node of eight NPUs, of which one has had no RoCE link for more than twenty seconds.
const LINK_DOWN: &str = r#"{"DeviceInfo":{"DeviceList":{"huawei.com/Ascend910":"Ascend910-0,Ascend910-1,Ascend910-2,Ascend910-4,Ascend910-5,Ascend910-6,Ascend910-7","huawei.com/Ascend910-Fault":"[{\"fault_type\":\"CardNetworkUnhealthy\",\"npu_name\":\"Ascend910-3\",\"large_model_fault_level\":\"PreSeparateNPU\",\"fault_level\":\"PreSeparateNPU\",\"fault_handling\":\"PreSeparateNPU\",\"fault_code\":\"81078603\",\"fault_time_and_level_map\":{\"81078603\":{\"fault_time\":1784000000123,\"fault_level\":\"PreSeparateNPU\"}}}]","huawei.com/Ascend910-NetworkUnhealthy":"Ascend910-3","huawei.com/Ascend910-Recovering":"","huawei.com/Ascend910-Unhealthy":""},"UpdateTime":1784000000},"SuperPodID":-2,"ServerIndex":-2,"CheckCode":"a7b64f87cd6549806d8eb98f0bb881300afac97d6dd30fb56e6f661fb4b2d004"}"#;

fn code(text: &str) -> Code {
    text.parse().expect("a code")
}

fn read(text: &str) -> Result<DeviceInfo, InvalidDeviceInfo> {
    DeviceInfo::read(ConfigMapData { device_info: Some(text), ..ConfigMapData::default() })
}

/// `DeviceInfoCfg` with a right CheckCode.
fn published(list: &[(&str, &str)], update_time: i64) -> String {
    let list: BTreeMap<String, String> =
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let check_code = check_code(&list, update_time);
    json!({"DeviceInfo": {"DeviceList": list, "UpdateTime": update_time}, "SuperPodID": -2, "CheckCode": check_code})
        .to_string()
}

fn with_faults(faults: &Value, update_time: i64) -> String {
    published(&[("huawei.com/Ascend910-Fault", &faults.to_string())], update_time)
}

#[test]
fn parses_mindclusters_config_map() {
    let view = read(LINK_DOWN).expect("valid");
    let level = Some(Level::PreSeparateNPU);
    assert_eq!(
        view,
        DeviceInfo {
            update_time: 1_784_000_000,
            faults: vec![DeviceFault {
                npu: 3,
                network: true,
                level,
                codes: vec![PublishedCode { code: code("81078603"), level, since: Some(1_784_000_000_123) }],
            }],
            network_unhealthy: BTreeSet::from([3]),
            ..DeviceInfo::default()
        }
    );
    assert_eq!(config_map_name("n"), "mindx-dl-deviceinfo-n");
}

#[test]
fn check_code_covers_the_parsed_data() {
    let mut pretty: Value = serde_json::from_str(LINK_DOWN).expect("JSON");
    let text = serde_json::to_string_pretty(&pretty).expect("JSON");
    assert_eq!(read(&text), read(LINK_DOWN));
    // Go escapes HTML characters.
    let text = published(&[("huawei.com/Ascend910", "<&>\u{2028}")], 5);
    assert_eq!(read(&text).map(|view| view.update_time), Ok(5));
    for (member, value) in [("UpdateTime", json!(1_784_000_001)), ("DeviceList", json!({}))] {
        let mut changed = pretty.clone();
        changed["DeviceInfo"][member] = value;
        assert!(matches!(read(&changed.to_string()), Err(InvalidDeviceInfo::CheckCode { .. })), "{member}");
    }
    // These members aren't covered.
    pretty["SuperPodID"] = json!(7);
    pretty["RackID"] = json!(1);
    assert_eq!(read(&pretty.to_string()), read(LINK_DOWN));
    pretty["CheckCode"] = json!("A7B64F87CD6549806D8EB98F0BB881300AFAC97D6DD30FB56E6F661FB4B2D004");
    let error = read(&pretty.to_string()).expect_err("upper case").to_string();
    assert!(error.contains("a7b64f87cd65"), "{error}");
}

#[test]
fn rejects_invalid_data() {
    for (text, word) in [
        ("", "can't be read"),
        ("[]", "can't be read"),
        ("{}", "DeviceInfo"),
        (r#"{"DeviceInfo": {"DeviceList": {}, "UpdateTime": 1}}"#, "CheckCode"),
        (r#"{"DeviceInfo": {"DeviceList": {"a": 1}, "UpdateTime": 1}, "CheckCode": ""}"#, "can't be read"),
        (r#"{"DeviceInfo": {"DeviceList": {}, "UpdateTime": 1}, "CheckCode": "x"}"#, "CheckCode x"),
        (&LINK_DOWN[..LINK_DOWN.len() / 2], "can't be read"),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
    assert_eq!(DeviceInfo::read(ConfigMapData::default()), Err(InvalidDeviceInfo::NoDeviceInfo));
    assert!(matches!(read(&" ".repeat(2 << 20)), Err(InvalidDeviceInfo::TooLarge(_))));
    let long = json!({"DeviceInfo": {"DeviceList": {}, "UpdateTime": 1}, "CheckCode": "x\n".repeat(1000)});
    assert!(read(&long.to_string()).expect_err("wrong").to_string().len() < 300);
    let long = json!("x".repeat(1 << 19)).to_string();
    assert!(read(&long).expect_err("no object").to_string().len() < 400);
    let faults = published(&[("huawei.com/npu-Fault", "[{]")], 1);
    let error = read(&faults).expect_err("no list").to_string();
    assert!(error.contains("`huawei.com/npu-Fault`"), "{error}");
}

#[test]
fn parses_every_form_of_names_and_lists() {
    let fault = |name: &str| json!([{"fault_type": "CardUnhealthy", "npu_name": name, "fault_code": "1"}]);
    for (name, npu) in [
        ("Ascend910-15", Some(15)),
        ("npu-3", Some(3)),
        ("Ascend310P-0", Some(0)),
        ("Ascend910-2c-100-1", None),
        ("Ascend910-", None),
        ("Ascend910-+1", None),
        ("Ascend910-99999999999", None),
        ("", None),
    ] {
        let view = read(&with_faults(&fault(name), 1)).expect("valid");
        assert_eq!(view.faults.first().map(|device| device.npu), npu, "{name}");
    }
    let text = published(
        &[
            ("huawei.com/npu-Unhealthy", "npu-1, npu-2,"),
            ("huawei.com/npu-NetworkUnhealthy", "npu-4"),
            ("huawei.com/npu-Fault", ""),
        ],
        1,
    );
    let data = ConfigMapData { device_info: Some(&text), manually_separated: Some("npu-1,npu-7") };
    let view = DeviceInfo::read(data).expect("valid");
    assert_eq!(view.unhealthy, BTreeSet::from([1, 2]));
    assert_eq!(view.network_unhealthy, BTreeSet::from([4]));
    assert_eq!(view.manually_separated, BTreeSet::from([1, 7]));
    assert_eq!(view.faults, []);
}

#[test]
fn merges_codes_of_list_and_map() {
    let faults = json!([
        {"fault_type": "CardUnhealthy", "npu_name": "Ascend910-1", "fault_level": "SeparateNPU",
         "fault_code": "80E01801,80C98000,,junk",
         "fault_time_and_level_map": {
            "80e01801": {"fault_time": 7, "fault_level": "RestartBusiness"},
            "80C98000": {"fault_time": 8, "fault_level": "NewInNextRelease"},
            "110001024": {}}},
        {"fault_type": "CardNetworkUnhealthy", "npu_name": "Ascend910-1", "fault_level": "NewLevel", "fault_code": "80E01801"},
        {"npu_name": "Ascend910-2", "fault_level": "ManuallySeparateNPU", "fault_time_and_level_map": null},
    ]);
    let view = read(&with_faults(&faults, 1)).expect("valid");
    let published = |text, level, since| PublishedCode { code: code(text), level, since };
    assert_eq!(
        view.faults[0].codes,
        [
            published("80E01801", Some(Level::RestartBusiness), Some(7)),
            published("80C98000", Some(Level::SeparateNPU), Some(8)),
            published("110001024", Some(Level::SeparateNPU), None),
        ]
    );
    assert_eq!(view.faults[1].codes, [published("80E01801", None, None)]);
    assert_eq!(view.faults[2].level, Some(Level::ManuallySeparateNPU));
    assert_eq!(view.faults[2].codes, []);
    assert_eq!(view.find(1, &code("80E01801")).and_then(|found| found.level), Some(Level::RestartBusiness));
    assert_eq!(view.find(2, &code("80E01801")), None);
}

#[test]
fn reports_whether_the_device_plugin_publishes_a_fault() {
    const SECOND: u64 = 1000;
    let mut plugin = DevicePluginTracker::default();
    let ask = |plugin: &DevicePluginTracker, npu, text: &str, now| {
        plugin.report_of(Subject::Npu(npu), &code(text), now)
    };
    assert_eq!(plugin.state(0), PluginState::Unknown);
    assert_eq!(ask(&plugin, 3, "81078603", 0), PluginReport::Stale);
    let data = ConfigMapData { device_info: Some(LINK_DOWN), ..ConfigMapData::default() };
    plugin.update(data, 10 * SECOND);
    let reported =
        PluginReport::Reported { level: Some(Level::PreSeparateNPU), since: Some(1_784_000_000_123) };
    assert_eq!(plugin.state(10 * SECOND), PluginState::Fresh);
    assert_eq!(ask(&plugin, 3, "81078603", 10 * SECOND), reported);
    assert_eq!(ask(&plugin, 4, "81078603", 10 * SECOND), PluginReport::NotReported);
    assert_eq!(ask(&plugin, 3, "80E01801", 10 * SECOND), PluginReport::NotReported);
    assert_eq!(plugin.report_of(Subject::Node, &code("81078603"), 10 * SECOND), PluginReport::NotReported);
    // The same text again, as after a new watch, doesn't count as a write.
    let last = 10 * SECOND + FRESH_FOR;
    plugin.update(data, last);
    assert_eq!(plugin.fresh_until(), Some(last));
    assert_eq!(ask(&plugin, 3, "81078603", last), reported);
    assert_eq!(plugin.state(last + 1), PluginState::Stale { age: FRESH_FOR + 1 });
    assert_eq!(ask(&plugin, 3, "81078603", last + 1), PluginReport::Stale);
    assert_eq!(ask(&plugin, 4, "81078603", last + 1), PluginReport::Stale);
    // A write counts even if the node's clock was set back by years.
    plugin.update(ConfigMapData { device_info: Some(&published(&[], 5)), ..data }, last + 2);
    assert_eq!(plugin.state(last + 2), PluginState::Fresh);
    assert_eq!(ask(&plugin, 3, "81078603", last + 2), PluginReport::NotReported);
}

#[test]
fn tracks_missing_and_invalid_config_maps() {
    let mut plugin = DevicePluginTracker::default();
    plugin.update(ConfigMapData { device_info: Some("{"), ..ConfigMapData::default() }, 0);
    assert!(matches!(plugin.state(0), PluginState::Invalid(InvalidDeviceInfo::Unparsable(_))));
    assert_eq!(plugin.report_of(Subject::Npu(3), &code("81078603"), 0), PluginReport::Stale);
    let good = ConfigMapData { device_info: Some(LINK_DOWN), ..ConfigMapData::default() };
    plugin.update(good, 1);
    plugin.update(ConfigMapData::default(), 2);
    // ClusterD keeps the last valid data, so the fault is still reported; but the ConfigMap is invalid.
    assert!(matches!(plugin.report_of(Subject::Npu(3), &code("81078603"), 2), PluginReport::Reported { .. }));
    assert_eq!(plugin.state(2), PluginState::Invalid(InvalidDeviceInfo::NoDeviceInfo));
    plugin.set_missing();
    assert_eq!(plugin.state(3), PluginState::Missing);
    assert_eq!(plugin.report_of(Subject::Npu(3), &code("81078603"), 3), PluginReport::NotReported);
    assert_eq!((plugin.device_info(), plugin.fresh_until()), (None, None));
    // The same text as before the deletion.
    plugin.update(good, FRESH_FOR * 9);
    assert_eq!(plugin.state(FRESH_FOR * 9), PluginState::Fresh);
    for state in
        [PluginState::Unknown, PluginState::Fresh, PluginState::Missing, PluginState::Stale { age: 1 }]
    {
        assert!(state.reason().starts_with("DevicePlugin"));
    }
}

proptest! {
    #[test]
    fn reads_anything_with_a_valid_check_code(
        list in prop::collection::btree_map(".{0,20}", ".{0,40}", 0..8),
        update_time: i64,
    ) {
        let check_code = check_code(&list, update_time);
        let text = json!({"DeviceInfo": {"DeviceList": list, "UpdateTime": update_time}, "CheckCode": check_code}).to_string();
        match read(&text) {
            Ok(view) => prop_assert_eq!(view.update_time, update_time),
            Err(error) => prop_assert!(matches!(error, InvalidDeviceInfo::Faults { .. }), "{}", error),
        }
    }
}
