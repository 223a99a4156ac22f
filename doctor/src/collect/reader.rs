//! Requests to the API server, whose failures are part of the result.

use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, LogParams};
use serde::de::DeserializeOwned;
use swansong_runtime::kube::{error_message, retry_after, status_code};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::snapshot::Seen;

/// How long an answer of the API server may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How long an answer that it gets from a Pod may take.
const PROXY_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait after an answer 429 that names none.
const LIMITED: Duration = Duration::from_secs(1);
/// How many objects an answer to a list may have.
const PAGE: u32 = 500;
/// How many lines of a log are read, and of how many bytes at most.
const LOG_LINES: i64 = 10_000;
const LOG_BYTES: i64 = 16 << 20;
/// How many requests are open at once.
const CONCURRENT: usize = 24;

/// Reads objects. Nothing is ever written.
#[derive(Clone)]
pub struct Reader {
    client: Client,
}

impl Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// A copy of the client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// An object by its name.
    pub async fn get<K: Clone + Debug + DeserializeOwned>(&self, api: &Api<K>, name: &str) -> Seen<K> {
        seen(TIMEOUT, || api.get(name)).await
    }

    /// All objects, page by page, of which `keep` makes what is kept.
    pub async fn list<K, T>(
        &self,
        api: &Api<K>,
        parameters: &ListParams,
        mut keep: impl FnMut(K) -> Option<T>,
    ) -> Seen<Vec<T>>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let mut parameters = parameters.clone().limit(PAGE);
        let mut found = Vec::new();
        loop {
            match seen(TIMEOUT, || api.list(&parameters)).await {
                Seen::Read(page) => {
                    found.extend(page.items.into_iter().filter_map(&mut keep));
                    match page.metadata.continue_.filter(|token| !token.is_empty()) {
                        Some(token) => parameters = parameters.continue_token(&token),
                        None => return Seen::Read(found),
                    }
                }
                failed => return failed.map(|_| Vec::new()),
            }
        }
    }

    /// What a Pod or Service answers to a GET by way of the API server.
    pub async fn fetch(&self, path: &str) -> Seen<String> {
        let request = || async {
            let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
            self.client.request_text(request).await
        };
        seen(PROXY_TIMEOUT, request).await
    }

    /// The end of a container's log, each line with the time at which it was written.
    pub async fn log(&self, namespace: &str, pod: &str, container: &str) -> Seen<String> {
        let pods: Api<Pod> = Api::namespaced(self.client(), namespace);
        let parameters = LogParams {
            container: Some(container.to_owned()),
            tail_lines: Some(LOG_LINES),
            limit_bytes: Some(LOG_BYTES),
            timestamps: true,
            ..LogParams::default()
        };
        seen(TIMEOUT, || pods.logs(pod, &parameters)).await
    }

    /// The version of the API server.
    pub async fn version(&self) -> Seen<String> {
        seen(TIMEOUT, || self.client.apiserver_version()).await.map(|version| version.git_version)
    }

    /// The HTTP status of such an answer. That of the API server itself, when it doesn't reach the Pod, is a failure.
    pub async fn fetch_status(&self, path: &str) -> Seen<u16> {
        match self.fetch(path).await {
            Seen::Read(_) => Seen::Read(200),
            // The Pod's own 404; a missing Service is one as well, which another check shows.
            Seen::Absent => Seen::Read(404),
            Seen::Failed(message) => match answered_with(&message) {
                Some(status) => Seen::Read(status),
                None => Seen::Failed(message),
            },
            other => other.map(|_| 200),
        }
    }

    /// Performs a task for each item, some of them at once, in any order.
    pub fn each<I, T, F>(items: I, task: impl FnMut(I::Item) -> F) -> impl Stream<Item = T>
    where
        I: IntoIterator,
        F: Future<Output = T>,
    {
        stream::iter(items.into_iter().map(task)).buffer_unordered(CONCURRENT)
    }
}

/// The webhook refuses a GET, which shows that it was reached.
fn answered_with(message: &str) -> Option<u16> {
    message.contains("(405 ").then_some(405)
}

/// Performs a request, and again while the API server limits its clients. Every other answer is part of the result, so the
/// client must not retry by itself: a 503 has the reason why a Pod isn't reached.
async fn seen<T, F>(limit: Duration, request: impl Fn() -> F) -> Seen<T>
where
    F: Future<Output = kube::Result<T>>,
{
    let deadline = Instant::now() + limit;
    let mut problem = format!("no answer within {limit:?}");
    while let Ok(answer) = timeout_at(deadline, request()).await {
        let error = match answer {
            Ok(value) => return Seen::Read(value),
            Err(error) => error,
        };
        match status_code(&error) {
            Some(404) => return Seen::Absent,
            Some(401 | 403) => return Seen::Forbidden(error_message(&error)),
            Some(429) => {}
            _ => return Seen::Failed(error_message(&error)),
        }
        problem = error_message(&error);
        let resume = Instant::now() + retry_after(&error).unwrap_or(LIMITED);
        if resume >= deadline {
            break;
        }
        sleep_until(resume).await;
    }
    Seen::Failed(problem)
}
