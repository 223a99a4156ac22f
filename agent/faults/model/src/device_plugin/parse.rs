//! Parses a [`DeviceInfo`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{ConfigMapData, DeviceFault, DeviceInfo, InvalidDeviceInfo, PublishedCode, check_code};
use crate::json::{self, MAX_BYTES};
use crate::level::Level;

/// The prefixes of the names of whole NPUs, by run mode of the device plugin. A virtual NPU (`Ascend910-2c-100-1`) has no
/// physical id in its name.
const NAME_PREFIXES: [&str; 4] = ["Ascend910-", "npu-", "Ascend310P-", "Ascend310-"];

/// The resources of NPUs, by run mode. One node has one of them.
const RESOURCES: [&str; 4] = ["Ascend910", "npu", "Ascend310P", "Ascend310"];

#[derive(Deserialize)]
struct DeviceInfoCfg<'a> {
    #[serde(rename = "DeviceInfo")]
    device_info: DeviceInfoMember,
    #[serde(rename = "CheckCode", borrow)]
    check_code: Cow<'a, str>,
}

#[derive(Deserialize)]
struct DeviceInfoMember {
    #[serde(rename = "DeviceList")]
    device_list: BTreeMap<String, String>,
    #[serde(rename = "UpdateTime")]
    update_time: i64,
}

/// An element of the list of faults.
#[derive(Deserialize)]
struct Element<'a> {
    #[serde(borrow, default)]
    fault_type: Cow<'a, str>,
    #[serde(borrow)]
    npu_name: Cow<'a, str>,
    #[serde(borrow, default)]
    fault_level: Cow<'a, str>,
    #[serde(borrow, default)]
    fault_code: Cow<'a, str>,
    #[serde(borrow)]
    fault_time_and_level_map: Option<BTreeMap<Cow<'a, str>, TimeAndLevel<'a>>>,
}

#[derive(Default, Deserialize)]
struct TimeAndLevel<'a> {
    fault_time: Option<i64>,
    #[serde(borrow, default)]
    fault_level: Cow<'a, str>,
}

pub(super) fn read(data: ConfigMapData<'_>) -> Result<DeviceInfo, InvalidDeviceInfo> {
    let text = data.device_info.ok_or(InvalidDeviceInfo::NoDeviceInfo)?;
    if text.len() > MAX_BYTES {
        return Err(InvalidDeviceInfo::TooLarge(text.len()));
    }
    let DeviceInfoCfg { device_info, check_code: stated } = serde_json::from_str(text)
        .map_err(|error| InvalidDeviceInfo::Unparsable(json::error_message(&error)))?;
    let DeviceInfoMember { device_list, update_time } = device_info;
    let computed = check_code(&device_list, update_time);
    if *stated != *computed {
        // The text is from another program and goes into a message.
        let stated = json::excerpt(&stated);
        return Err(InvalidDeviceInfo::CheckCode { stated, computed });
    }
    let mut view = DeviceInfo { update_time, ..DeviceInfo::default() };
    for resource in RESOURCES {
        let list =
            |suffix: &str| device_list.get(&format!("huawei.com/{resource}{suffix}")).map(String::as_str);
        view.unhealthy.extend(physical_ids(list("-Unhealthy")));
        view.network_unhealthy.extend(physical_ids(list("-NetworkUnhealthy")));
        if let Some(text) = list("-Fault") {
            let failed =
                |problem| InvalidDeviceInfo::Faults { key: format!("huawei.com/{resource}-Fault"), problem };
            view.faults.extend(faults(text).map_err(failed)?);
        }
    }
    view.manually_separated = physical_ids(data.manually_separated).collect::<BTreeSet<_>>();
    Ok(view)
}

/// The physical ids of a comma-separated list of names.
fn physical_ids(list: Option<&str>) -> impl Iterator<Item = u32> {
    list.unwrap_or_default().split(',').filter_map(physical_id)
}

/// The N of `Ascend910-N` or `npu-N`.
fn physical_id(name: &str) -> Option<u32> {
    let name = name.trim();
    let digits = NAME_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    // parse alone would accept a sign.
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The list of faults, which is JSON within JSON, without those of virtual NPUs.
fn faults(text: &str) -> Result<Vec<DeviceFault>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let elements: Option<Vec<Element<'_>>> =
        serde_json::from_str(text).map_err(|error| json::error_message(&error))?;
    let device_fault = |element: Element<'_>| {
        Some(DeviceFault {
            npu: physical_id(&element.npu_name)?,
            network: element.fault_type == "CardNetworkUnhealthy",
            level: Level::from_name(&element.fault_level),
            codes: codes(&element),
        })
    };
    Ok(elements.unwrap_or_default().into_iter().filter_map(device_fault).collect())
}

/// The codes of the list and of the map of an element, with their levels and times from the map.
fn codes(element: &Element<'_>) -> Vec<PublishedCode> {
    let map = element.fault_time_and_level_map.as_ref();
    let mut codes: Vec<PublishedCode> = Vec::new();
    let listed = element.fault_code.split(',');
    for text in listed.chain(map.into_iter().flat_map(|map| map.keys().map(AsRef::as_ref))) {
        // Ignores invalid codes, which aren't needed.
        let Ok(code) = text.parse() else { continue };
        if codes.iter().all(|known| known.code != code) {
            codes.push(PublishedCode { code, level: None, since: None });
        }
    }
    for (text, map) in map.into_iter().flatten() {
        let known = text.parse().ok().and_then(|code| codes.iter_mut().find(|known| known.code == code));
        if let Some(known) = known {
            known.level = Level::from_name(&map.fault_level).max(known.level);
            known.since = known.since.into_iter().chain(map.fault_time).min();
        }
    }
    for known in &mut codes {
        // The default is the level of the device.
        known.level = known.level.or_else(|| Level::from_name(&element.fault_level));
    }
    codes
}
