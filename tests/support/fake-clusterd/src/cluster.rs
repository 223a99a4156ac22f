//! Reads and writes ClusterD's ConfigMaps on a real API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::json;
use swansong_clusterd::{config_map, statistic};

use crate::route::Route;
use crate::server::FakeClusterd;

/// ClusterD's interval of updates of `statistic-fault-info`.
const TICK: Duration = Duration::from_secs(1);

/// Keeps `statistic-fault-info` up to date and reads ConfigMaps with public faults.
pub async fn run(client: Client, clusterd: Arc<FakeClusterd>) {
    tokio::join!(write(client.clone(), &clusterd), read(client, &clusterd));
}

async fn write(client: Client, clusterd: &FakeClusterd) {
    let api: Api<ConfigMap> = Api::namespaced(client, statistic::NAMESPACE);
    let mut written = None;
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        let data = clusterd.with(|core, _| core.statistic());
        // Without a fault there is no ConfigMap.
        let nothing = data.get(statistic::FAULTS).is_none_or(|faults| faults == "{}");
        if written.as_ref() == Some(&data) || (nothing && written.is_none()) {
            continue;
        }
        match apply(&api, &data).await {
            Ok(()) => written = Some(data),
            Err(error) => eprintln!("{} can't be written: {error}", statistic::NAME),
        }
    }
}

async fn apply(api: &Api<ConfigMap>, data: &BTreeMap<String, String>) -> kube::Result<()> {
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": statistic::NAME, "labels": {"mc-statistic-fault": "true"}},
        "data": data,
    });
    let mut parameters = PatchParams::apply("clusterd");
    parameters.force = true;
    api.patch(statistic::NAME, &parameters, &Patch::Apply(map)).await.map(drop)
}

async fn read(client: Client, clusterd: &FakeClusterd) {
    let (label, value) = config_map::LABEL;
    let selector = watcher::Config::default().labels(&format!("{label}={value}"));
    let events = watcher::watcher(Api::<ConfigMap>::all(client), selector);
    pin_mut!(events);
    let mut route = Route::default();
    let mut started = false;
    while let Some(event) = events.next().await {
        let (map, exists) = match event {
            Ok(Event::InitApply(map)) => (map, !started),
            Ok(Event::Apply(map)) => (map, false),
            Ok(Event::Delete(map)) => {
                route.deleted(&name(&map));
                continue;
            }
            Ok(Event::InitDone) => {
                started = true;
                continue;
            }
            Ok(Event::Init) => continue,
            Err(error) => {
                eprintln!("the watch of ConfigMaps: {error}");
                continue;
            }
        };
        let content = map.data.as_ref().and_then(|data| data.get(config_map::KEY)).cloned();
        let content = content.unwrap_or_default();
        if exists {
            route.existing(&name(&map), &content);
        } else if let Some(message) = route.applied(&name(&map), &content) {
            clusterd.with(|core, now| core.send_public_fault(&message, now));
        }
    }
}

fn name(map: &ConfigMap) -> String {
    format!("{}/{}", map.namespace().unwrap_or_default(), map.name_any())
}
