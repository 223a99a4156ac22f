//! Places for connections: so many at most, and when all are taken whoever has been idle longest gives way.
//!
//! An API server keeps a few idle connections and uses the one that rested least. So the one that rested longest is
//! hardly missed, while someone who opens connections only to hold them keeps nobody out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::pace::Activity;

/// Whoever has been idle for less may just be between two requests.
const IDLE_ENOUGH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    activities: HashMap<u64, Arc<Activity>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) activity: Arc<Activity>,
    number: u64,
    places: Arc<Places>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(number: usize) -> Self {
        let number = number.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(number)), taken: Mutex::default() }
    }

    /// A place, within `patience` if there is to be one.
    pub(super) async fn take(self: &Arc<Self>, patience: Duration) -> Option<Place> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(self.seat(permit));
        }
        let deadline = Instant::now() + patience;
        loop {
            self.ask_for_one();
            let left = deadline.saturating_duration_since(Instant::now());
            match timeout(left.min(IDLE_ENOUGH), Arc::clone(&self.free).acquire_owned()).await {
                Ok(permit) => return Some(self.seat(permit.ok()?)),
                Err(_) if left <= IDLE_ENOUGH => return None,
                // By now someone else may have been idle for long enough.
                Err(_) => {}
            }
        }
    }

    fn seat(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Place {
        let activity = Arc::new(Activity::new());
        let number = self.with_taken(|taken| {
            taken.next += 1;
            taken.activities.insert(taken.next, Arc::clone(&activity));
            taken.next
        });
        Place { activity, number, places: Arc::clone(self), _permit: permit }
    }

    fn ask_for_one(&self) {
        let now = Instant::now();
        self.with_taken(|taken| {
            let idle = taken.activities.values().filter(|activity| !activity.is_asked_to_give_way());
            let idle = idle.filter_map(|activity| Some((activity.idle_since()?, activity)));
            if let Some((since, longest)) = idle.min_by_key(|(since, _)| *since)
                && now.saturating_duration_since(since) >= IDLE_ENOUGH
            {
                longest.ask_to_give_way();
            }
        });
    }

    fn with_taken<T>(&self, act: impl FnOnce(&mut Taken) -> T) -> T {
        act(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.with_taken(|taken| taken.activities.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Holds a place until it is asked to give way.
    fn hold(place: Place) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { place.activity.asked_to_give_way().await })
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_gives_way_and_the_busy_stay() {
        let places = Arc::new(Places::new(3));
        let busy = places.take(PATIENCE).await.expect("a place");
        busy.activity.begin();
        let longest = hold(places.take(PATIENCE).await.expect("a place"));
        sleep(Duration::from_secs(2)).await;
        let shorter = hold(places.take(PATIENCE).await.expect("a place"));
        sleep(Duration::from_secs(2)).await;

        let newcomer = places.take(PATIENCE).await.expect("a place");
        assert!(longest.is_finished() && !shorter.is_finished() && !busy.activity.is_asked_to_give_way());
        newcomer.activity.begin();
        let another = places.take(PATIENCE).await.expect("a place");
        assert!(shorter.is_finished() && !busy.activity.is_asked_to_give_way());
        another.activity.begin();
        assert!(places.take(PATIENCE).await.is_none(), "all are busy");
        drop(busy);
        assert!(places.take(PATIENCE).await.is_some());
        assert_eq!(places.with_taken(|taken| taken.activities.len()), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_just_busy_is_asked_only_after_a_while() {
        let places = Arc::new(Places::new(1));
        let held = hold(places.take(PATIENCE).await.expect("a place"));
        let start = Instant::now();
        assert!(places.take(PATIENCE).await.is_some());
        assert!(start.elapsed() >= IDLE_ENOUGH && start.elapsed() < PATIENCE);
        assert!(held.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn many_newcomers_get_as_many_places() {
        let places = Arc::new(Places::new(8));
        for _ in 0..8 {
            hold(places.take(PATIENCE).await.expect("a place"));
        }
        sleep(IDLE_ENOUGH).await;
        let newcomers: Vec<_> = (0..8)
            .map(|_| {
                let places = Arc::clone(&places);
                tokio::spawn(async move { places.take(PATIENCE).await })
            })
            .collect();
        let mut seated = Vec::new();
        for newcomer in newcomers {
            seated.push(newcomer.await.expect("ended").expect("a place"));
        }
        assert_eq!(places.with_taken(|taken| taken.activities.len()), 8);
        drop(seated);
        assert_eq!(places.free.available_permits(), 8);
        assert_eq!(places.with_taken(|taken| taken.activities.len()), 0);
    }
}
