//! What tests order beside the objects: failures, concurrent writes, barriers, time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use http::Method;
use tokio::sync::Barrier;
use tokio::task::yield_now;

use crate::FakeApiServer;

type Write = Box<dyn FnOnce(&FakeApiServer) + Send>;

#[derive(Default)]
pub(crate) struct Control {
    failures: Vec<Failure>,
    write: Option<(Method, Write)>,
    barrier: Option<(String, usize, Arc<Barrier>)>,
    pub(crate) time: Option<SystemTime>,
    yields: VecDeque<u8>,
}

struct Failure {
    method: Method,
    path: String,
    code: u16,
    times: usize,
}

/// The number of requests that a client sends before it dies.
#[derive(Clone, Default)]
pub struct Lifetime(Arc<Mutex<Option<(usize, bool)>>>);

impl Lifetime {
    /// Ends the client's life with the request after the next `requests`; `served` says whether the server still
    /// processes that one. The client never receives its response.
    pub fn end_after(&self, requests: usize, served: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((requests, served));
    }

    /// Counts a request. Returns whether the server processes it, if the client's life ends with it.
    pub(crate) fn count_request(&self) -> Option<bool> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut()? {
            (0, served) => Some(*served),
            (requests, _) => {
                *requests -= 1;
                None
            }
        }
    }
}

impl FakeApiServer {
    /// Answers the next requests of this method with an error.
    pub fn fail(&self, method: &Method, code: u16, times: usize) {
        self.fail_at(method, "", code, times);
    }

    /// Answers the next requests of this method whose path contains `path` with an error.
    pub fn fail_at(&self, method: &Method, path: &str, code: u16, times: usize) {
        let failure = Failure { method: method.clone(), path: path.to_owned(), code, times };
        self.state().control.failures.push(failure);
    }

    /// Writes as another client would, just before the next request of this method is served.
    pub fn write_before(&self, method: Method, write: impl FnOnce(&Self) + Send + 'static) {
        self.state().control.write = Some((method, Box::new(write)));
    }

    /// Holds back the responses to the next GETs of this path until so many have been processed.
    pub fn meet_after_reading(&self, path: &str, readers: usize) {
        let barrier = Arc::new(Barrier::new(readers));
        self.state().control.barrier = Some((path.to_owned(), readers, barrier));
    }

    /// Sets the time of the `Date` header, which responses don't have otherwise.
    pub fn set_time(&self, time: SystemTime) {
        self.state().control.time = Some(time);
    }

    /// Interleaves the requests of concurrent clients: each number is how often one yields before or after a request.
    pub fn interleave(&self, yields: &[u8]) {
        self.state().control.yields.extend(yields);
    }

    pub(crate) async fn pause(&self) {
        let times = self.state().control.yields.pop_front().unwrap_or_default();
        for _ in 0..times {
            yield_now().await;
        }
    }
}

impl Control {
    pub(crate) fn take_failure(&mut self, method: &Method, path: &str) -> Option<u16> {
        let applies = |failure: &Failure| failure.method == method && path.contains(&failure.path);
        let position = self.failures.iter().position(applies)?;
        let failure = &mut self.failures[position];
        failure.times = failure.times.saturating_sub(1);
        let code = failure.code;
        self.failures.retain(|failure| failure.times > 0);
        Some(code)
    }

    pub(crate) fn take_write(&mut self, method: &Method) -> Option<Write> {
        self.write.take_if(|(awaited, _)| awaited == method).map(|(_, write)| write)
    }

    pub(crate) fn take_barrier(&mut self, method: &Method, path: &str) -> Option<Arc<Barrier>> {
        let (at, left, barrier) = self.barrier.as_mut()?;
        if *left == 0 || method != Method::GET || at != path {
            return None;
        }
        *left -= 1;
        Some(Arc::clone(barrier))
    }
}
