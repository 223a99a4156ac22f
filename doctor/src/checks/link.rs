//! The links of the chain, each with one check.

use serde::Serialize;
use strum::VariantArray as _;
use swansong_api::documented::Documented as _;

/// What a check is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr, strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Area {
    Installation,
    Cluster,
    Job,
    Pods,
    Nodes,
}

/// A link of the chain.
///
/// The documentation of a variant is what its check reads, the `message` what to do when it doesn't pass.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    strum::EnumMessage,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Link {
    /// The MutatingWebhookConfiguration `swansong` and its three webhooks.
    #[strum(message = "Apply manifests/base again.")]
    WebhookConfiguration,
    /// The available replicas of the Deployment `swansong-webhook`.
    #[strum(message = "See why its Pods aren't ready: kubectl -n swansong-system describe pods.")]
    WebhookReplicas,
    /// The ready endpoints of the Service `swansong-webhook`.
    #[strum(message = "Compare the Service's selector with the labels of the webhook's Pods.")]
    WebhookEndpoints,
    /// The webhook's answer to the API server, through its Service.
    #[strum(
        message = "Let the API server reach port 8443 of the webhook's Pods: NetworkPolicies, firewalls, the network of the control plane."
    )]
    WebhookReachable,
    /// The certificates that the replicas serve, verified with the `caBundle` as the API server does.
    #[strum(
        message = "Remove what else writes the caBundle, and see the log of the webhook, which corrects it within a minute."
    )]
    CaBundle,
    /// How long the served certificates are valid.
    #[strum(message = "See the log of the webhook, which renews it, or the source of the certificate files.")]
    Certificate,
    /// The bindings of the admission policies that limit what the accounts of webhook and agents may write.
    #[strum(message = "Apply the manifests again; clusters before Kubernetes 1.30 have none.")]
    AdmissionPolicies,
    /// The ready Pods of the DaemonSet `swansong-agent`.
    #[strum(message = "See why its Pods aren't ready: kubectl -n swansong-agent describe pods.")]
    Agents,
    /// The versions of the webhook's replicas and of the agents that were asked.
    #[strum(message = "Complete the upgrade, with one image for all.")]
    Versions,

    /// The namespaces `mindx-dl` and `cluster-system`, in which ClusterD writes.
    #[strum(message = "Create the namespace, as MindCluster's installation does.")]
    Namespaces,
    /// The ready endpoints of the Service `clusterd-grpc-svc` in `mindx-dl`, and whether ClusterD's release, by the tag of its image, has known defects.
    #[strum(
        message = "See why ClusterD isn't ready: kubectl -n mindx-dl describe pods. If the message names known defects, upgrade to the release that it names."
    )]
    Clusterd,
    /// The ConfigMap `cluster-info-device-0` in `mindx-dl`, in which ClusterD publishes the devices.
    #[strum(message = "See the log of ClusterD, and whether it may write ConfigMaps in mindx-dl.")]
    ClusterInfo,
    /// Whether ClusterD accepts faults of the sender `swansong`, by the condition FaultsRelayed and the rehearsals of nodes.
    #[strum(
        message = "Install the file of `swansong clusterd-config` on ClusterD's host, then run `swansong doctor --rehearse --node NAME`."
    )]
    SenderRegistered,
    /// The date and the result of the last rehearsal of each node.
    #[strum(message = "Run `swansong doctor --rehearse --node NAME`.")]
    Rehearsal,

    /// The annotation `recover-strategy` of the job, token by token as ascend-operator reads it.
    #[strum(
        message = "Write the strategies in lower case, with commas and without blanks, and create the job again."
    )]
    Strategy,
    /// The PodGroup of the job, and its annotation `recover-strategy` as ClusterD reads it.
    #[strum(message = "Create the job again: the PodGroup gets its annotations only then.")]
    PodGroup,
    /// The label `process-recover-enable` of the PodGroup.
    #[strum(message = "Set the label process-recover-enable: \"on\" on the job and create it again.")]
    RecoveryEnabled,
    /// The PodGroup's annotation `ProcessRecoverStrategy`, which hands decisions to a platform.
    #[strum(message = "Remove the annotation, unless a platform answers ClusterD for this job.")]
    PlatformMode,
    /// The queue of the PodGroup.
    #[strum(message = "Open the queue, or put the job into another one.")]
    Queue,
    /// The ports of MindIO's controller and of the TaskD Manager in the template of rank 0.
    #[strum(message = "Create the job again while the webhook runs, or write the ports into its template.")]
    TemplatePorts,
    /// The same ports in the Service of rank 0, by which the other ranks reach them.
    #[strum(
        message = "Delete the Service after the ports are in the job's template: ascend-operator creates it again."
    )]
    ServicePorts,
    /// The ready endpoints of that Service.
    #[strum(message = "See why the Pod of rank 0 isn't ready.")]
    ServiceEndpoints,
    /// The ConfigMap `reset-config-<job>`, without which ClusterD ends ranks and orders nothing.
    #[strum(message = "Delete it if it exists; the webhook creates it again within seconds.")]
    ResetConfig,
    /// ClusterD's own view of the job, the ConfigMap `job-summary-<job>`.
    #[strum(
        message = "See the log of ClusterD; it takes a job for running when all its Pods run and have their devices."
    )]
    JobSummary,
    /// `runPolicy.cleanPodPolicy`, by which ascend-operator deletes running Pods of a failed job.
    #[strum(message = "Set cleanPodPolicy to None.")]
    CleanPodPolicy,
    /// The label `fault-scheduling`: with `force` Volcano deletes a Pod with a faulty device at once.
    #[strum(message = "Set the label to grace.")]
    FaultScheduling,
    /// The label `fault-retry-times`, which keeps the job's PodGroup after a Pod has failed.
    #[strum(message = "Set the label to a positive number, or let the launcher hook protect the dump.")]
    FaultRetryTimes,
    /// The date and the result of the last rehearsal of the job, if there was one.
    #[strum(message = "Correct what failed, then run `swansong doctor JOB --rehearse` again.")]
    JobRehearsal,
    /// Whether the job has other Pods than that of rank 0.
    #[strum(
        message = "Nothing helps if the node of a job with one Pod is lost; other faults are covered by the launcher hook."
    )]
    OtherPods,

    /// The phases of the Pods, and whether there are as many as the job asks for.
    #[strum(message = "See why Pods are missing or don't run: kubectl describe.")]
    PodsRunning,
    /// Whether the webhook processed each Pod when it was created, by its annotation `swansong.dev/injected`.
    #[strum(message = "Create the Pods again: they were created while the webhook didn't answer.")]
    Admitted,
    /// What ascend-operator adds for a dump: `HIGH_AVAILABILITY` or `MS_ENABLE_TFT`, and `PROCESS_RECOVER`.
    #[strum(
        message = "Check the job's label `framework`, that its training container is called ascend, and ascend-operator's version (7.2.RC1 or newer)."
    )]
    OperatorEnvironment,
    /// The variable `POD_IP`, on which the TaskD Manager listens.
    #[strum(message = "Create the Pods again while the webhook runs, or set it from status.podIP.")]
    PodIp,
    /// The variable `TTP_PORT`, on which MindIO's controller listens.
    #[strum(message = "Set it to 8000, which MindSpeed-LLM has built in.")]
    TtpPort,
    /// By which variables training processes find MindIO's controller: `TTP_ADDR`, for MindSpore `MS_TFT_IP` and `MS_TFT_PORT`.
    #[strum(
        message = "Set it behind what it refers to: rank 0 $(POD_IP), others $(MASTER_ADDR), for MindSpore $(MS_SCHED_HOST)."
    )]
    ControllerAddress,
    /// The variable `MASTER_ADDR`, which TaskD takes only as an address.
    #[strum(message = "Let ascend-operator set it; TaskD's proxy refuses names.")]
    MasterAddress,
    /// The variable `TASKD_PROCESS_ENABLE`; `off` keeps the TaskD Manager from starting MindIO's controller.
    #[strum(message = "Set it to on, or remove it.")]
    TaskdEnabled,
    /// `TTP_NORMAL_ACTION_TIME_LIMIT`, the longest time that MindIO lets a save take: 30 to 1800 seconds, 180 without it.
    #[strum(message = "Set it to 1800 in the environment of the TaskD Manager.")]
    SaveLimit,
    /// `MINDIO_WAIT_MINDX_TIME`, how long MindIO waits for ClusterD's order: 1 to 3600 seconds, 30 without it.
    #[strum(message = "Set it to 30 or more, or remove it.")]
    OrderLimit,
    /// The ports of MindIO's controller and of the TaskD Manager in the Pods.
    #[strum(message = "Create the Pods again while the webhook runs.")]
    PodPorts,
    /// `restartPolicy` of the Pods.
    #[strum(message = "Set it to Never: a container that restarts in place loses its rank.")]
    RestartPolicy,
    /// Pods on the host's network: ports that two of them need on one node, and `fault-scheduling: force`.
    #[strum(message = "Place each such Pod on a separate node, and don't combine hostNetwork with force.")]
    HostNetwork,
    /// The device plugin's annotation with the Pod's devices, and the rank `hccl/rankIndex`.
    #[strum(message = "Check the device plugin of the node, and ascend-operator.")]
    PodDevices,
    /// Whether the Pod carries the launcher hook, which delays TaskD's order to end while ranks save.
    #[strum(
        message = "Create the Pods again while the webhook runs; with other strategies than dump, set swansong.dev/protect-dump: \"true\" on the job."
    )]
    LauncherHook,
    /// Whether a launcher has loaded the hook, as the agent sees it.
    #[strum(message = "See docs/agent.md#preloads for the reason.")]
    LauncherHookActive,
    /// Whether the preloaded libraries are in the training processes, as the agent sees it. A dump works without them.
    #[strum(message = "See docs/agent.md#preloads for the reason.")]
    Preload,
    /// The result of the init container that searches the image for TaskD's libraries, as the agent sees it.
    #[strum(
        message = "Install the TaskD wheel and CANN in the image, or set swansong.dev/libraries: configured on the job and create it again."
    )]
    LibrariesFound,
    /// Whether the image has TaskD, MindIO and what they need, as the agent sees it.
    #[strum(message = "Run `swansong image-check` on the image, which says for each point what to do.")]
    Image,
    /// Whether the training program can save a dying checkpoint, by its arguments, as the agent sees it.
    #[strum(
        message = "Run `swansong lint-script` on the start script, which says for each reason what to do."
    )]
    Trainer,
    /// Whether the TaskD Manager of rank 0 listens on the Pod's address and port 9601, as the agent sees it.
    #[strum(
        message = "Start manager.py beside rank 0, with POD_IP in its environment; its log says what failed."
    )]
    ManagerListening,
    /// The environment of the TaskD Manager's process, which a start script may have changed, as the agent sees it.
    #[strum(message = "Remove from the start script what sets or unsets the variable before manager.py.")]
    ManagerEnvironment,
    /// Whether MindIO's controller of rank 0 listens on TTP_PORT, as the agent sees it.
    #[strum(message = "See the TaskD Manager's log for `start_mindio_controller failed`.")]
    ControllerListening,
    /// The connections of the training processes to MindIO's controller, as the agent sees them.
    #[strum(
        message = "Switch the trainer's high availability on, and see ttp_log for `Trying to connect`: TTP_ADDR, the port, or the Service."
    )]
    ProcessorsConnected,

    /// Whether an agent runs on the node and answers.
    #[strum(
        message = "See why the agent's Pod doesn't run or answer: kubectl -n swansong-agent describe pods."
    )]
    AgentAnswers,
    /// The condition DumpReady and the age of its heartbeat.
    #[strum(message = "See docs/agent.md#reasons for the reason.")]
    DumpReady,
    /// The condition FaultsRelayed.
    #[strum(message = "See docs/faults.md#the-condition-faultsrelayed for the reason.")]
    FaultsRelayed,
    /// The device plugin's ConfigMap, without which ClusterD drops all faults of the node.
    #[strum(message = "Check the device plugin of the node.")]
    DevicePlugin,
    /// ClusterD's port 8899, as the agent reaches it.
    #[strum(
        message = "Check that ClusterD runs, NetworkPolicies and firewalls; if its name isn't known, set clusterd.address."
    )]
    ClusterdAnswers,
}

