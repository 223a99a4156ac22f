//! Runs the TaskD Manager as a native sidecar of rank 0's Pod.
//!
//! It is a copy of the training container with another command. Only Pods get it: the schema of AscendJobs doesn't have
//! `restartPolicy` of init containers, and the variables of ascend-operator are on Pods only.

use serde_json::{Map, Value, json};
use swansong_api::pod::{LIBRARIES, LIBRARIES_FOLDER, MANAGER};

use crate::additions::{DEFAULT_GRACE_PERIOD, PodAdditions};
use crate::context::Rank;
use crate::discovery::own_mounts;
use crate::kind::WorkloadKind;
use crate::operation::Operation;
use crate::options::Options;
use crate::policy::{ManagerPolicy, NativeSidecars};
use crate::reason::Reason;
use crate::report::{Action, Warning};
use crate::source::Source;
use crate::view::PodSpec;

/// The program of the sidecar, which `swansong manager-py` prints.
pub const PROGRAM: &str = include_str!("manager.py");

/// Finds a Python for it.
const START: &str = include_str!("start-manager.sh");

/// Name of the field in reports.
const FIELD: &str = "manager";

/// From the end of the longest save to the end of the Manager, in seconds: it reports the result, and waits until no
/// processor is connected.
const GRACE_MARGIN: i64 = 60;

/// What a Manager of a Pod with no guaranteed resources requests; it uses more only while the launchers connect.
const REQUESTS: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "256Mi")];

/// The Manager of one template.
pub(crate) struct Manager<'t> {
    pub(crate) policy: &'t ManagerPolicy,
    pub(crate) kind: WorkloadKind,
    pub(crate) rank: Rank,
    pub(crate) spec: &'t PodSpec<'t>,
    /// JSON pointer of the template.
    pub(crate) path: &'t str,
    /// The longest time that a save may take, in seconds.
    pub(crate) longest_save: u16,
}

/// What is said of the Manager of a template.
pub(crate) struct ManagerReport {
    pub(crate) action: Action,
    pub(crate) warning: Option<(Reason, String)>,
}

impl Manager<'_> {
    /// Adds the sidecar, a copy of the training container at `pointer` after `operations`; `None` if nothing asks for it.
    pub(crate) fn add(
        &self,
        options: &Options<'_>,
        pointer: &str,
        source: &Source<'_>,
        operations: &[Operation],
        additions: &mut PodAdditions,
    ) -> Option<ManagerReport> {
        if !options.manager_sidecar.unwrap_or(self.policy.sidecar) || self.rank == Rank::Other {
            return None;
        }
        let refused = |reason, warning| {
            Some(ManagerReport { action: Action::skipped(FIELD, reason), warning: Some((reason, warning)) })
        };
        let mut all = self.spec.containers.items().iter().chain(self.spec.init_containers.items());
        if let Some(present) = all.find(|container| container.name() == MANAGER) {
            if !present.is_sidecar() {
                let message = format!("a container of yours is called {MANAGER}; rename it");
                return refused(Reason::ManagerNameTaken, message);
            }
            let action = Action::kept(FIELD, None, Reason::AlreadyPresent);
            return Some(ManagerReport { action, warning: None });
        }
        if self.kind != WorkloadKind::Pod {
            return Some(ManagerReport {
                action: Action::skipped(FIELD, Reason::ManagerAddedToPods),
                warning: None,
            });
        }
        if self.policy.native_sidecars != NativeSidecars::Supported {
            let why = if self.policy.native_sidecars == NativeSidecars::Unknown {
                "the version of Kubernetes isn't known"
            } else {
                "Kubernetes is older than 1.29"
            };
            let message = format!(
                "no sidecar for the TaskD Manager, since {why}: start it in the start script, as `swansong manager-py` prints it"
            );
            return refused(Reason::NativeSidecarsMissing, message);
        }
        if self.rank != Rank::Zero {
            let message = "no sidecar for the TaskD Manager: the Pod doesn't show whether it has rank 0. Set RANK, or start \
                           the Manager in the start script"
                .to_owned();
            return refused(Reason::ManagerRankUnknown, message);
        }
        additions.manager = Some(self.sidecar(pointer, source, operations, additions));
        let needed = i64::from(self.longest_save) + GRACE_MARGIN;
        let present = self.spec.termination_grace.present().copied().unwrap_or(DEFAULT_GRACE_PERIOD);
        if present < needed {
            additions.grace_period = Some(needed);
        }
        let value = format!("sidecar, terminationGracePeriodSeconds {}", present.max(needed));
        let action = Action { reason: Reason::ManagerSidecar, ..Action::added(FIELD, value) };
        Some(ManagerReport { action, warning: None })
    }

    fn sidecar(
        &self,
        pointer: &str,
        source: &Source<'_>,
        operations: &[Operation],
        additions: &PodAdditions,
    ) -> Value {
        let mut model = source.object(pointer);
        let mut mounts = own_mounts(&model);
        let has_links = additions.finder.is_some()
            || self.spec.init_containers.items().iter().any(|container| container.name() == LIBRARIES);
        if has_links {
            mounts.push(json!({"name": LIBRARIES, "mountPath": LIBRARIES_FOLDER}));
        }
        let start = START.replace("OUT", LIBRARIES_FOLDER);
        let mut sidecar = Map::new();
        sidecar.insert("name".to_owned(), json!(MANAGER));
        sidecar.insert("restartPolicy".to_owned(), json!("Always"));
        sidecar.insert("command".to_owned(), json!(["/bin/sh", "-c", start, MANAGER, PROGRAM]));
        for key in ["image", "imagePullPolicy", "workingDir", "securityContext", "envFrom"] {
            sidecar.extend(model.remove_entry(key).filter(|(_, value)| !value.is_null()));
        }
        let env = source.env(pointer, operations);
        if !env.is_empty() {
            sidecar.insert("env".to_owned(), Value::Array(env));
        }
        if !mounts.is_empty() {
            sidecar.insert("volumeMounts".to_owned(), Value::Array(mounts));
        }
        // The API server refuses a Pod whose containers request more than the Pod itself.
        if source.object(&format!("{}/spec/resources", self.path)).is_empty() {
            sidecar.insert("resources".to_owned(), self.resources(model.get("resources")));
        }
        Value::Object(sidecar)
    }

    /// Limits, and requests that leave the Pod's quality of service as it is.
    fn resources(&self, of_container: Option<&Value>) -> Value {
        let limits = json!({"cpu": self.policy.cpu, "memory": self.policy.memory});
        if of_container.is_some_and(is_guaranteed) {
            json!({"limits": limits, "requests": limits})
        } else {
            json!({"limits": limits, "requests": REQUESTS.into_iter().collect::<std::collections::BTreeMap<_, _>>()})
        }
    }
}

/// Whether a container requests all of its limits of processor and memory.
fn is_guaranteed(resources: &Value) -> bool {
    ["cpu", "memory"].iter().all(|name| {
        let (limit, request) = (&resources["limits"][name], &resources["requests"][name]);
        !limit.is_null() && (request.is_null() || request == limit)
    })
}

/// The warnings, with the prefix of the template's messages.
pub(crate) fn warning(prefix: &str, report: &ManagerReport) -> Option<Warning> {
    let (reason, message) = report.warning.as_ref()?;
    Some(Warning { reason: *reason, message: format!("{prefix}{message}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_no_reference_that_the_kubelet_expands() {
        for text in [START, PROGRAM] {
            assert!(!text.contains("$(") && !text.contains("$$"));
        }
        assert!(PROGRAM.len() + START.len() < 10 << 10, "{}", PROGRAM.len() + START.len());
    }
}
