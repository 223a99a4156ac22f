//! An API server in memory with what the crate relies on: resource versions, 409 on both kinds of conflict, JSON patch
//! with `test`, 404. Failures can be ordered.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Barrier;

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

    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.serve(request).await) }
        });
        Client::new(service, "swansong")
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }

    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.0.lock().unwrap();
        stamp(&mut state, &mut object);
        state.objects.insert(path.to_owned(), object);
    }

    pub(crate) fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(path).unwrap();
        change(&mut object);
        self.put(path, object);
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
        Response::builder()
            .status(code)
            .header("content-type", "application/json")
            .body(Body::from(serde_json::to_vec(&answer).unwrap()))
            .unwrap()
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
