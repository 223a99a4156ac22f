//! Views of volumes and their mounts.

use super::json::view;
use super::{FieldRef, Slot, Text};

view! {
    /// View of a volume.
    pub struct Volume<'a> {
        /// Unique in the pod.
        pub name: "name" => Slot<Text<'a>>,
        /// Fields of the Pod as files.
        pub downward_api: "downwardAPI" => Slot<DownwardApi<'a>>,
        /// A folder that lives as long as the pod.
        pub empty_dir: "emptyDir" => Slot<EmptyDir<'a>>,
        /// The keys of a ConfigMap as files.
        pub config_map: "configMap" => Slot<ConfigMapVolume<'a>>,
    }

    /// View of an emptyDir volume.
    pub struct EmptyDir<'a> {
        /// The most bytes it takes, as a quantity.
        pub size_limit: "sizeLimit" => Slot<Text<'a>>,
    }

    /// View of a ConfigMap volume.
    pub struct ConfigMapVolume<'a> {
        /// The ConfigMap's name.
        pub name: "name" => Slot<Text<'a>>,
    }

    /// View of a downward API volume.
    pub struct DownwardApi<'a> {
        /// The files of the volume.
        pub items: "items" => Slot<Vec<DownwardApiFile<'a>>>,
    }

    /// View of a file of a downward API volume.
    pub struct DownwardApiFile<'a> {
        /// Path in the volume.
        pub path: "path" => Slot<Text<'a>>,
        /// The field that is its content.
        pub field_ref: "fieldRef" => Slot<FieldRef<'a>>,
    }

    /// View of a volume mount.
    pub struct VolumeMount<'a> {
        /// Name of the volume.
        pub name: "name" => Slot<Text<'a>>,
        /// Path in the container.
        pub mount_path: "mountPath" => Slot<Text<'a>>,
    }
}
