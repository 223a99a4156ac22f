//! The requests that wait, in the order in which they came.

use std::collections::VecDeque;

use swansong_clusterd::{MAX_BATCH, PublicFault, SendError};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Requests that wait at most.
const MOST: usize = 8192;

/// Waiting requests.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: VecDeque<Waiting>,
}

/// A request.
#[derive(Debug)]
struct Waiting {
    faults: Vec<PublicFault>,
    /// How many of them ClusterD has taken.
    taken: usize,
    since: Instant,
    /// Closed when the agent has gone: what it handed over must not be sent later, since it may meanwhile tell that
    /// another way, and a fault that is sent after its recovery would stand for ever.
    answer: oneshot::Sender<Result<(), SendError>>,
}

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Queue {
    /// Puts a request behind all others.
    pub fn push(
        &mut self,
        faults: Vec<PublicFault>,
        since: Instant,
    ) -> Result<oneshot::Receiver<Result<(), SendError>>, Full> {
        // Who has gone leaves with the next batch: while one is under way, what it holds has to stay in its place.
        if self.waiting.len() >= MOST {
            return Err(Full);
        }
        let (answer, receiver) = oneshot::channel();
        self.waiting.push_back(Waiting { faults, taken: 0, since, answer });
        Ok(receiver)
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Since when the first one waits, and whether a batch is full.
    pub fn oldest(&self) -> Option<(Instant, bool)> {
        let first = self.waiting.front()?;
        let mut faults = 0;
        // Looks at no more requests than fill a batch.
        let full = self.waiting.iter().any(|waiting| {
            faults += waiting.faults.len() - waiting.taken;
            faults >= MAX_BATCH
        });
        Some((first.since, full))
    }

    /// The next batch, which stays in the queue until it is [`Self::taken`] or [`Self::failed`]. Requests whose agents have
    /// gone are out of it.
    pub fn batch(&mut self) -> Vec<PublicFault> {
        self.forget_the_gone();
        let left = self.waiting.iter().flat_map(|waiting| &waiting.faults[waiting.taken..]);
        left.take(MAX_BATCH).cloned().collect()
    }

    /// ClusterD has taken the first `count` faults.
    pub fn taken(&mut self, count: usize) {
        let mut count = count;
        while let Some(first) = self.waiting.front_mut() {
            let part = count.min(first.faults.len() - first.taken);
            first.taken += part;
            count -= part;
            if first.taken < first.faults.len() {
                break;
            }
            self.answer_first(Ok(()));
        }
    }

    /// ClusterD will never take the batch with the first `count` faults: whoever has one in it is told.
    pub fn failed(&mut self, count: usize, error: &SendError) {
        let mut count = count;
        while let Some(first) = self.waiting.front().filter(|_| count > 0) {
            count = count.saturating_sub(first.faults.len() - first.taken);
            self.answer_first(Err(error.clone()));
        }
    }

    fn answer_first(&mut self, answer: Result<(), SendError>) {
        if let Some(first) = self.waiting.pop_front() {
            // Whoever has gone needs none.
            let _ = first.answer.send(answer);
        }
    }

    fn forget_the_gone(&mut self) {
        self.waiting.retain(|waiting| !waiting.answer.is_closed());
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
    fn a_request_may_span_batches_and_is_answered_after_the_last() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let mut first = queue.push(faults("a", 60), now).expect("room");
        let mut second = queue.push(faults("b", 60), now).expect("room");
        assert_eq!(queue.oldest(), Some((now, true)));
        let batch = queue.batch();
        assert_eq!((batch.len(), batch[59].node.as_str(), batch[60].node.as_str()), (100, "a", "b"));
        queue.taken(100);
        assert_eq!(first.try_recv(), Ok(Ok(())));
        assert!(second.try_recv().is_err());
        assert_eq!(queue.batch(), faults("b", 60)[40..]);
        queue.taken(20);
        assert_eq!(second.try_recv(), Ok(Ok(())));
        assert!(queue.is_empty());
    }

    #[test]
    fn what_was_not_taken_stays_where_it_is() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let _first = queue.push(faults("a", 2), now).expect("room");
        let before = queue.batch();
        let _second = queue.push(faults("b", 1), now).expect("room");
        assert_eq!(queue.batch()[..2], before);
    }

    #[test]
    fn a_batch_that_fails_for_ever_is_told_to_those_in_it_alone() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let mut first = queue.push(faults("a", 70), now).expect("room");
        let mut second = queue.push(faults("b", 70), now).expect("room");
        let mut third = queue.push(faults("c", 1), now).expect("room");
        let error = SendError::Invalid("no".to_owned());
        queue.failed(100, &error);
        assert_eq!(first.try_recv(), Ok(Err(error.clone())));
        assert_eq!(second.try_recv(), Ok(Err(error)));
        assert!(third.try_recv().is_err());
    }

    #[test]
    fn what_an_agent_that_has_gone_handed_over_is_not_sent() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        drop(queue.push(faults("a", 1), now).expect("room"));
        let _second = queue.push(faults("b", 1), now).expect("room");
        assert_eq!(queue.batch(), faults("b", 1));
    }

    #[test]
    fn it_has_an_end() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let mut waiting: Vec<_> = (0..MOST).map(|_| queue.push(faults("a", 1), now).expect("room")).collect();
        assert_eq!(queue.push(faults("a", 1), now).err(), Some(Full));
        waiting.pop();
        queue.batch();
        assert!(queue.push(faults("a", 1), now).is_ok(), "who has gone makes room, with the next batch");
    }

    /// What ClusterD took is told to those whose it was, whoever went meanwhile.
    #[test]
    fn who_goes_while_a_batch_is_under_way_keeps_his_place() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let gone = queue.push(faults("a", 1), now).expect("room");
        let mut others: Vec<_> = (1..MOST).map(|_| queue.push(faults("b", 1), now).expect("room")).collect();
        assert_eq!(queue.batch().len(), MAX_BATCH);
        drop(gone);
        assert_eq!(queue.push(faults("c", 1), now).err(), Some(Full));
        queue.taken(MAX_BATCH);
        let answered = others.iter_mut().filter_map(|other| other.try_recv().ok()).count();
        assert_eq!(answered, MAX_BATCH - 1);
    }
}