impl Link {
    /// All links, in the order of the output.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The part of the documentation about it.
    pub fn docs(self) -> String {
        format!("docs/doctor.md#{}", self.as_str())
    }

    pub const fn area(self) -> Area {
        match self {
            Self::WebhookConfiguration
            | Self::WebhookReplicas
            | Self::WebhookEndpoints
            | Self::WebhookReachable
            | Self::CaBundle
            | Self::Certificate
            | Self::AdmissionPolicies
            | Self::Agents
            | Self::Versions => Area::Installation,
            Self::Namespaces
            | Self::Clusterd
            | Self::ClusterInfo
            | Self::SenderRegistered
            | Self::Rehearsal => Area::Cluster,
            Self::Strategy
            | Self::PodGroup
            | Self::RecoveryEnabled
            | Self::PlatformMode
            | Self::Queue
            | Self::TemplatePorts
            | Self::ServicePorts
            | Self::ServiceEndpoints
            | Self::ResetConfig
            | Self::JobSummary
            | Self::CleanPodPolicy
            | Self::FaultScheduling
            | Self::FaultRetryTimes
            | Self::JobRehearsal
            | Self::OtherPods => Area::Job,
            Self::AgentAnswers
            | Self::DumpReady
            | Self::FaultsRelayed
            | Self::DevicePlugin
            | Self::ClusterdAnswers => Area::Nodes,
            _ => Area::Pods,
        }
    }
}
