//! Properties of MindCluster's fault formats.

use std::collections::BTreeMap;
use std::str;

use serde_json::json;
use swansong_fault_model::device_plugin::{ConfigMapData, DeviceInfo, InvalidDeviceInfo, check_code};
use swansong_fault_model::{Classifier, Code, Level, NETWORK_CODES, Rules};

/// Limit of a message about a file, in bytes.
const LONGEST_MESSAGE: usize = 1000;

/// Any text as the device plugin's ConfigMap: it is read or refused with a message. A correct CheckCode is accepted.
pub fn device_info(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Err(invalid) =
        DeviceInfo::read(ConfigMapData { device_info: Some(text), manually_separated: Some(text) })
    {
        let message = invalid.to_string();
        assert!(!message.is_empty() && message.len() < LONGEST_MESSAGE);
    }
    let mut lines = text.lines();
    let mut list = BTreeMap::new();
    while let (Some(key), Some(value)) = (lines.next(), lines.next()) {
        list.insert(key.to_owned(), value.to_owned());
    }
    let update_time = i64::try_from(text.len()).unwrap_or_default();
    let check_code = check_code(&list, update_time);
    let info =
        json!({"DeviceInfo": {"DeviceList": list, "UpdateTime": update_time}, "CheckCode": check_code});
    match DeviceInfo::read(ConfigMapData { device_info: Some(&info.to_string()), manually_separated: None }) {
        Ok(view) => assert_eq!(view.update_time, update_time),
        Err(invalid) => {
            assert!(
                matches!(invalid, InvalidDeviceInfo::Faults { .. } | InvalidDeviceInfo::TooLarge(_)),
                "{invalid}"
            );
        }
    }
}

/// Any text as a classification or as rules: it is read or refused with a message, and network faults restart nothing.
pub fn fault_code(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    match Classifier::from_json(text) {
        Ok((classifier, warnings)) => {
            assert!(warnings.iter().all(|warning| warning.to_string().len() < LONGEST_MESSAGE));
            for number in NETWORK_CODES {
                let (level, _) = classifier.level(&Code::from_number(number), None);
                assert!(level <= Level::SubHealthFault || level >= Level::PreSeparateNPU, "{level}");
            }
        }
        Err(broken) => assert!(!broken.to_string().is_empty()),
    }
    match Rules::from_json(text) {
        Ok((_, warnings)) => {
            assert!(warnings.iter().all(|warning| warning.to_string().len() < LONGEST_MESSAGE));
        }
        Err(broken) => assert!(!broken.to_string().is_empty()),
    }
}
