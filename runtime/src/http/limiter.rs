use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::activity::Activity;
use super::metrics::Closed;
use super::{Limits, Timeouts};

/// How long a new connection waits for a free slot.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a waiting connection checks whether one has become idle for long enough.
const EVICT_INTERVAL: Duration = Duration::from_secs(1);

/// Limits the number of connections and closes those that exceed a timeout.
///
/// At the limit a connection of the peer with most connections is evicted, the one that has been idle longest. So a client
/// that opens many keeps no other out, and an API server, which keeps a few and uses the one that rested least, hardly
/// misses the evicted one.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    free: Arc<Semaphore>,
    min_idle: Duration,
    timeouts: Timeouts,
    connections: Mutex<Vec<(IpAddr, Weak<Activity>)>>,
}

/// A place among the open connections, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) activity: Arc<Activity>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimiter {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            free: Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS))),
            min_idle: limits.min_idle,
            timeouts: limits.timeouts,
            connections: Mutex::default(),
        }
    }

    /// A slot, evicting an idle connection if there is none; `None` after [`ACQUIRE_TIMEOUT`].
    pub(super) async fn acquire(&self, peer: IpAddr) -> Option<Slot> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(self.register(peer, permit));
        }
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        loop {
            self.evict_idle();
            let left = deadline.saturating_duration_since(Instant::now());
            let acquire = Arc::clone(&self.free).acquire_owned();
            match timeout(left.min(EVICT_INTERVAL), acquire).await {
                Ok(permit) => return Some(self.register(peer, permit.ok()?)),
                Err(_) if left <= EVICT_INTERVAL => return None,
                Err(_) => {}
            }
        }
    }

    fn register(&self, peer: IpAddr, permit: OwnedSemaphorePermit) -> Slot {
        let activity = Arc::new(Activity::new());
        self.connections().push((peer, Arc::downgrade(&activity)));
        Slot { activity, _permit: permit }
    }

    fn evict_idle(&self) {
        let now = Instant::now();
        let open: Vec<_> = {
            let connections = self.connections();
            connections.iter().filter_map(|(peer, activity)| Some((*peer, activity.upgrade()?))).collect()
        };
        let open: Vec<_> = open.iter().filter(|(_, activity)| activity.closing().is_none()).collect();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (peer, _) in &open {
            *counts.entry(*peer).or_default() += 1;
        }
        let idle = open
            .iter()
            .filter_map(|(peer, activity)| Some((Reverse(counts[peer]), activity.idle_since()?, activity)));
        if let Some((_, since, activity)) = idle.min_by_key(|(count, since, _)| (*count, *since))
            && now.saturating_duration_since(since) >= self.min_idle
        {
            activity.close(Closed::Evicted);
        }
    }

    /// Closes connections that exceed a timeout, at the latest a tenth of it too late.
    pub(super) async fn enforce_timeouts(&self) -> Infallible {
        let Timeouts { idle, head, request, write, .. } = self.timeouts;
        let shortest = idle.min(head).min(request).min(write);
        let period = (shortest / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            ticks.tick().await;
            let now = Instant::now();
            // After the process was stopped, what its clients sent meanwhile is still in the kernel.
            if now.saturating_duration_since(last) < 5 * period {
                self.close_expired(now);
            }
            last = now;
        }
    }

    fn close_expired(&self, now: Instant) {
        self.connections().retain(|(_, activity)| {
            let Some(activity) = activity.upgrade() else { return false };
            if let Some(cause) = activity.expired(&self.timeouts, now) {
                activity.close(cause);
            }
            true
        });
    }

    fn connections(&self) -> MutexGuard<'_, Vec<(IpAddr, Weak<Activity>)>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::task::JoinHandle;
    use tokio::time::sleep;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const MIN_IDLE: Duration = Duration::from_secs(1);

    fn limiter(connections: usize) -> Arc<ConnectionLimiter> {
        let limits = Limits { connections, min_idle: MIN_IDLE, ..Limits::HEALTH };
        Arc::new(ConnectionLimiter::new(&limits))
    }

    /// Holds a slot until it is asked to close.
    fn hold(slot: Slot) -> JoinHandle<()> {
        tokio::spawn(async move {
            // The whole slot, with its permit.
            let slot = slot;
            slot.activity.close_requested().await;
        })
    }

    #[tokio::test(start_paused = true)]
    async fn evicts_the_longest_idle_connection_and_no_busy_one() {
        let limiter = limiter(3);
        let busy = limiter.acquire(PEER).await.expect("a slot");
        busy.activity.request_started();
        let longest = hold(limiter.acquire(PEER).await.expect("a slot"));
        sleep(Duration::from_secs(2)).await;
        let shorter = hold(limiter.acquire(PEER).await.expect("a slot"));
        sleep(Duration::from_secs(2)).await;

        let new = limiter.acquire(PEER).await.expect("a slot");
        assert!(longest.is_finished() && !shorter.is_finished() && busy.activity.closing().is_none());
        new.activity.request_started();
        let another = limiter.acquire(PEER).await.expect("a slot");
        assert!(shorter.is_finished() && busy.activity.closing().is_none());
        another.activity.request_started();
        assert!(limiter.acquire(PEER).await.is_none(), "all are busy");
        drop(busy);
        assert!(limiter.acquire(PEER).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_just_busy_is_evicted_only_after_a_while() {
        let limiter = limiter(1);
        let held = hold(limiter.acquire(PEER).await.expect("a slot"));
        let start = Instant::now();
        assert!(limiter.acquire(PEER).await.is_some());
        assert!(start.elapsed() >= MIN_IDLE && start.elapsed() < ACQUIRE_TIMEOUT);
        assert!(held.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn many_new_connections_evict_as_many() {
        let limiter = limiter(8);
        for _ in 0..8 {
            hold(limiter.acquire(PEER).await.expect("a slot"));
        }
        sleep(MIN_IDLE).await;
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move { limiter.acquire(PEER).await })
            })
            .collect();
        let mut slots = Vec::new();
        for waiting in waiting {
            slots.push(waiting.await.expect("ended").expect("a slot"));
        }
        drop(slots);
        assert_eq!(limiter.free.available_permits(), 8);
        limiter.close_expired(Instant::now());
        assert!(limiter.connections().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn closes_an_expired_connection() {
        let limiter = limiter(1);
        let held = hold(limiter.acquire(PEER).await.expect("a slot"));
        let start = Instant::now();
        tokio::select! {
            never = limiter.enforce_timeouts() => match never {},
            ended = held => ended.expect("closed"),
        }
        let idle = Limits::HEALTH.timeouts.idle;
        assert!(start.elapsed() >= idle && start.elapsed() < idle + idle / 10, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_connections_of_one_peer_evict_no_other_peers() {
        let limiter = limiter(4);
        let probe = limiter.acquire(Ipv4Addr::new(10, 0, 0, 1).into()).await.expect("a slot");
        for _ in 0..40 {
            hold(limiter.acquire(PEER).await.expect("a slot"));
        }
        assert_eq!(probe.activity.closing(), None);
    }
}
