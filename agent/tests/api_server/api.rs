//! A fake API server with one Node and programmable failures.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A failure of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trouble {
    Code(u16),
    RetryAfter(u64),
    /// The request gets no response.
    Silence,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) node: Option<Value>,
    pub(crate) version: u64,
    /// For the next writes, in this order.
    pub(crate) troubles: VecDeque<Trouble>,
    pub(crate) writes: Vec<(Instant, Method, String, u16)>,
    pub(crate) lists: usize,
    watches: usize,
    pub(crate) events: Vec<Value>,
}

#[derive(Debug, Clone)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<Inner>>);

impl Fake {
    pub(crate) fn new() -> Self {
        let node = json!({"kind": "Node", "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}});
        Self(Arc::new(Mutex::new(Inner {
            node: Some(node),
            version: 1,
            troubles: VecDeque::new(),
            writes: Vec::new(),
            lists: 0,
            watches: 0,
            events: Vec::new(),
        })))
    }

    pub(crate) fn with<T>(&self, access: impl FnOnce(&mut Inner) -> T) -> T {
        access(&mut self.0.lock().expect("not poisoned"))
    }

    /// Serves on this address, port 0 for any.
    pub(crate) async fn serve(&self, address: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind(address).await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    pub(crate) fn condition(&self) -> Option<Value> {
        self.with(|inner| inner.node.as_ref()?["status"]["conditions"].as_array()?.first().cloned())
    }

    pub(crate) fn status(&self) -> Option<String> {
        Some(self.condition()?["status"].as_str()?.to_owned())
    }
}

async fn answer(State(fake): State<Fake>, method: Method, uri: Uri, body: Bytes) -> Response {
    if method == Method::GET {
        return read(&fake, &uri);
    }
    let trouble = fake.with(|inner| inner.troubles.pop_front());
    let note = |code: u16| {
        let path = uri.path().to_owned();
        fake.with(|inner| inner.writes.push((Instant::now(), method.clone(), path, code)));
    };
    match trouble {
        Some(Trouble::Silence) => {
            note(0);
            std::future::pending().await
        }
        Some(Trouble::Code(code)) => {
            note(code);
            refuse(StatusCode::from_u16(code).expect("a code"))
        }
        Some(Trouble::RetryAfter(seconds)) => {
            note(429);
            ([("retry-after", seconds.to_string())], refuse(StatusCode::TOO_MANY_REQUESTS)).into_response()
        }
        None => {
            note(200);
            write(&fake, &uri, &body)
        }
    }
}

fn refuse(code: StatusCode) -> Response {
    (code, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "refused", "reason": "Test", "code": code.as_u16()}).to_string()).into_response()
}

fn read(fake: &Fake, uri: &Uri) -> Response {
    let query = uri.query().unwrap_or_default();
    if query.contains("watch=true") {
        return watch(fake, uri);
    }
    fake.with(|inner| {
        inner.lists += 1;
        let items: Vec<&Value> =
            if uri.path() == "/api/v1/nodes" { inner.node.iter().collect() } else { Vec::new() };
        json!({"metadata": {"resourceVersion": inner.version.to_string()}, "items": items})
            .to_string()
            .into_response()
    })
}

/// The first watch sends nothing. A later one starts with the Node if that is newer than the given version.
fn watch(fake: &Fake, uri: &Uri) -> Response {
    let since =
        uri.query().unwrap_or_default().split('&').find_map(|part| part.strip_prefix("resourceVersion="));
    let since: u64 = since.and_then(|version| version.parse().ok()).expect("a version");
    let node = fake.with(|inner| {
        inner.watches += 1;
        let is_due = inner.watches > 2 && inner.version > since && uri.path() == "/api/v1/nodes";
        inner.node.clone().filter(|_| is_due)
    });
    let line = node.map(|node| format!("{}\n", json!({"type": "MODIFIED", "object": node})));
    let lines = futures::stream::iter(line.map(|line| Ok::<_, std::io::Error>(Bytes::from(line))));
    // The stream stays open.
    Body::from_stream(futures::StreamExt::chain(lines, futures::stream::pending())).into_response()
}

/// Applies the parts of a patch that the agent writes.
fn write(fake: &Fake, uri: &Uri, body: &[u8]) -> Response {
    let patch: Value = serde_json::from_slice(body).expect("JSON");
    fake.with(|inner| {
        if uri.path().contains("/events") {
            inner.events.push(patch);
            return json!({"metadata": {}, "involvedObject": {}}).to_string().into_response();
        }
        inner.version += 1;
        let Some(node) = &mut inner.node else { return refuse(StatusCode::NOT_FOUND) };
        node["metadata"]["resourceVersion"] = inner.version.to_string().into();
        for part in ["labels", "annotations"] {
            if let Some(entries) = patch["metadata"][part].as_object() {
                for (key, value) in entries {
                    node["metadata"][part][key] = value.clone();
                }
            }
        }
        if !patch["status"]["conditions"].is_null() {
            node["status"]["conditions"] = patch["status"]["conditions"].clone();
        }
        if !patch["spec"]["taints"].is_null() {
            node["spec"]["taints"] = patch["spec"]["taints"].clone();
        }
        node.to_string().into_response()
    })
}

/// Polls until `holds`.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: never");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
