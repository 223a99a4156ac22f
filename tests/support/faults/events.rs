//! What Events tell of a fault; for the tests on real clusters.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use swansong_testcluster::eventually;

/// For what is told soon and may be late on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until all of `reasons` are among those of the Events about an object.
pub(crate) async fn tells(client: &Client, namespace: &str, kind: &str, name: &str, reasons: &[&str]) {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about =
        ListParams::default().fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
    eventually(&format!("{kind} {name} tells {reasons:?}"), PATIENCE, || async {
        let events = events.list(&about).await.map_err(|error| error.to_string())?;
        let told: Vec<String> = events.items.into_iter().filter_map(|event| event.reason).collect();
        let all = reasons.iter().all(|reason| told.iter().any(|one| one == reason));
        if all { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
    .unwrap();
}
