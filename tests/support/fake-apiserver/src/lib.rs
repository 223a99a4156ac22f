//! An API server in memory, behind a [`kube::Client`] without a network.
//!
//! It stores any object by its path and implements what clients rely on: resource versions, 409 on conflicts, 404, JSON
//! and merge patches, lists and watches. Tests can make requests fail, hold them back, or write before one is served.
//! It validates nothing and ignores label selectors; field selectors work for `metadata.name`.

mod control;
mod store;
mod watch;

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::control::Control;
pub use self::control::Lifetime;
use self::store::Store;

type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// The server. Clones share their state.
#[derive(Clone, Default)]
pub struct FakeApiServer {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    store: Store,
    control: Control,
    requests: Vec<String>,
}

impl FakeApiServer {
    /// Creates a server without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a client with this default namespace.
    pub fn client(&self, namespace: &str) -> Client {
        self.client_with_lifetime(namespace, &Lifetime::default())
    }

    /// Returns a client whose requests are no longer answered once its lifetime has ended.
    pub fn client_with_lifetime(&self, namespace: &str, lifetime: &Lifetime) -> Client {
        let (server, lifetime) = (self.clone(), lifetime.clone());
        let service = tower::service_fn(move |request| {
            let (server, lifetime) = (server.clone(), lifetime.clone());
            async move {
                server.pause().await;
                let ends = lifetime.count_request();
                if ends == Some(false) {
                    pending::<()>().await;
                }
                let response = server.serve(request).await;
                if ends == Some(true) {
                    pending::<()>().await;
                }
                server.pause().await;
                Ok::<_, Infallible>(response)
            }
        });
        Client::new(service, namespace)
    }

    /// Returns an object by its path, as `/api/v1/namespaces/default/pods/a`.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.state().store.get(path)
    }

    /// Creates or replaces an object.
    pub fn put(&self, path: &str, object: Value) {
        self.state().store.put(path, object);
        self.changed.notify_waiters();
    }

    /// Changes an existing object.
    ///
    /// # Panics
    ///
    /// If there is no such object.
    pub fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(path).expect("an object at this path");
        change(&mut object);
        self.put(path, object);
    }

    /// Deletes an object.
    pub fn delete(&self, path: &str) {
        self.state().store.delete(path);
        self.changed.notify_waiters();
    }

    /// Returns every version of an object with the time of its write; `None` for a deletion.
    pub fn history(&self, path: &str) -> Vec<(Instant, Option<Value>)> {
        self.state().store.history(path)
    }

    /// Returns the requests since the last call, as `METHOD path`.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state().requests)
    }

    async fn serve(&self, request: Request<Body>) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap_or_default();
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
        let (failure, write) = {
            let mut state = self.state();
            state.requests.push(format!("{} {path}", parts.method));
            match state.control.take_failure(&parts.method, &path) {
                Some(code) => (Some(code), None),
                None => (None, state.control.take_write(&parts.method)),
            }
        };
        if let Some(write) = write {
            write(self);
        }
        let watches = parts.method == Method::GET
            && query.split('&').any(|part| part == "watch=true" || part == "watch=1");
        let (code, body) = match failure {
            Some(code) => json_body(failure_status(code)),
            None if watches => (200, watch::events(self, &path, &query)),
            None => {
                let content_type = parts.headers.get("content-type").and_then(|value| value.to_str().ok());
                let answer = self.state().store.serve(
                    &parts.method,
                    &path,
                    &query,
                    content_type.unwrap_or_default(),
                    &body,
                );
                self.changed.notify_waiters();
                json_body(answer)
            }
        };
        let barrier = self.state().control.take_barrier(&parts.method, &path);
        if let Some(barrier) = barrier {
            barrier.wait().await;
        }
        let mut response = Response::builder().status(code).header("content-type", "application/json");
        if let Some(date) = self.state().control.time.and_then(http_date) {
            response = response.header("date", date);
        }
        response.body(body).expect("a valid response")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn json_body((code, object): (u16, Value)) -> (u16, ResponseBody) {
    (code, ResponseBody::new(Full::new(Bytes::from(object.to_string()))))
}

fn http_date(time: SystemTime) -> Option<String> {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::try_from(time).ok()?).ok()
}

fn failure_status(code: u16) -> (u16, Value) {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        _ => "InternalError",
    };
    let message = format!("refused with {code}");
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    (code, status)
}

#[cfg(test)]
mod tests;
