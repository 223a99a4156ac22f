use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};

use crate::{Error, eventually};

/// Events are written within seconds; a busy machine needs longer.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Waits until an object has Events with all of `reasons`.
pub async fn expect_events(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
    reasons: &[&str],
) -> Result<(), Error> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about =
        ListParams::default().fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
    eventually(&format!("{kind} {name} has Events {reasons:?}"), TIMEOUT, || async {
        let events = events.list(&about).await.map_err(|error| error.to_string())?;
        let seen: Vec<String> = events.items.into_iter().filter_map(|event| event.reason).collect();
        let all = reasons.iter().all(|reason| seen.iter().any(|one| one == reason));
        if all { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
}
