//! An API server with ConfigMaps, which lists and watches them.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use kube::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The ConfigMaps; each change is a new version.
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

    /// A client of this API server, which it serves on a free port.
    pub(crate) async fn serve(&self) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address: SocketAddr = listener.local_addr().expect("bound");
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        // Only a second installation can fail.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = kube::Config::new(format!("http://{address}").parse().expect("a URL"));
        Client::try_from(config).expect("a client")
    }
}

async fn answer(State(fake): State<Fake>, uri: Uri) -> Response {
    assert_eq!(uri.path(), "/api/v1/namespaces/kube-system/configmaps");
    let query = uri.query().unwrap_or_default().to_owned();
    let name = query.split('&').find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"));
    let name = name.expect("one object is asked for").to_owned();
    let mut changes = fake.0.subscribe();
    if !query.contains("watch=true") {
        let store = changes.borrow_and_update();
        let items = Vec::from_iter(store.get(&name));
        let list = json!({"metadata": {"resourceVersion": store.version.to_string()}, "items": items});
        return list.to_string().into_response();
    }
    // The newest change since the list.
    let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
    let since: u64 = since.expect("a version").parse().expect("a number");
    let changes = futures::stream::unfold((changes, since), move |(mut changes, since)| {
        let name = name.clone();
        async move {
            let (version, now) = {
                let store = changes.wait_for(|store| store.version > since).await.ok()?;
                (store.version, store.get(&name))
            };
            let kind = if now.is_some() { "MODIFIED" } else { "DELETED" };
            let object = now.unwrap_or_else(|| json!({"metadata": {"name": name}}));
            let line = format!("{}\n", json!({"type": kind, "object": object}));
            Some((Ok::<_, std::io::Error>(Bytes::from(line)), (changes, version)))
        }
    });
    Body::from_stream(changes.boxed()).into_response()
}
