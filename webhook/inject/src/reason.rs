//! The one vocabulary of skips and findings.
//!
//! The same names appear in `explain`, admission warnings, audit annotations, events, logs and metric
//! labels, so that a word seen in one place can be searched for in all others.

use serde::{Serialize, Serializer};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why something was added, kept, skipped or warned about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)+ }

        impl Reason {
            /// Every reason, in the order of documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The CamelCase name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// One sentence of explanation.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

reasons! {
    /// It was missing, and the dying checkpoint needs it.
    Required,
    /// It is as it must be.
    AlreadyPresent,
    /// The user has a value of their own, which is kept.
    UserValueKept,
    /// Our libraries were joined with the user's own preloads.
    PreloadMerged,
    /// `swansong.dev/skip-preload` names the container.
    PreloadOptedOut,
    /// The user's LD_PRELOAD comes from a valueFrom: it was renamed and is referred to.
    PreloadValueFromReferenced,
    /// The user's LD_PRELOAD comes from a valueFrom and the configuration says to leave such alone.
    PreloadValueFromSkipped,
    /// The container has envFrom: an LD_PRELOAD in there is hidden by the explicit one.
    PreloadMayHideEnvFrom,
    /// TTP_PORT isn't 8000, which MindSpeed-LLM has built in.
    TtpPortNotDefault,
    /// TTP_PORT isn't a plain number, so the port to declare can't be known.
    TtpPortUnknown,
    /// TASKD_PROCESS_ENABLE is off: TaskD takes no part in recovery.
    TaskdDisabled,
    /// POD_IP is empty: the TaskD Manager would listen on 127.0.0.1 only.
    PodIpEmpty,
    /// LOCAL_PROXY_ENABLE is on (hardened set-up): addresses stay as they are.
    LocalProxy,
    /// The port is declared under another name.
    PortNameDiffers,
    /// The port's name already belongs to another port of the container.
    PortNameTaken,
    /// Under hostNetwork only rank 0 declares the ports, since it is the one that listens.
    HostNetworkNotRankZero,
    /// Under hostNetwork another container of the pod declares the port already.
    HostNetworkPortTaken,
    /// Under hostNetwork the declared ports keep the pods of a template from sharing a node.
    HostNetworkSeveralPods,
    /// The configuration asks for nodes that are able to save a dying job (nodeReadiness).
    NodeReadiness,
    /// The pod names its node (spec.nodeName), so no affinity has a say in it.
    NodeAlreadyChosen,
    /// The required node affinity has no term that could match a node, so a requirement more changes nothing.
    NodeSelectorMatchesNothing,
    /// The pod requires a node that is able to save a dying job, and at last look there was none that takes pods.
    NoNodeReady,
    /// The pod requires a node that is able to save a dying job, and whether there is one isn't known.
    NodesUnknown,
    /// No template could be told to be rank 0.
    NoRankZero,
    /// The strategy was copied from the job, since ascend-operator doesn't copy job annotations to pods.
    StrategyCopied,
    /// A Swansong option was copied from the job to the template, where it is read.
    OptionCopied,
    /// The strategy list was rewritten without blanks, since MindCluster drops padded tokens.
    StrategyNormalised,
    /// The strategy list holds padded tokens, which MindCluster drops.
    StrategyPadded,
    /// The strategy list holds a token that MindCluster doesn't know.
    StrategyUnknownToken,
    /// The strategy stands on the template only, where MindCluster doesn't read it.
    StrategyOnTemplateOnly,
    /// The template's strategy differs from the job's, which is the one MindCluster reads.
    StrategyDiffers,
    /// MindCluster doesn't see the strategy of this kind of workload.
    StrategyNotPropagated,
    /// Nobody injects ascend-operator's environment into Volcano Jobs.
    VolcanoNoOperatorEnv,
    /// Label process-recover-enable isn't on: ClusterD answers 403.
    ProcessRecoverOff,
    /// An annotation names a container that the pod doesn't have.
    UnknownContainer,
    /// An annotation names an ordinary init container, which is never touched.
    InitContainer,
    /// A Swansong annotation has a value that can't be used.
    OptionInvalid,
    /// The annotation swansong.dev/injected can't be read and was replaced.
    RecordUnreadable,
    /// The object doesn't say its kind.
    KindMissing,
    /// Not a kind that Swansong changes.
    KindNotHandled,
    /// Neither a recover-strategy nor an operator's marker asks for it.
    NoStrategy,
    /// The recover-strategy doesn't hold a triggering token.
    StrategyWithoutDump,
    /// `swansong.dev/inject: "false"`.
    OptedOut,
    /// A Windows pod.
    Windows,
    /// No container could be chosen without guessing.
    NoContainerChosen,
    /// The workload has no pod template.
    NoTemplate,
    /// More would have to be added than an object can hold.
    TooManyChanges,
    /// The object can't be read.
    ObjectInvalid,
    /// The request isn't a CREATE.
    NotCreate,
    /// The request is for a subresource.
    Subresource,
    /// The request carries no object.
    NoObject,
    /// The webhook failed by its own fault.
    InternalError,
    /// There was no room for the review in time.
    Overloaded,
    /// The review took too long to arrive.
    BodyTooSlow,
    /// The API server waited no longer when the review could be answered.
    AnsweredTooLate,
    /// The review is larger than what is read.
    BodyTooLarge,
    /// The connection ended before the whole review was there.
    BodyBroken,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
