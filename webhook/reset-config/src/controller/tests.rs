use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Mutex;

use futures::channel::mpsc::UnboundedReceiver;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::service_fn;

use super::*;

const GRACE_PERIOD: Duration = Duration::from_secs(10);
const ASCEND_JOBS: &str = "/apis/mindxdl.gitee.com/v1/ascendjobs";
const ASCEND_JOB: &str = "/apis/mindxdl.gitee.com/v1/namespaces/ns/ascendjobs/j";
const VOLCANO_JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/jobs";
const CONFIG_MAPS: &str = "/api/v1/configmaps";
const CREATE: &str = "POST /api/v1/namespaces/ns/configmaps";
const GET: &str = "GET /api/v1/namespaces/ns/configmaps/reset-config-j";

/// An API server in memory, on tokio's clock.
#[derive(Default)]
struct FakeApi {
    version: u64,
    objects: BTreeMap<String, Value>,
    watches: Vec<(&'static str, UnboundedSender<Bytes>)>,
    requests: Vec<(Instant, String)>,
    undefined: Vec<&'static str>,
    /// Answers to requests that start with a text, instead of the usual one.
    failures: Vec<(&'static str, Value)>,
}

type Fake = Arc<Mutex<FakeApi>>;
type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl FakeApi {
    fn with_jobs(names: &[&str]) -> Fake {
        let mut api = Self::default();
        for name in names {
            api.add_job(name);
        }
        Arc::new(Mutex::new(api))
    }

    fn add_job(&mut self, name: &str) {
        let metadata = json!({"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "annotations": {"recover-strategy": "dump"}});
        let path = format!("/apis/mindxdl.gitee.com/v1/namespaces/ns/ascendjobs/{name}");
        self.put(
            &path,
            json!({"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "metadata": metadata}),
        );
    }

    fn collection(path: &str) -> Option<&'static str> {
        [ASCEND_JOBS, VOLCANO_JOBS, CONFIG_MAPS].into_iter().find(|collection| {
            let (_, plural) = collection.rsplit_once('/').expect("a plural");
            path.contains(&format!("/{plural}/"))
        })
    }

    fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.send(path, "MODIFIED", &object);
        self.objects.insert(path.to_owned(), object);
    }

    fn delete(&mut self, path: &str) {
        self.version += 1;
        let mut object = self.objects.remove(path).expect("an object");
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.send(path, "DELETED", &object);
    }

    fn send(&mut self, path: &str, event: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({"type": event, "object": object})));
        let collection = Self::collection(path);
        self.watches.retain(|(watched, watch)| {
            Some(*watched) != collection || watch.unbounded_send(line.clone()).is_ok()
        });
    }

    /// Puts a ConfigMap of the job `j` that a user wrote.
    fn put_config_map(&mut self, data: &Value) {
        let metadata = json!({"name": "reset-config-j", "namespace": "ns", "labels": {"reset": "true"}});
        self.put(
            "/api/v1/namespaces/ns/configmaps/reset-config-j",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}),
        );
    }

    fn times(&self, request: &str) -> Vec<Instant> {
        self.requests.iter().filter(|(_, found)| found == request).map(|(at, _)| *at).collect()
    }

    fn watch(&mut self, collection: &'static str) -> UnboundedReceiver<Bytes> {
        let (sender, events) = unbounded();
        self.watches.push((collection, sender));
        events
    }

    fn list(&self, collection: &str) -> Value {
        let is_listed = |(path, _): &(&String, &Value)| Self::collection(path) == Some(collection);
        let items: Vec<_> = self.objects.iter().filter(is_listed).map(|(_, object)| object).collect();
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        is_watch: bool,
        body: &[u8],
    ) -> Result<Value, UnboundedReceiver<Bytes>> {
        let request = format!("{method} {path}");
        self.requests.push((Instant::now(), request.clone()));
        if let Some((_, status)) = self.failures.iter().find(|(start, _)| request.starts_with(start)) {
            return Ok(status.clone());
        }
        if self.undefined.contains(&path) {
            return Ok(failure(404, "the server could not find the requested resource"));
        }
        let collection = [ASCEND_JOBS, VOLCANO_JOBS, CONFIG_MAPS].into_iter().find(|known| *known == path);
        match collection {
            Some(collection) if is_watch => return Err(self.watch(collection)),
            Some(collection) => return Ok(self.list(collection)),
            None if path == "/api/v1/namespaces/ns" => {
                return Ok(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}));
            }
            None => {}
        }
        if method != Method::POST {
            return Ok(self.objects.get(path).cloned().unwrap_or_else(|| failure(404, "not found")));
        }
        let object: Value = serde_json::from_slice(body).expect("JSON");
        let path = format!("{path}/{}", object["metadata"]["name"].as_str().expect("a name"));
        if self.objects.contains_key(&path) {
            return Ok(failure(409, "already exists"));
        }
        self.put(&path, object);
        Ok(self.objects[&path].clone())
    }
}

