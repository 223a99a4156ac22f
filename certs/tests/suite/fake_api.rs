//! An API server in memory with what the crate relies on: resource versions, 409 on both kinds of conflict, JSON patch
//! with `test`, 404. Failures can be ordered.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use http::{Method, Request, Response};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::yield_now;
use tokio::time::Instant;

pub(crate) const SECRET: &str = "/api/v1/namespaces/swansong/secrets/swansong-webhook-tls";
pub(crate) const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/swansong";

type Meddler = Box<dyn FnMut(&mut HashMap<String, Value>) + Send>;

#[derive(Default)]
struct State {
    objects: HashMap<String, Value>,
    version: u64,
    log: Vec<String>,
    refusals: VecDeque<(Method, u16)>,
    meddler: Option<(Method, Meddler)>,
    meeting: Option<(usize, Arc<Barrier>)>,
    time: Option<SystemTime>,
    /// How often to give way to others before and after each request.
    pauses: VecDeque<u8>,
    /// Every version of the configuration, with when it came.
    history: Vec<(Instant, Value)>,
}

/// How many requests a client still has, and whether the one after them is carried out before it dies.
#[derive(Clone, Default)]
pub(crate) struct Life(Arc<Mutex<Option<(usize, bool)>>>);

impl Life {
    pub(crate) fn ends_after(&self, requests: usize, carried_out: bool) {
        *self.0.lock().unwrap() = Some((requests, carried_out));
    }

