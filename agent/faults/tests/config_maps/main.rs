//! ConfigMaps of the device plugin and the cluster, watched over HTTP.

mod api;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use swansong_fault_model::device_plugin::{PluginReport, PluginState, check_code};
use swansong_fault_model::{ClassifierSource, Code, Level, Subject};
use swansong_faults::sources::DevicePluginWatch;
use swansong_faults::{Clock, LevelSettings, LevelWatch};
use swansong_runtime::supervisor::Progress;
use tokio::sync::watch;
use tokio::time::timeout;

use self::api::Fake;

const NAME: &str = "mindx-dl-deviceinfo-n";

/// Waits for a value of the watch.
async fn until<T: Clone>(watch: &mut watch::Receiver<T>, what: &str, holds: impl FnMut(&T) -> bool) -> T {
    let found = timeout(Duration::from_mins(1), watch.wait_for(holds)).await;
    found.unwrap_or_else(|_| panic!("{what}: never")).expect("open").clone()
}

/// What the device plugin writes when NPU 3 has a fault, or none.
fn published(is_unhealthy: bool, update_time: i64) -> Value {
    let faults = json!([{"fault_type": "CardUnhealthy", "npu_name": "Ascend910-3", "fault_level": "RestartBusiness",
        "fault_code": "80E01801"}]);
    let faults = if is_unhealthy { faults.to_string() } else { "[]".to_owned() };
    let list = BTreeMap::from([("huawei.com/Ascend910-Fault".to_owned(), faults)]);
    let check_code = check_code(&list, update_time);
    let info =
        json!({"DeviceInfo": {"DeviceList": list, "UpdateTime": update_time}, "CheckCode": check_code});
    json!({"DeviceInfoCfg": info.to_string(), "SwitchInfoCfg": "{}", "Description": "d"})
}

#[tokio::test]
async fn config_map_of_the_device_plugin_is_watched() {
    let fake = Fake::new();
    fake.put("mindx-dl-deviceinfo-other", Some(published(true, 1)));
    let client = fake.serve().await;
    let clock = Clock::start();
    let plugin = Arc::new(DevicePluginWatch::new("n", client, clock));
    let (mut state, tracker) = (plugin.state(), plugin.tracker());
    let task =
        tokio::spawn(async move { match plugin.run(Progress::unsupervised("device-plugin")).await {} });
    let report =
        |npu| tracker.borrow().report_of(Subject::Npu(npu), &Code::from(0x80E0_1801), clock.millis());
    until(&mut state, "missing", |now| *now == PluginState::Missing).await;
    assert_eq!(report(3), PluginReport::NotReported);
    fake.put(NAME, Some(published(true, 1)));
    until(&mut state, "fresh", |now| *now == PluginState::Fresh).await;
    assert_eq!(report(3), PluginReport::Reported { level: Some(Level::RestartBusiness), since: None });
    assert_eq!(report(2), PluginReport::NotReported);
    let mut changed = tracker.clone();
    fake.put(NAME, Some(published(false, 2)));
    until(&mut changed, "recovered", |tracker| {
        tracker.device_info().is_some_and(|info| info.faults.is_empty())
    })
    .await;
    assert_eq!(report(3), PluginReport::NotReported);
    let mut broken = published(false, 3);
    broken["DeviceInfoCfg"] = json!(broken["DeviceInfoCfg"].as_str().expect("a text").replace(":3", ":4"));
    fake.put(NAME, Some(broken));
    until(&mut state, "invalid", |now| matches!(now, PluginState::Invalid(_))).await;
    fake.put(NAME, None);
    until(&mut state, "missing", |now| *now == PluginState::Missing).await;
    task.abort();
}

#[tokio::test]
async fn classification_of_the_cluster_is_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("faultCode.json");
    std::fs::write(&file, r#"{"SubHealthFaultCodes": ["80E01801"]}"#).expect("written");
    let settings = LevelSettings { file: Some(file), ..LevelSettings::default() };
    let fake = Fake::new();
    let client = fake.serve().await;
    let watch = Arc::new(LevelWatch::new(settings));
    let mut levels = watch.levels();
    let task =
        tokio::spawn(async move { match watch.run(client, Progress::unsupervised("levels")).await {} });
    let of_file = until(&mut levels, "the file", |levels| {
        levels.origin == ClassifierSource::File && levels.has_checked_config_map
    })
    .await;
    let code = Code::from(0x80E0_1801);
    assert_eq!(of_file.classifier.level(&code, None).0, Level::SubHealthFault);
    let text = r#"{"SeparateNPUCodes": ["80E01801"]}"#;
    fake.put("mindx-dl-fault-config", Some(json!({"faultCode.json": text})));
    let of_cluster =
        until(&mut levels, "the cluster", |levels| levels.origin == ClassifierSource::ConfigMap).await;
    assert_eq!(of_cluster.classifier.level(&code, None).0, Level::SeparateNPU);
    fake.put("mindx-dl-fault-config", Some(json!({"faultCode.json": "{"})));
    let broken = until(&mut levels, "a problem", |levels| !levels.problems.is_empty()).await;
    assert_eq!(
        (broken.origin, broken.classifier.clone()),
        (ClassifierSource::ConfigMap, of_cluster.classifier.clone())
    );
    fake.put("mindx-dl-fault-config", None);
    until(&mut levels, "the file", |levels| levels.origin == ClassifierSource::File).await;
    task.abort();
}
