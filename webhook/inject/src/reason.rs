//! The reasons for every action, skip and warning.
//!
//! `explain`, admission warnings, audit annotations, logs and metric labels use the same names. The doc comment of a
//! variant is its meaning and the strum message what to do; docs/reasons.md is generated from both.

use serde::Serialize;
use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};
use swansong_trainer::{Effect, TrainerReason};

/// Why something was added, kept, skipped or warned about.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Display,
    EnumMessage,
    IntoStaticStr,
    Serialize,
    VariantArray,
)]
pub enum Reason {
    /// The field was missing, and the dying checkpoint needs it.
    #[strum(message = "Nothing.")]
    Required,
    /// The field already has the value that the dying checkpoint needs.
    #[strum(message = "Nothing.")]
    AlreadyPresent,
    /// The field has a different value of the user, which is kept.
    #[strum(message = "Check that your value is intended.")]
    UserValueKept,
    /// The libraries were joined with the user's own LD_PRELOAD.
    #[strum(message = "Nothing.")]
    PreloadMerged,
    /// `swansong.dev/skip-preload` names the container.
    #[strum(message = "Nothing.")]
    PreloadOptedOut,
    /// The user's LD_PRELOAD comes from a valueFrom; it was renamed, and the new entry refers to it.
    #[strum(message = "Nothing; the user's value is in `SWANSONG_ORIGINAL_LD_PRELOAD`.")]
    PreloadValueFromReferenced,
    /// The user's LD_PRELOAD comes from a valueFrom and was left unchanged, so the libraries aren't loaded.
    #[strum(
        message = "Write the value out, or set `preload.valueFrom` to `reference` in the configuration. A container that has a `SWANSONG_ORIGINAL_LD_PRELOAD` already can't be referenced."
    )]
    PreloadValueFromSkipped,
    /// The user's LD_PRELOAD comes from an optional valueFrom and was left unchanged, so the libraries aren't loaded.
    #[strum(
        message = "Write the value out, or remove `optional`: a reference to a missing key would be an invalid LD_PRELOAD."
    )]
    PreloadValueFromOptional,
    /// The user's LD_PRELOAD has a library that must be first, so the libraries follow it.
    #[strum(message = "Nothing; the annotation `swansong.dev/preload-order` sets another order.")]
    PreloadKeptFirst,
    /// The user preloads the same library from another path, which counts.
    #[strum(message = "Nothing if the path is right; otherwise remove it from `LD_PRELOAD`.")]
    PreloadFromOtherPath,
    /// The container has envFrom, and the injected LD_PRELOAD overrides one from there.
    #[strum(
        message = "If the ConfigMap or Secret has an `LD_PRELOAD`, write it as an `env` entry; the libraries join it."
    )]
    PreloadMayHideEnvFrom,
    /// The container has envFrom, and injected variables override those from there.
    #[strum(
        message = "If the ConfigMap or Secret has one of the variables, write it as an `env` entry, which is kept."
    )]
    VariablesMayHideEnvFrom,
    /// TTP_PORT differs from 8000, which MindSpeed-LLM has built in.
    #[strum(message = "Set `TTP_PORT` to `\"8000\"` unless your framework reads the variable.")]
    TtpPortNotDefault,
    /// TTP_PORT isn't a plain number, so the port to declare is unknown.
    #[strum(message = "Write `TTP_PORT` as a number, or declare its port as `ttp-port` yourself.")]
    TtpPortUnknown,
    /// TASKD_PROCESS_ENABLE is off, so TaskD takes no part in recovery.
    #[strum(message = "Remove `TASKD_PROCESS_ENABLE` or set it to `\"on\"`.")]
    TaskdDisabled,
    /// POD_IP is empty, so the TaskD Manager would listen on 127.0.0.1 only.
    #[strum(
        message = "Write `valueFrom: {fieldRef: {fieldPath: status.podIP}}`, with `fieldRef` inside `valueFrom`."
    )]
    PodIpEmpty,
    /// LOCAL_PROXY_ENABLE is on (hardened set-up), so addresses are left unchanged.
    #[strum(message = "Nothing.")]
    LocalProxy,
    /// The variable refers to what ascend-operator adds to Pods, so each Pod gets it when it is created.
    #[strum(message = "Nothing.")]
    AddedToPods,
    /// The container has no variable with the address of rank 0, or the Pod doesn't show its rank, so its training processes may not find MindIO's controller.
    #[strum(
        message = "Export the variable in the start script before the training: without it training doesn't start."
    )]
    ControllerAddressUnknown,
    /// A variable of the user refers to one that is defined behind it, so the reference stays literal text.
    #[strum(message = "Remove the variable; Swansong adds it to the Pods.")]
    ControllerAddressLiteral,
    /// The user's address of MindIO's controller is empty, or that of a Pod without rank 0.
    #[strum(message = "Remove the variable; Swansong adds it to the Pods.")]
    ControllerAddressWrong,
    /// MindIO's own limit of 180 s applies: a save that takes longer is thrown away.
    #[strum(
        message = "Nothing if saves are shorter. Otherwise set `dump.saveLimitSeconds` in the configuration, or `dump.saveLimitSecondsWithOtherStrategies` where other strategies act too; their actions may then take as long."
    )]
    SaveLimitDefault,
    /// A time limit of MindIO's controller is lower than its default.
    #[strum(message = "Remove the variable or raise it.")]
    ManagerLimitLow,
    /// A time limit of MindIO's controller isn't a whole number of seconds in the range that MindIO accepts.
    #[strum(message = "Remove the variable or correct it as the warning says.")]
    ManagerLimitInvalid,
    /// The annotation `swansong.dev/protect-dump` excludes the job from the launcher hook.
    #[strum(message = "Nothing.")]
    LauncherHookOptedOut,
    /// The configuration switches the launcher hook off.
    #[strum(
        message = "Set `dump.launcherHook` in the configuration or `swansong.dev/protect-dump` on the job."
    )]
    LauncherHookOff,
    /// Other strategies than dump act too, which the wait of the launcher hook could delay.
    #[strum(message = "Set `swansong.dev/protect-dump` to `\"true\"` if the dump matters more.")]
    LauncherHookOtherStrategies,
    /// The launcher hook delays every order to exit, also those of other strategies than dump.
    #[strum(message = "Nothing if the dump matters more; otherwise remove `swansong.dev/protect-dump`.")]
    LauncherHookDelaysOthers,
    /// The pod has another volume with the name of the launcher hook's.
    #[strum(message = "Rename your volume.")]
    LauncherHookVolumeTaken,
    /// An annotation of the launcher hook has a value of the user, which is kept and may not protect the dump.
    #[strum(message = "Remove the annotation from the template or Pod; Swansong adds it.")]
    LauncherHookDiffers,
    /// The path of libtaskd.so doesn't show in which directory the taskd package is, so the launcher hook can't be mounted.
    #[strum(message = "Set `swansong.dev/libtaskd` or `libraries` to the path inside the package `taskd`.")]
    SiteDirectoryUnknown,
    /// A volume of the user hides the directory in which the taskd package is, so the launcher hook can't be mounted.
    #[strum(
        message = "Mount the volume elsewhere, or put the two files of the hook into it (docs/how-it-works.md)."
    )]
    SiteDirectoryMounted,
    /// The libraries are discovered, and `PYTHONUSERBASE`, by which the launcher hook would be loaded, has a value of the user.
    #[strum(message = "Remove the variable, or set `swansong.dev/libtaskd` to the path in the image.")]
    PythonUserBaseTaken,
    /// The launcher hook imports TaskD's patch of torch's launcher (`dump.launcherPatch: false` leaves it out).
    #[strum(message = "Nothing; an image whose launcher imports it already isn't patched twice.")]
    LauncherPatched,
    /// torchrun reads the variable as the default of its flag; a flag in the start script wins (`torchrunDefaults: false` leaves it out).
    #[strum(message = "Nothing.")]
    TorchrunDefault,
    /// An init container with the image, which needs `/bin/sh`, finds the libraries at the start of the Pod (`swansong.dev/libraries: configured` leaves it out).
    #[strum(
        message = "Nothing; without `/bin/sh` in the image the Pod doesn't start. Check the image with `swansong image-check` beforehand."
    )]
    LibrariesDiscovered,
    /// The pod has a volume or container with the name of the ones that discover the libraries.
    #[strum(message = "Rename your volume or container.")]
    LibrariesNameTaken,
    /// A volume of the user hides the folder with the links to discovered libraries.
    #[strum(message = "Mount the volume elsewhere than over `/opt/swansong`.")]
    LibrariesFolderMounted,
    /// The libraries are discovered in the image of another container of the pod.
    #[strum(message = "Set `swansong.dev/libtaskd` and `swansong.dev/libmspti`, or use one image.")]
    LibrariesOfSeveralImages,
    /// The TaskD Manager runs as a sidecar of rank 0's Pod (`swansong.dev/manager: none` leaves it out).
    #[strum(
        message = "Nothing; a Manager in the start script waits or ends. A Pod whose first process ignores SIGTERM takes the whole grace period to be deleted."
    )]
    ManagerSidecar,
    /// The Pod of rank 0 gets the TaskD Manager as a sidecar when it is created (`swansong.dev/manager: none` leaves it out).
    #[strum(message = "Nothing; the job isn't changed, because its schema doesn't allow sidecars.")]
    ManagerAddedToPods,
    /// The pod has a container with the name of the TaskD Manager's sidecar.
    #[strum(message = "Rename your container.")]
    ManagerNameTaken,
    /// The pod doesn't show whether it has rank 0, beside which the TaskD Manager runs.
    #[strum(message = "Set `RANK`, or start the Manager in the start script (`swansong manager-py`).")]
    ManagerRankUnknown,
    /// Kubernetes before 1.29 would make a sidecar an init container that never ends, so it isn't added.
    #[strum(
        message = "Start the Manager in the start script (`swansong manager-py`). If the version is unknown, the webhook's log says why."
    )]
    NativeSidecarsMissing,
    /// The job's reset.json is mounted where TaskD reads it (`swansong.dev/reset-config: none` leaves it out).
    #[strum(message = "Nothing.")]
    ResetConfigMounted,
    /// The pod doesn't show the name of its job, so its reset.json can't be mounted.
    #[strum(message = "Nothing for Pods without a job; otherwise mount it yourself.")]
    JobNameUnknown,
    /// A fault on the node of rank 0 loses the dump, because nothing delays the end of the Manager and the ranks there.
    #[strum(
        message = "Enable the launcher hook as the warning says, or set `swansong.dev/protect-dump: \"false\"` to accept it."
    )]
    DumpUnprotected,
    /// `swansong.dev/fast-dump` needs the launcher hook, which the pod doesn't have.
    #[strum(message = "Enable the launcher hook, or remove `swansong.dev/fast-dump`.")]
    FastDumpUnprotected,
    /// The Pods of a failed job are deleted while they save.
    #[strum(message = "Set `spec.runPolicy.cleanPodPolicy` to `None`.")]
    CleanPodPolicyDeletesSavers,
    /// The label fault-scheduling is force, so Volcano may delete a Pod with a reported fault before anything is saved.
    #[strum(message = "Set the label to `grace`.")]
    FaultSchedulingForce,
    /// The job has one Pod, so the loss of its node loses all replicas of its state.
    #[strum(
        message = "Nothing; device faults are covered. Use several Pods if the loss of a node has to be."
    )]
    OnePod,
    /// The Pods have several containers, for which MindCluster's process recovery isn't documented.
    #[strum(message = "Run helpers as init containers with `restartPolicy: Always`, or test a dump.")]
    SeveralContainers,
    /// The rank table is mounted from a ConfigMap, with which MindCluster's process recovery fails.
    #[strum(message = "Mount the folder of the rank table by hostPath, or leave it out.")]
    RankTableFromConfigMap,
    /// The memory volume at /dev/shm is smaller than the 16 GiB that MindCluster advises.
    #[strum(message = "Raise `sizeLimit` to `16Gi`.")]
    SharedMemorySmall,
    /// The training program stops at its start, because the annotation turns high availability on.
    #[strum(message = "Do what the warning says, or remove the annotation; docs/trainer.md lists the cases.")]
    TrainerWontStart,
    /// The training program trains, but saves no dying checkpoint.
    #[strum(message = "Do what the warning says; docs/trainer.md lists the cases.")]
    TrainerNeverSaves,
    /// The training program saves a dying checkpoint with a restriction.
    #[strum(message = "Nothing if the restriction is intended.")]
    TrainerRestricted,
    /// The start script in the command has a fault.
    #[strum(message = "Correct the script as the warning says; docs/trainer.md lists the faults.")]
    StartScriptFault,
    /// The port is declared under another name.
    #[strum(
        message = "Check that the port is the one of the checkpoint and not of another server, and rename it: ascend-operator's Service has named ports only."
    )]
    PortNameDiffers,
    /// The name of the port belongs to another port of the container.
    #[strum(message = "Rename your port.")]
    PortNameTaken,
    /// Under hostNetwork only rank 0, which listens on the ports, declares them.
    #[strum(message = "Nothing.")]
    HostNetworkNotRankZero,
    /// Under hostNetwork another container of the pod declares the port already.
    #[strum(message = "Declare the port in one container of the Pod only.")]
    HostNetworkPortTaken,
    /// Under hostNetwork the declared ports keep pods of the template from sharing a node.
    #[strum(
        message = "Nothing if each Pod has its own node. Otherwise don't use hostNetwork, or give rank 0 a separate task."
    )]
    HostNetworkSeveralPods,
    /// The configuration asks for nodes that can save a dying job (nodeReadiness).
    #[strum(message = "Nothing.")]
    NodeReadiness,
    /// The pod names its node (spec.nodeName), so node affinity has no effect.
    #[strum(message = "Nothing.")]
    NodeAlreadyChosen,
    /// No term of the required node affinity can match a node, so a further requirement has no effect.
    #[strum(
        message = "Correct or remove `nodeSelectorTerms`. Kubernetes refuses an empty list, and an empty term matches no node."
    )]
    NodeSelectorMatchesNothing,
    /// The pod requires a node that can save a dying job, and the last check found none that accepts pods.
    #[strum(
        message = "See `kubectl get nodes -L swansong.dev/dump-ready` and the condition `DumpReady` of the nodes, or set `nodeReadiness` to `prefer` in the configuration."
    )]
    NoNodeReady,
    /// The pod requires a node that can save a dying job, and whether one exists is unknown.
    #[strum(
        message = "Grant the webhook the right to list nodes (component `node-readiness`); its log names what is missing."
    )]
    NodeReadinessUnknown,
    /// No replica type is known to have rank 0.
    #[strum(message = "Name the first replica type `Master`, `Scheduler` or `Chief`.")]
    NoRankZero,
    /// The strategy was copied from the job, because ascend-operator doesn't copy job annotations to pods.
    #[strum(message = "Nothing.")]
    StrategyCopied,
    /// An option of Swansong was copied from the job to the template, where it is read.
    #[strum(message = "Nothing.")]
    OptionCopied,
    /// The strategy list was rewritten without blanks, because MindCluster ignores tokens with blanks around them.
    #[strum(message = "Nothing; write the list without blanks to keep it as it is.")]
    StrategyNormalised,
    /// The strategy list has blanks around tokens, which MindCluster ignores.
    #[strum(message = "Write the list without blanks.")]
    StrategyPadded,
    /// The strategy list has a token that MindCluster doesn't know.
    #[strum(message = "Correct the token; docs/annotations.md lists the six that exist.")]
    StrategyUnknownToken,
    /// Only the template has the strategy, and MindCluster doesn't read it there.
    #[strum(message = "Put the annotation on the job.")]
    StrategyOnTemplateOnly,
    /// The template's strategy differs from the job's, which MindCluster reads.
    #[strum(message = "Put the right list on the job and remove it from the template.")]
    StrategyDiffers,
    /// MindCluster doesn't read the strategy of this kind of workload.
    #[strum(message = "Run the training as an AscendJob.")]
    StrategyNotPropagated,
    /// A Volcano Job lacks the environment that ascend-operator adds to an AscendJob.
    #[strum(message = "Set the variables that the warning names, or use an AscendJob.")]
    VolcanoNoOperatorEnv,
    /// Label process-recover-enable isn't on, so ClusterD answers 403.
    #[strum(message = "AscendJob: give the job its labels. Volcano Job: set the label to `\"on\"`.")]
    ProcessRecoverOff,
    /// A label has the name of the annotation recover-strategy, and MindCluster reads the annotation only.
    #[strum(message = "Move it from `metadata.labels` to `metadata.annotations`.")]
    StrategyIsLabel,
    /// An annotation has nearly the name recover-strategy.
    #[strum(message = "Rename it to `recover-strategy` if it is meant.")]
    StrategyMisspelled,
    /// A label has the name of an annotation of Swansong, which reads no labels of jobs and Pods.
    #[strum(message = "Move it from `metadata.labels` to `metadata.annotations`.")]
    OptionIsLabel,
    /// An annotation of Swansong has an unknown name.
    #[strum(message = "Correct the name or remove the annotation.")]
    OptionUnknown,
    /// An annotation names a container that the pod doesn't have.
    #[strum(message = "Correct the name.")]
    UnknownContainer,
    /// An annotation names an ordinary init container, which is never changed.
    #[strum(message = "Remove the name.")]
    InitContainer,
    /// An annotation of Swansong has an unusable value.
    #[strum(message = "Correct the value as the warning says.")]
    OptionInvalid,
    /// The annotation swansong.dev/injected was unreadable and has been replaced.
    #[strum(message = "Nothing; `uninject` removes later additions only.")]
    RecordUnreadable,
    /// The object has no `kind`.
    #[strum(message = "Add `kind`.")]
    KindMissing,
    /// Swansong doesn't change objects of this kind.
    #[strum(message = "Nothing.")]
    KindNotHandled,
    /// The object has neither a recover-strategy nor the environment by which ascend-operator marks a dump.
    #[strum(message = "Add `recover-strategy: \"dump\"` to the job if it should save a dying checkpoint.")]
    NoStrategy,
    /// The recover-strategy has no token that triggers the injection.
    #[strum(message = "Add `dump` to the list if the job should save a dying checkpoint.")]
    StrategyWithoutDump,
    /// The annotation `swansong.dev/inject` excludes the object.
    #[strum(message = "Nothing.")]
    OptedOut,
    /// The pod is for Windows, where libraries can't be preloaded.
    #[strum(message = "Nothing.")]
    Windows,
    /// The training container is ambiguous.
    #[strum(message = "Name the training container in the annotation `swansong.dev/containers`.")]
    NoContainerChosen,
    /// The template requests no NPU, unlike others of the job, and has no container named `ascend`.
    #[strum(
        message = "Nothing; the annotation `swansong.dev/containers` on the template selects containers."
    )]
    TemplateWithoutNpu,
    /// A mirror Pod only shows a static Pod, whose processes can't be changed by it.
    #[strum(message = "Run `swansong inject` on the manifest of the static Pod.")]
    MirrorPod,
    /// The workload has no pod template.
    #[strum(message = "Nothing.")]
    NoTemplate,
    /// The injected object would be larger than the API server can store.
    #[strum(
        message = "Use fewer templates or containers, or shorter annotations; etcd stores objects of at most 1.5 MiB."
    )]
    ObjectTooLarge,
    /// The annotations would be larger than the 256 KiB that the API server accepts.
    #[strum(message = "Shorten the annotations of the job, template or Pod.")]
    AnnotationsTooLarge,
    /// A field of the object has the wrong type.
    #[strum(
        message = "Correct the field that the message names; the API server refuses most such objects anyway."
    )]
    ObjectInvalid,
    /// The request is neither a CREATE nor an update of a Volcano Job.
    #[strum(message = "Nothing; the shipped webhook configuration covers no other requests.")]
    NotCreate,
    /// The request is for a subresource.
    #[strum(message = "Nothing; the shipped webhook configuration covers no subresources.")]
    Subresource,
    /// The request contains no object.
    #[strum(message = "Nothing; the shipped webhook configuration covers CREATE only.")]
    NoObject,
    /// The webhook failed.
    #[strum(
        message = "Report it with the line of the webhook's log. The object was admitted unchanged, or denied if `strictness` is `deny`."
    )]
    InternalError,
    /// The webhook had no capacity for the review before its deadline.
    #[strum(
        message = "Check whether the object was injected (a Pod of an injected job is); create it again, or run `swansong inject` on the manifest. If it happens often, add replicas or raise `--body-memory`."
    )]
    Overloaded,
    /// The request's body didn't arrive before the deadline.
    #[strum(
        message = "Check whether the object was injected, as for `Overloaded`; then check the network between the API server and the webhook."
    )]
    BodyTimeout,
    /// The API server's deadline passed before the review was answered.
    #[strum(
        message = "Check whether the object was injected, as for `Overloaded`; the webhook's node has too little CPU."
    )]
    DeadlineExceeded,
    /// The request's body is larger than the limit.
    #[strum(message = "Find the client: requests of API servers are smaller.")]
    BodyTooLarge,
    /// The connection ended before the whole body had arrived.
    #[strum(message = "Check whether API servers time out or restart.")]
    BodyIncomplete,
}

impl Reason {
    /// Every reason, in the order of the documentation.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The reason for a finding about a trainer; `None` if admission doesn't report it.
    pub const fn of_trainer(reason: TrainerReason) -> Option<Self> {
        match reason.effect() {
            Effect::WontStart => Some(Self::TrainerWontStart),
            Effect::NeverSaves => Some(Self::TrainerNeverSaves),
            Effect::Restricted => Some(Self::TrainerRestricted),
            Effect::Script => Some(Self::StartScriptFault),
            Effect::Unsure | Effect::Note => None,
        }
    }

    /// Whether it is about a trainer or its start script.
    pub const fn is_of_trainer(self) -> bool {
        matches!(
            self,
            Self::TrainerWontStart
                | Self::TrainerNeverSaves
                | Self::TrainerRestricted
                | Self::StartScriptFault
        )
    }

    /// Whether a message with this reason requires no action.
    pub const fn is_note(self) -> bool {
        matches!(
            self,
            Self::HostNetworkNotRankZero
                | Self::StrategyNormalised
                | Self::PreloadFromOtherPath
                | Self::TemplateWithoutNpu
                | Self::MirrorPod
                | Self::OnePod
        )
    }
}