fn failure(code: u16, message: &str) -> Value {
    let reason = if code == 404 { "NotFound" } else { "Other" };
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": message, "reason": reason})
}

fn client(api: &Fake) -> Client {
    let api = Arc::clone(api);
    let service = service_fn(move |request: Request<Body>| {
        let api = Arc::clone(&api);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            let is_watch = head.uri.query().unwrap_or_default().contains("watch=true");
            let answer = api.lock().expect("lock").answer(&head.method, head.uri.path(), is_watch, &body);
            Ok::<Answer, Infallible>(match answer {
                Ok(value) => {
                    let code =
                        value["code"].as_u64().map_or(200, |code| u16::try_from(code).expect("a code"));
                    let mut response = Response::new(Full::from(value.to_string()).boxed_unsync());
                    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
                    response
                }
                Err(events) => {
                    let frames = events.map(|line| Ok(Frame::data(line)));
                    Response::new(StreamBody::new(frames).boxed_unsync())
                }
            })
        }
    });
    Client::new(service, "default")
}

/// Starts a controller, as long as the test runs.
fn start(api: &Fake) {
    let client = client(api);
    let policy = Policy { triggers: vec!["dump".to_owned()], grace_period: GRACE_PERIOD };
    tokio::spawn(async move { run_with(client.clone(), &client, &policy, &Metrics::default()).await });
}

fn creations(api: &Fake) -> Vec<Instant> {
    api.lock().expect("lock").times(CREATE)
}

