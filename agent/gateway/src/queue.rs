//! The queue of requests, in order of arrival.

use std::collections::VecDeque;

use swansong_clusterd::{MAX_BATCH, PublicFault, SendError};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The limit of queued requests.
const MAX_REQUESTS: usize = 8192;

/// Requests whose faults ClusterD hasn't accepted yet.
#[derive(Debug, Default)]
pub struct RequestQueue {
    requests: VecDeque<QueuedRequest>,
}

#[derive(Debug)]
struct QueuedRequest {
    faults: Vec<PublicFault>,
    /// The number of faults that ClusterD has accepted.
    accepted: usize,
    since: Instant,
    /// Closed when the agent has disconnected. Its faults must not be sent then: it may report them and their recovery
    /// over another transport, and a fault that is sent after its recovery would stay active for ever.
    response: oneshot::Sender<Result<(), SendError>>,
}

/// The queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl RequestQueue {
    /// Appends a request.
    pub fn push(
        &mut self,
        faults: Vec<PublicFault>,
        since: Instant,
    ) -> Result<oneshot::Receiver<Result<(), SendError>>, Full> {
        // Closed requests are removed by `next_batch` only: those in a batch in flight have to keep their places.
        if self.requests.len() >= MAX_REQUESTS {
            return Err(Full);
        }
        let (response, receiver) = oneshot::channel();
        self.requests.push_back(QueuedRequest { faults, accepted: 0, since, response });
        Ok(receiver)
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// When the oldest request arrived, and whether there are enough faults for a full batch.
    pub fn oldest(&self) -> Option<(Instant, bool)> {
        let first = self.requests.front()?;
        let mut faults = 0;
        let full = self.requests.iter().any(|request| {
            faults += request.faults.len() - request.accepted;
            faults >= MAX_BATCH
        });
        Some((first.since, full))
    }

    /// Removes closed requests and returns the next batch. Its faults remain queued until [`Self::complete`] or
    /// [`Self::reject`].
    pub fn next_batch(&mut self) -> Vec<PublicFault> {
        self.requests.retain(|request| !request.response.is_closed());
        let pending = self.requests.iter().flat_map(|request| &request.faults[request.accepted..]);
        pending.take(MAX_BATCH).cloned().collect()
    }

    /// Removes the first `count` faults, which ClusterD has accepted.
    pub fn complete(&mut self, mut count: usize) {
        while let Some(first) = self.requests.front_mut() {
            let part = count.min(first.faults.len() - first.accepted);
            first.accepted += part;
            count -= part;
            if first.accepted < first.faults.len() {
                break;
            }
            self.respond_to_first(Ok(()));
        }
    }

    /// Removes each request with one of the first `count` faults, a batch that ClusterD refuses.
    pub fn reject(&mut self, mut count: usize, error: &SendError) {
        while let Some(first) = self.requests.front().filter(|_| count > 0) {
            count = count.saturating_sub(first.faults.len() - first.accepted);
            self.respond_to_first(Err(error.clone()));
        }
    }

    fn respond_to_first(&mut self, result: Result<(), SendError>) {
        if let Some(first) = self.requests.pop_front() {
            // The agent may have disconnected.
            let _ = first.response.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use swansong_clusterd::{Class, FaultType};
    use swansong_fault_model::Assertion;

    use super::*;

    fn faults(node: &str, count: u32) -> Vec<PublicFault> {
        let fault = |i: u32| PublicFault {
            fault_id: format!("{node}.npu{i}.1.1756000000000"),
            fault_type: FaultType::Npu,
            class: Class::ChipSeparate,
            fault_time: 1_756_000_000_000,
            assertion: Assertion::Occur,
            location: BTreeMap::new(),
            node: node.to_owned(),
            devices: vec![0],
            description: String::new(),
        };
        (0..count).map(fault).collect()
    }

    #[test]
    fn request_spans_batches_and_completes_with_the_last() {
        let (mut queue, now) = (RequestQueue::default(), Instant::now());
        let mut first = queue.push(faults("a", 60), now).expect("room");
        let mut second = queue.push(faults("b", 60), now).expect("room");
        assert_eq!(queue.oldest(), Some((now, true)));
        let batch = queue.next_batch();
        assert_eq!((batch.len(), batch[59].node.as_str(), batch[60].node.as_str()), (100, "a", "b"));
        queue.complete(100);
        assert_eq!(first.try_recv(), Ok(Ok(())));
        assert!(second.try_recv().is_err());
        assert_eq!(queue.next_batch(), faults("b", 60)[40..]);
        queue.complete(20);
        assert_eq!(second.try_recv(), Ok(Ok(())));
        assert!(queue.is_empty());
    }

    #[test]
    fn unaccepted_faults_keep_their_order() {
        let (mut queue, now) = (RequestQueue::default(), Instant::now());
        let _first = queue.push(faults("a", 2), now).expect("room");
        let before = queue.next_batch();
        let _second = queue.push(faults("b", 1), now).expect("room");
        assert_eq!(queue.next_batch()[..2], before);
    }

    #[test]
    fn rejected_batch_affects_only_its_requests() {
        let (mut queue, now) = (RequestQueue::default(), Instant::now());
        let mut first = queue.push(faults("a", 70), now).expect("room");
        let mut second = queue.push(faults("b", 70), now).expect("room");
        let mut third = queue.push(faults("c", 1), now).expect("room");
        let error = SendError::Invalid("no".to_owned());
        queue.reject(100, &error);
        assert_eq!(first.try_recv(), Ok(Err(error.clone())));
        assert_eq!(second.try_recv(), Ok(Err(error)));
        assert!(third.try_recv().is_err());
    }

    #[test]
    fn faults_of_disconnected_agents_are_not_sent() {
        let (mut queue, now) = (RequestQueue::default(), Instant::now());
        drop(queue.push(faults("a", 1), now).expect("room"));
        let _second = queue.push(faults("b", 1), now).expect("room");
        assert_eq!(queue.next_batch(), faults("b", 1));
    }

    #[test]
    fn queue_is_bounded() {
        let (mut queue, now) = (RequestQueue::default(), Instant::now());
        let mut receivers: Vec<_> =
            (0..MAX_REQUESTS).map(|_| queue.push(faults("a", 1), now).expect("room")).collect();
        assert_eq!(queue.push(faults("a", 1), now).err(), Some(Full));
        receivers.pop();
        queue.next_batch();
        assert!(queue.push(faults("a", 1), now).is_ok(), "a closed request makes room with the next batch");
    }

    #[test]
    fn request_closed_in_flight_keeps_its_place() {
        let (mut queue, now) = (RequestQueue::default(), Instant::now());
        let closed = queue.push(faults("a", 1), now).expect("room");
        let mut others: Vec<_> =
            (1..MAX_REQUESTS).map(|_| queue.push(faults("b", 1), now).expect("room")).collect();
        assert_eq!(queue.next_batch().len(), MAX_BATCH);
        drop(closed);
        assert_eq!(queue.push(faults("c", 1), now).err(), Some(Full));
        queue.complete(MAX_BATCH);
        let completed = others.iter_mut().filter_map(|other| other.try_recv().ok()).count();
        assert_eq!(completed, MAX_BATCH - 1);
    }
}
