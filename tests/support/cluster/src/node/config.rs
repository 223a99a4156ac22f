//! Configuration files of the programs on the node.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::spec::NodeSpec;
use crate::network::Network;

/// Where containerd listens, inside the node.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// Name of the image for the process that holds a pod's namespaces.
pub(crate) const PAUSE_IMAGE: &str = "localhost/pause:testcluster";

/// containerd's configuration. It keeps its data where containerd always does; the node has its
/// own folders mounted there.
pub(crate) fn containerd(spec: &NodeSpec, snapshotter: &str) -> String {
    let (cni_plugins, cni_config) = (spec.cni_plugins.display(), spec.file("cni").display().to_string());
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Lowering the score needs a capability that containers and small machines often lack.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_plugins}"
    conf_dir = "{cni_config}"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"#
    )
}

/// The pods' network: each pod is joined to the node by its own pair and everything between
/// pods is routed, so that kube-proxy sees all of it without help from a bridge module.
pub(crate) fn cni(network: &Network) -> String {
    json!({
        "cniVersion": "0.4.0",
        "name": "testcluster",
        "plugins": [
            {
                "type": "ptp",
                // The host has a route to the pods, so their own addresses can be seen.
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{ "subnet": network.pods }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true },
        ],
    })
    .to_string()
}

/// The kubelet's configuration.
pub(crate) fn kubelet(spec: &NodeSpec) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": spec.file("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", spec.network.label()),
        // No DNS server has this address; without any, the kubelet logs a warning for every pod.
        "clusterDNS": [Ipv4Addr::from_bits(spec.network.first_service.to_bits() + 9)],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "enforceNodeAllocatable": [],
        // Disks of developers are full; that is no reason to evict pods.
        "evictionHard": {
            "memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
        },
        "failCgroupV1": false,
        "failSwapOn": false,
        // Images come from files, so one that is removed can't be pulled again.
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": false,
        "oomScoreAdj": 0,
        "registerNode": true,
        "resolvConf": spec.file("resolv.conf"),
        "shutdownGracePeriod": "0s",
        "syncFrequency": "10s",
    })
}

pub(crate) fn kube_proxy(spec: &NodeSpec) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": spec.network.pods,
        "hostnameOverride": spec.name,
        "clientConnection": { "kubeconfig": spec.file("kube-proxy.kubeconfig") },
        // These are settings of the whole machine and not the node's to change.
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
        "nftables": { "minSyncPeriod": "0.1s" },
        "oomScoreAdj": 0,
    })
}
