//! The content of the configuration file. All keys are optional; unknown ones are errors.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

/// A value with its position in the file. `null`, as in a section of comments only, counts as absent.
pub(super) type At<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct File {
    pub(super) family: At<String>,
    /// Product families by PCI device ids.
    pub(super) pci_ids: Option<BTreeMap<String, Spanned<String>>>,
    pub(super) npus: At<i64>,
    pub(super) driver: Option<Driver>,
    pub(super) npu_smi: Option<Vec<Spanned<String>>>,
    pub(super) host_libraries: Option<HostLibraries>,
    pub(super) paths: Option<Vec<Spanned<String>>>,
    pub(super) ports: Option<Vec<Spanned<i64>>>,
    pub(super) clusterd: Option<Clusterd>,
    pub(super) clock: Option<Clock>,
    pub(super) preload: Option<Preload>,
    pub(super) advisory: Option<Vec<Spanned<String>>>,
    pub(super) interval: At<String>,
    pub(super) readiness: Option<Readiness>,
    pub(super) faults: Option<FaultSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Driver {
    pub(super) path: At<String>,
    pub(super) minimum_version: At<String>,
    pub(super) libraries: Option<Vec<Spanned<String>>>,
    pub(super) library_folders: Option<Vec<Spanned<String>>>,
    pub(super) trust: Option<Trust>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Trust {
    Root,
    Anyone,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HostLibraries {
    pub(super) libmspti: At<String>,
    pub(super) libtaskd: At<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Clusterd {
    pub(super) dial: Option<bool>,
    pub(super) address: At<String>,
    pub(super) timeout: At<String>,
    pub(super) interval: At<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Clock {
    pub(super) max_skew: At<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Preload {
    pub(super) grace: At<String>,
    pub(super) interval: At<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Readiness {
    pub(super) fail_after: At<String>,
    pub(super) recover_after: At<String>,
    pub(super) unknown_after: At<String>,
    pub(super) heartbeat: At<String>,
    pub(super) taint: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct FaultSection {
    pub(super) enabled: Option<bool>,
    pub(super) dcmi: Option<bool>,
    pub(super) state_folder: At<String>,
    pub(super) settle: At<String>,
    pub(super) settle_sub_health: At<String>,
    pub(super) notices: Option<bool>,
    pub(super) withdraw_after_dump: Option<bool>,
    pub(super) fast_dump: Option<bool>,
    pub(super) config_map_namespace: At<String>,
    pub(super) gateway: Option<Gateway>,
    pub(super) classification: Option<Classification>,
    pub(super) rules: Option<Rules>,
    pub(super) devices: Option<Devices>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Gateway {
    pub(super) address: At<String>,
    pub(super) ca_file: At<String>,
    pub(super) token_file: At<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Classification {
    pub(super) file: At<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Rules {
    pub(super) from_cluster: Option<bool>,
    pub(super) frequency: Option<Vec<Spanned<Frequency>>>,
    pub(super) duration: Option<Vec<Spanned<Lasting>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Frequency {
    pub(super) codes: Vec<Spanned<String>>,
    pub(super) times: Spanned<u64>,
    pub(super) window: Spanned<String>,
    pub(super) level: Spanned<String>,
    #[serde(default)]
    pub(super) release: At<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lasting {
    pub(super) codes: Vec<Spanned<String>>,
    pub(super) after: Spanned<String>,
    #[serde(default)]
    pub(super) recover: At<String>,
    pub(super) level: Spanned<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Devices {
    pub(super) interval: At<String>,
}