#[tokio::test(start_paused = true)]
async fn config_map_is_created_after_the_grace_period() {
    let api = FakeApi::with_jobs(&["j"]);
    let started = Instant::now();
    start(&api);
    sleep(Duration::from_mins(1)).await;
    let created = creations(&api);
    assert_eq!(created.len(), 1);
    let delay = created[0] - started;
    assert!(delay >= GRACE_PERIOD && delay < GRACE_PERIOD + Duration::from_secs(1), "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn config_map_of_the_user_takes_precedence_within_the_grace_period() {
    let api = FakeApi::with_jobs(&["j"]);
    start(&api);
    sleep(Duration::from_secs(9)).await;
    api.lock().expect("lock").put_config_map(&json!({"reset.json": "{}"}));
    sleep(Duration::from_hours(1)).await;
    assert_eq!(creations(&api), []);
}

#[tokio::test(start_paused = true)]
async fn replaced_config_map_is_left_to_the_user_and_a_deleted_one_is_created_again() {
    let api = FakeApi::with_jobs(&["j"]);
    start(&api);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(creations(&api).len(), 1);
    let path = "/api/v1/namespaces/ns/configmaps/reset-config-j";
    for _ in 0..20 {
        api.lock().expect("lock").delete(path);
        sleep(Duration::from_secs(9)).await;
        api.lock().expect("lock").put_config_map(&json!({"reset.json": "{}"}));
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(creations(&api).len(), 1);
    api.lock().expect("lock").delete(path);
    let deleted = Instant::now();
    sleep(Duration::from_mins(1)).await;
    let delay = creations(&api)[1] - deleted;
    assert!(delay >= GRACE_PERIOD && delay < GRACE_PERIOD + Duration::from_secs(2), "{delay:?}");
}

#[tokio::test(start_paused = true)]
async fn recreated_job_starts_a_new_grace_period() {
    let api = FakeApi::with_jobs(&["j"]);
    start(&api);
    sleep(Duration::from_secs(8)).await;
    {
        let mut api = api.lock().expect("lock");
        let mut job = api.objects[ASCEND_JOB].clone();
        api.delete(ASCEND_JOB);
        job["metadata"]["uid"] = json!("another");
        api.put(ASCEND_JOB, job);
    }
    let recreated = Instant::now();
    sleep(Duration::from_mins(1)).await;
    let created = creations(&api);
    assert_eq!(created.len(), 1);
    assert!(created[0] - recreated >= GRACE_PERIOD);
}

#[tokio::test(start_paused = true)]
async fn status_changes_of_a_job_cause_no_requests() {
    let api = FakeApi::with_jobs(&["j"]);
    start(&api);
    sleep(Duration::from_mins(1)).await;
    let before = api.lock().expect("lock").times(GET).len();
    for _ in 0..100 {
        let mut api = api.lock().expect("lock");
        let job = api.objects[ASCEND_JOB].clone();
        api.put(ASCEND_JOB, job);
    }
    sleep(Duration::from_mins(1)).await;
    assert_eq!(api.lock().expect("lock").times(GET).len(), before);
}

#[tokio::test(start_paused = true)]
async fn config_map_that_changes_all_the_time_is_read_once_a_second() {
    let api = FakeApi::with_jobs(&["j"]);
    start(&api);
    sleep(Duration::from_secs(30)).await;
    let before = api.lock().expect("lock").times(GET).len();
    for _ in 0..600 {
        api.lock().expect("lock").put_config_map(&json!({"reset.json": "{}"}));
        sleep(Duration::from_millis(100)).await;
    }
    let reads = api.lock().expect("lock").times(GET).len() - before;
    assert!((30..=61).contains(&reads), "{reads}");
}

#[tokio::test(start_paused = true)]
async fn list_after_an_interrupted_watch_reveals_a_deleted_config_map() {
    let api = FakeApi::with_jobs(&["j"]);
    start(&api);
    sleep(Duration::from_mins(1)).await;
    {
        let mut api = api.lock().expect("lock");
        api.objects.remove("/api/v1/namespaces/ns/configmaps/reset-config-j").expect("the ConfigMap");
        let expired = failure(410, "too old resource version");
        api.send("/api/v1/namespaces/ns/configmaps/reset-config-j", "ERROR", &expired);
    }
    sleep(Duration::from_mins(1)).await;
    assert_eq!(creations(&api).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let api = FakeApi::with_jobs(&["j"]);
    let mut throttled = failure(429, "too many requests");
    throttled["details"] = json!({"retryAfterSeconds": 30});
    api.lock().expect("lock").failures = vec![(GET, throttled)];
    start(&api);
    sleep(Duration::from_secs(100)).await;
    let requests = api.lock().expect("lock").times(GET);
    assert!(requests.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(30)), "{requests:?}");
    assert!(requests.len() >= 3);
    api.lock().expect("lock").failures.clear();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(creations(&api).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unavailable_api_server_gets_few_requests_however_many_jobs_there_are() {
    let names: Vec<String> = (0..500).map(|number| format!("j{number}")).collect();
    let api = FakeApi::with_jobs(&names.iter().map(String::as_str).collect::<Vec<_>>());
    api.lock().expect("lock").failures =
        vec![("GET /api/v1/namespaces", failure(500, "etcd is unavailable"))];
    start(&api);
    sleep(Duration::from_mins(5)).await;
    let requests = api.lock().expect("lock").requests.len();
    assert!(requests < 200, "{requests} in five minutes");
    api.lock().expect("lock").failures.clear();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(creations(&api).len(), names.len());
}

#[tokio::test(start_paused = true)]
async fn denied_creation_is_reported_once_and_retried_with_a_backoff() {
    let api = FakeApi::with_jobs(&["j"]);
    api.lock().expect("lock").failures = vec![(CREATE, failure(403, "exceeded quota: none"))];
    start(&api);
    sleep(Duration::from_mins(30)).await;
    let attempts = creations(&api);
    let delays: Vec<u64> = attempts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    for (delay, nominal) in delays.iter().zip([5, 10, 20, 40, 80, 160, 300, 300]) {
        assert!((nominal..=nominal * 5 / 4 + 1).contains(delay), "{delays:?}");
    }
    assert!(delays.len() >= 7, "{delays:?}");
    let events = "POST /api/v1/namespaces/ns/events";
    assert_eq!(api.lock().expect("lock").times(events).len(), 1);
    api.lock().expect("lock").failures.clear();
    sleep(Duration::from_mins(10)).await;
    assert!(
        api.lock().expect("lock").objects.contains_key("/api/v1/namespaces/ns/configmaps/reset-config-j")
    );
}

#[tokio::test(start_paused = true)]
async fn kind_that_is_defined_later_is_watched_then() {
    let api = FakeApi::with_jobs(&[]);
    api.lock().expect("lock").undefined = vec![ASCEND_JOBS, VOLCANO_JOBS];
    start(&api);
    sleep(Duration::from_mins(10)).await;
    let lists = api.lock().expect("lock").times(&format!("GET {ASCEND_JOBS}")).len();
    assert!(lists < 50, "{lists} in ten minutes");
    {
        let mut api = api.lock().expect("lock");
        api.undefined = vec![VOLCANO_JOBS];
        api.add_job("j");
    }
    sleep(Duration::from_mins(2)).await;
    assert_eq!(creations(&api).len(), 1);
}