    fn spend(&self) -> Option<bool> {
        let mut left = self.0.lock().unwrap();
        match left.as_mut() {
            None => None,
            Some((0, carried_out)) => Some(*carried_out),
            Some((requests, _)) => {
                *requests -= 1;
                None
            }
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<State>>);

impl FakeApi {
    pub(crate) fn new() -> Self {
        let api = Self::default();
        api.put(
            CONFIGURATION,
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "swansong"},
                "webhooks": [webhook("pods.swansong.dev"), webhook("jobs.swansong.dev")],
            }),
        );
        api.0.lock().unwrap().log.clear();
        api
    }

    /// A client whose requests are never answered once its life is over.
    pub(crate) fn mortal_client(&self, life: &Life) -> Client {
        let (api, life) = (self.clone(), life.clone());
        let service = tower::service_fn(move |request| {
            let (api, life) = (api.clone(), life.clone());
            async move {
                api.pause().await;
                let ending = life.spend();
                if ending == Some(false) {
                    pending::<()>().await;
                }
                let answer = api.serve(request).await;
                if ending == Some(true) {
                    pending::<()>().await;
                }
                api.pause().await;
                Ok::<_, Infallible>(answer)
            }
        });
        Client::new(service, "swansong")
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        let mut state = self.0.lock().unwrap();
        store(&mut state, path, object);
    }

    pub(crate) fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(path).unwrap();
        change(&mut object);
        self.put(path, object);
    }

    /// Sets the clock that answers carry from now on.
    pub(crate) fn set_time(&self, time: SystemTime) {
        self.0.lock().unwrap().time = Some(time);
    }

    /// Interleaves the requests of clients that run at the same time.
    pub(crate) fn interleave(&self, pauses: &[u8]) {
        self.0.lock().unwrap().pauses.extend(pauses);
    }

    /// The versions of the configuration, with when each came.
    pub(crate) fn history(&self) -> Vec<(Instant, Value)> {
        self.0.lock().unwrap().history.clone()
    }

    async fn pause(&self) {
        let times = self.0.lock().unwrap().pauses.pop_front().unwrap_or_default();
        for _ in 0..times {
            yield_now().await;
        }
    }

    pub(crate) fn delete(&self, path: &str) {
        self.0.lock().unwrap().objects.remove(path);
    }

    /// The requests so far, as `METHOD path`.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().log)
    }

    /// Answers the next requests of this method with an error.
    pub(crate) fn refuse(&self, method: &Method, code: u16, times: usize) {
        let refusals = std::iter::repeat_n((method.clone(), code), times);
        self.0.lock().unwrap().refusals.extend(refusals);
    }

    /// Lets someone else write just before the next request of this method is served.
    pub(crate) fn meddle(
        &self,
        method: Method,
        change: impl FnMut(&mut HashMap<String, Value>) + Send + 'static,
    ) {
        self.0.lock().unwrap().meddler = Some((method, Box::new(change)));
    }

    /// Holds back the answers to the first GETs of the Secret until so many have been read.
    pub(crate) fn meet_after_reading(&self, readers: usize) {
        self.0.lock().unwrap().meeting = Some((readers, Arc::new(Barrier::new(readers))));
    }

    async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let path = parts.uri.path().to_owned();
        let (code, answer) = self.handle(&parts.method, &path, &body);
        let barrier = self.meeting(&parts.method, &path);
        if let Some(barrier) = barrier {
            barrier.wait().await;
        }
        let time = self.0.lock().unwrap().time;
        let mut response = Response::builder().status(code).header("content-type", "application/json");
        if let Some(time) = time {
            let time = Timestamp::try_from(time).unwrap();
            let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap();
            response = response.header("date", date);
        }
        response.body(Body::from(serde_json::to_vec(&answer).unwrap())).unwrap()
    }

    fn meeting(&self, method: &Method, path: &str) -> Option<Arc<Barrier>> {
        let mut state = self.0.lock().unwrap();
        let (left, barrier) = state.meeting.as_mut()?;
        if *left == 0 || method != Method::GET || path != SECRET {
            return None;
        }
        *left -= 1;
        Some(Arc::clone(barrier))
    }

    fn handle(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let mut state = self.0.lock().unwrap();
        state.log.push(format!("{method} {path}"));
        if state.refusals.front().is_some_and(|(refused, _)| refused == method) {
            let (_, code) = state.refusals.pop_front().unwrap();
            return refusal(code);
        }
        if state.meddler.as_ref().is_some_and(|(awaited, _)| awaited == method) {
            let (_, mut change) = state.meddler.take().unwrap();
            change(&mut state.objects);
        }
        match *method {
            Method::GET => {
                state.objects.get(path).map_or_else(|| refusal(404), |object| (200, object.clone()))
            }
            Method::POST => {
                let object: Value = serde_json::from_slice(body).unwrap();
                let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
                if state.objects.contains_key(&path) {
                    refusal(409)
                } else {
                    store(&mut state, &path, object)
                }
            }
            Method::PUT => {
                let object: Value = serde_json::from_slice(body).unwrap();
                match state.objects.get(path) {
                    None => refusal(404),
                    Some(old) if version(old) != version(&object) => refusal(409),
                    Some(_) => store(&mut state, path, object),
                }
            }
            Method::PATCH => {
                let changes: json_patch::Patch = serde_json::from_slice(body).unwrap();
                let Some(mut object) = state.objects.get(path).cloned() else { return refusal(404) };
                if json_patch::patch(&mut object, &changes).is_err() {
                    return refusal(422);
                }
                store(&mut state, path, object)
            }
            _ => refusal(405),
        }
    }
}

fn webhook(name: &str) -> Value {
    json!({
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"name": "swansong", "namespace": "swansong"}},
        "fieldOfTheFuture": {"kept": true},
    })
}

fn version(object: &Value) -> &Value {
    &object["metadata"]["resourceVersion"]
}

fn stamp(state: &mut State, object: &mut Value) {
    state.version += 1;
    object["metadata"]["resourceVersion"] = json!(state.version.to_string());
}

fn store(state: &mut State, path: &str, mut object: Value) -> (u16, Value) {
    stamp(state, &mut object);
    state.objects.insert(path.to_owned(), object.clone());
    if path == CONFIGURATION {
        state.history.push((Instant::now(), object.clone()));
    }
    (200, object)
}

fn refusal(code: u16) -> (u16, Value) {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
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
