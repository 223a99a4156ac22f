//! An API server with ConfigMaps, which lists and watches them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use serde_json::{Value, json};
use swansong_agent::api::{ApiServer, Timing};
use swansong_runtime::backoff::Limits;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What there is; each change is a new version.
#[derive(Clone)]
pub(crate) struct Fake(Arc<watch::Sender<Store>>);

#[derive(Default)]
struct Store {
    version: u64,
    maps: Vec<Value>,
}

impl Store {
    fn get(&self, name: &str) -> Option<Value> {
        self.maps.iter().find(|map| map["metadata"]["name"] == *name).cloned()
    }
}

impl Fake {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Store::default())))
    }

    /// Makes or replaces a ConfigMap; `None` deletes it.
    pub(crate) fn put(&self, name: &str, data: Option<Value>) {
        self.0.send_modify(|store| {
            store.version += 1;
            store.maps.retain(|map| map["metadata"]["name"] != name);
            store.maps.extend(data.map(|data| json!({"metadata": {"name": name}, "data": data})));
        });
    }

    pub(crate) async fn serve(&self) -> (Arc<ApiServer>, Arc<Timing>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address: SocketAddr = listener.local_addr().expect("bound");
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let config = kube::Config::new(format!("http://{address}").parse().expect("a URL"));
        let api = ApiServer::new(config, Duration::from_secs(5)).expect("a client");
        let timing = Timing {
            backoff: Limits { first: Duration::from_millis(20), max: Duration::from_secs(30) },
            ..Timing::default()
        };
        (Arc::new(api), Arc::new(timing))
    }
}

async fn answer(State(fake): State<Fake>, uri: Uri) -> Response {
    assert_eq!(uri.path(), "/api/v1/namespaces/kube-system/configmaps");
    let query = uri.query().unwrap_or_default().to_owned();
    let name = query.split('&').find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"));
    let name = name.expect("one object is asked for").to_owned();
    let mut seen = fake.0.subscribe();
    if !query.contains("watch=1") {
        let store = seen.borrow_and_update();
        let items = Vec::from_iter(store.get(&name));
        let list = json!({"metadata": {"resourceVersion": store.version.to_string()}, "items": items});
        return list.to_string().into_response();
    }
    // Everything since the list, as far as it isn't overtaken.
    let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
    let since: u64 = since.expect("a version").parse().expect("a number");
    let changes = futures::stream::unfold((seen, since), move |(mut seen, since)| {
        let name = name.clone();
        async move {
            let (version, now) = {
                let store = seen.wait_for(|store| store.version > since).await.ok()?;
                (store.version, store.get(&name))
            };
            let kind = if now.is_some() { "MODIFIED" } else { "DELETED" };
            let object = now.unwrap_or_else(|| json!({"metadata": {"name": name}}));
            let line = format!("{}\n", json!({"type": kind, "object": object}));
            Some((Ok::<_, std::io::Error>(Bytes::from(line)), (seen, version)))
        }
    });
    Body::from_stream(changes.boxed()).into_response()
}
