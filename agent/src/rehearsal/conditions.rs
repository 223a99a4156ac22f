//! Under which conditions a fault may be sent to rehearse.

use swansong_api::annotations::RECOVER_STRATEGY;
use swansong_clusterd::customization::{FILE, FOLDER, customize};
use swansong_clusterd::{Class, RESOURCE};
use swansong_fault_model::Subject;
use swansong_faults::{Cluster, NpuPod};

use crate::finding::Status;
use crate::node::PodObject;

/// The Pods whose job asks for a dump. The error says which job can't be read.
pub(super) async fn dumping(
    cluster: &Cluster,
    pods: &[PodObject],
    npu_pods: &[NpuPod],
) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for pod in npu_pods {
        let (name, uid) = (pod.reference.to_string(), pod.reference.uid.as_str());
        let object = pods.iter().find(|object| object.metadata.uid.as_deref() == Some(uid));
        let annotations = object.and_then(|object| object.metadata.annotations.as_ref());
        let mut strategy = annotations.and_then(|all| all.get(RECOVER_STRATEGY)).cloned();
        if pod.reference.group.is_some() {
            let group = cluster.pod_group(&pod.reference).await;
            let group = group.map_err(|error| format!("the PodGroup of {name} can't be read: {error}"))?;
            strategy = group.and_then(|group| group.strategy).or(strategy);
        }
        if strategy.is_some_and(|strategy| asks_for_dump(&strategy)) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Whether a strategy names a dump, even one that ClusterD doesn't read for the blanks around it.
fn asks_for_dump(strategy: &str) -> bool {
    strategy.split(',').any(|token| token.trim() == "dump")
}

/// Whether the jobs on the node allow a rehearsal.
pub(super) fn jobs(dumping: Result<Vec<String>, String>, force: bool) -> (Status, String) {
    let advice = "rehearse on another node or later, or use --force";
    match dumping {
        Ok(pods) if pods.is_empty() => {
            (Status::Pass, "no Pod of a job that asks for a dump runs here".to_owned())
        }
        Ok(pods) => {
            let pods = format!("jobs that ask for a dump run here: {}", pods.join(", "));
            if force { (Status::Pass, pods) } else { (Status::Unknown, format!("{pods}; {advice}")) }
        }
        Err(problem) if force => (Status::Pass, problem),
        Err(problem) => (Status::Unknown, format!("{problem}; {advice}")),
    }
}

/// The highest device id that no Pod holds. Nodes have fewer devices than ClusterD accepts ids, so it is seldom that of a
/// device at all.
pub(super) fn free_device(pods: &[NpuPod]) -> Option<u32> {
    (0..32).rev().find(|&id| !pods.iter().any(|pod| pod.uses(Subject::Npu(id))))
}

/// Whether the code of the fault is registered as one on which ClusterD doesn't act. `file` is `publicCustomization.json`, if
/// this host has it.
pub(super) fn registration(file: Option<String>) -> (Status, String) {
    let (code, path) = (Class::Notice.code(), format!("{FOLDER}/{FILE}"));
    let install = "install the file that `swansong clusterd-config` writes";
    let Some(text) = file else {
        return (Status::Pass, format!("{path} isn't on this host: ClusterD's answer will show it"));
    };
    let problem = match customize(&text) {
        Err(invalid) => format!("{path}: {invalid}"),
        Ok(found) => match found.in_other_list.iter().find(|(class, _)| *class == Class::Notice) {
            Some((_, list)) => format!("{path} has {code} in {list}, so ClusterD may act on it"),
            None if found.added.contains(&Class::Notice) => format!("{path} doesn't have the code {code}"),
            None if found.resource_added => format!("{path} doesn't have the sender {RESOURCE}"),
            None => return (Status::Pass, format!("{path} has {code} in {}", Class::Notice.list())),
        },
    };
    (Status::Fail, format!("{problem}; {install}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use swansong_clusterd::customization::BUILT_IN;

    use super::*;

    fn pod(devices: &str) -> NpuPod {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "ml", "uid": "u", "annotations": {"huawei.com/AscendReal": devices}},
            "status": {"phase": "Running"},
        });
        let pod: PodObject = serde_json::from_value(pod).expect("a Pod");
        pod.npu_pod().expect("it uses NPUs")
    }

    #[test]
    fn device_of_a_pod_is_never_chosen() {
        assert_eq!(free_device(&[]), Some(31));
        assert_eq!(free_device(&[pod("Ascend910-31,Ascend910-0"), pod("Ascend910-30")]), Some(29));
        let all: Vec<_> = (0..32).map(|id| pod(&format!("Ascend910-{id}"))).collect();
        assert_eq!(free_device(&all), None);
    }

    #[test]
    fn job_that_asks_for_a_dump_refuses_unless_forced() {
        let dumping = || Ok(vec!["ml/a".to_owned()]);
        assert_eq!(jobs(Ok(Vec::new()), false).0, Status::Pass);
        let (status, message) = jobs(dumping(), false);
        assert!(status == Status::Unknown && message.contains("ml/a") && message.contains("--force"));
        assert_eq!(jobs(dumping(), true).0, Status::Pass);
        assert_eq!(jobs(Err("forbidden".to_owned()), false).0, Status::Unknown);
        assert!(asks_for_dump("recover, dump") && !asks_for_dump("recover,dumps"));
    }

    #[test]
    fn code_that_is_not_registered_as_harmless_is_refused() {
        let ours = customize(BUILT_IN).expect("valid").text;
        let code = Class::Notice.code();
        let status = |text: String| registration(Some(text));
        assert_eq!(status(ours.clone()).0, Status::Pass);
        assert_eq!(registration(None).0, Status::Pass);
        for (text, problem) in [
            (BUILT_IN.to_owned(), "doesn't have the code"),
            (ours.replace("\"swansong\"", "\"other\""), "doesn't have the sender"),
            (ours.replace("\"220001001\"", &format!("\"220001001\", \"{code}\"")), "in SeparateNPUCodes"),
            ("{".to_owned(), "line 1"),
        ] {
            let (status, message) = status(text);
            assert!(status == Status::Fail && message.contains(problem), "{message}");
            assert!(message.contains("clusterd-config"), "{message}");
        }
    }
}
