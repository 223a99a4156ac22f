//! Decides what to request from the library next. Times are durations since any fixed moment.

use std::time::Duration;

use super::timing::Timing;

/// The shortest interval between two polls of a device.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest interval between two lists of the devices that unknown devices cause.
const MIN_LIST_INTERVAL: Duration = Duration::from_mins(1);

/// As many attempts to subscribe as MindCluster's device plugin makes.
const MAX_ATTEMPTS: u32 = 3;

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Subscribe,
    /// Poll the device with this index.
    Poll(usize),
    ListDevices,
    /// Wait until then.
    Wait(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subscription {
    Trying { left: u32, at: Duration },
    Active,
    Refused,
}

#[derive(Debug, Clone, Copy)]
struct Due {
    at: Duration,
    last: Option<Duration>,
}

/// The schedule of requests.
#[derive(Debug)]
pub(crate) struct Schedule {
    timing: Timing,
    subscription: Subscription,
    devices: Vec<Due>,
    list: Due,
}

impl Schedule {
    /// A schedule on which everything is due.
    pub(crate) fn new(timing: Timing, devices: usize, now: Duration) -> Self {
        let mut schedule = Self {
            timing,
            subscription: Subscription::Trying { left: MAX_ATTEMPTS, at: now },
            devices: Vec::new(),
            list: Due { at: now + timing.repoll, last: Some(now) },
        };
        schedule.listed(devices, now);
        schedule
    }

    pub(crate) fn next(&self, now: Duration) -> Action {
        if let Subscription::Trying { at, .. } = self.subscription
            && at <= now
        {
            return Action::Subscribe;
        }
        let soonest = self.devices.iter().enumerate().min_by_key(|(_, due)| due.at);
        let mut wait = self.list.at;
        if let Some((index, due)) = soonest {
            if due.at <= now {
                return Action::Poll(index);
            }
            wait = wait.min(due.at);
        }
        if self.list.at <= now {
            return Action::ListDevices;
        }
        if let Subscription::Trying { at, .. } = self.subscription {
            wait = wait.min(at);
        }
        Action::Wait(wait)
    }

    /// The subscription succeeded; faults from before have to be polled.
    pub(crate) fn subscribed(&mut self, now: Duration) {
        self.subscription = Subscription::Active;
        for due in &mut self.devices {
            due.at = now;
        }
    }

    /// An attempt to subscribe failed. Returns whether it was the last, as the error is final or the attempts are used up.
    pub(crate) fn subscription_failed(&mut self, is_final: bool, now: Duration) -> bool {
        let Subscription::Trying { left, .. } = self.subscription else { return true };
        let is_last = is_final || left <= 1;
        self.subscription = if is_last {
            Subscription::Refused
        } else {
            Subscription::Trying { left: left - 1, at: now + self.timing.subscribe_interval }
        };
        if is_last {
            for due in &mut self.devices {
                due.at = due.at.min(due.last.unwrap_or(now) + self.timing.poll);
            }
        }
        is_last
    }

    /// Whether the driver sends events.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscription == Subscription::Active
    }

    /// A device was polled.
    pub(crate) fn polled(&mut self, index: usize, is_healthy: bool, now: Duration) {
        let interval = if is_healthy && self.subscription != Subscription::Refused {
            self.timing.repoll
        } else {
            self.timing.poll
        };
        if let Some(due) = self.devices.get_mut(index) {
            *due = Due { at: now + interval, last: Some(now) };
        }
    }

    /// An event reported a fault of a device, which is polled more often then.
    pub(crate) fn mark_unhealthy(&mut self, index: usize, now: Duration) {
        let soon = now + self.timing.poll;
        if let Some(due) = self.devices.get_mut(index) {
            due.at = due.at.min(soon);
        }
    }

    /// Requests a poll of a device.
    pub(crate) fn request_poll(&mut self, index: usize, now: Duration) {
        if let Some(due) = self.devices.get_mut(index) {
            due.at = due.at.min(due.last.map_or(now, |last| now.max(last + MIN_POLL_INTERVAL)));
        }
    }

    /// Requests polls of all devices.
    pub(crate) fn request_all_polls(&mut self, now: Duration) {
        for index in 0..self.devices.len() {
            self.request_poll(index, now);
        }
    }

    /// Requests a list of the devices.
    pub(crate) fn request_list(&mut self, now: Duration) {
        let soonest = self.list.last.map_or(now, |last| now.max(last + MIN_LIST_INTERVAL));
        self.list.at = self.list.at.min(soonest);
    }

    /// The devices were listed. Their number never decreases.
    pub(crate) fn listed(&mut self, devices: usize, now: Duration) {
        self.devices.resize(devices.max(self.devices.len()), Due { at: now, last: None });
        self.list = Due { at: now + self.timing.repoll, last: Some(now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Subscribes after a second, polls after 5 s and 5 min.
    fn timing() -> Timing {
        Timing::default()
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Performs and returns what is due at `now`.
    fn due(schedule: &mut Schedule, now: Duration, is_healthy: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        loop {
            let action = schedule.next(now);
            match action {
                Action::Wait(until) => {
                    assert!(until > now);
                    return actions;
                }
                Action::Poll(index) => schedule.polled(index, is_healthy, now),
                Action::ListDevices => schedule.listed(0, now),
                Action::Subscribe => {
                    schedule.subscription_failed(false, now);
                }
            }
            actions.push(action);
        }
    }

    #[test]
    fn polls_after_three_attempts_to_subscribe() {
        let mut schedule = Schedule::new(timing(), 2, s(0));
        assert_eq!(due(&mut schedule, s(0), true), [Action::Subscribe, Action::Poll(0), Action::Poll(1)]);
        assert_eq!(schedule.next(s(0)), Action::Wait(s(1)));
        assert_eq!(due(&mut schedule, s(1), true), [Action::Subscribe]);
        assert_eq!(due(&mut schedule, s(2), true), [Action::Subscribe]);
        assert_eq!(schedule.next(s(2)), Action::Wait(s(5)));
        for round in 1..10 {
            assert_eq!(due(&mut schedule, s(5 * round), true), [Action::Poll(0), Action::Poll(1)], "{round}");
        }
    }

    #[test]
    fn final_error_ends_the_attempts_to_subscribe() {
        let mut schedule = Schedule::new(timing(), 1, s(0));
        assert!(schedule.subscription_failed(true, s(0)));
        assert_eq!(due(&mut schedule, s(0), true), [Action::Poll(0)]);
        assert_eq!(schedule.next(s(0)), Action::Wait(s(5)));
    }

    #[test]
    fn polls_everything_after_subscribing_and_rarely_from_then_on() {
        let mut schedule = Schedule::new(timing(), 2, s(0));
        schedule.polled(0, true, s(0));
        schedule.subscribed(s(1));
        assert!(schedule.is_subscribed());
        assert_eq!(due(&mut schedule, s(1), true), [Action::Poll(0), Action::Poll(1)]);
        assert_eq!(schedule.next(s(1)), Action::Wait(s(300)));
        assert_eq!(due(&mut schedule, s(301), true), [Action::Poll(0), Action::Poll(1), Action::ListDevices]);
    }

    #[test]
    fn polls_unhealthy_devices_often() {
        let mut schedule = Schedule::new(timing(), 1, s(0));
        schedule.subscribed(s(0));
        assert_eq!(due(&mut schedule, s(0), false), [Action::Poll(0)]);
        assert_eq!(due(&mut schedule, s(5), false), [Action::Poll(0)]);
        assert_eq!(due(&mut schedule, s(10), true), [Action::Poll(0)]);
        assert_eq!(due(&mut schedule, s(15), true), []);
    }

    #[test]
    fn repeated_faults_do_not_postpone_a_poll() {
        let mut schedule = Schedule::new(timing(), 1, s(0));
        schedule.subscribed(s(0));
        assert_eq!(due(&mut schedule, s(0), true), [Action::Poll(0)]);
        for second in 1..6 {
            schedule.mark_unhealthy(0, s(second));
        }
        assert_eq!(due(&mut schedule, s(6), true), [Action::Poll(0)]);
    }

    #[test]
    fn event_flood_causes_no_poll_flood() {
        let mut schedule = Schedule::new(timing(), 1, s(0));
        schedule.subscribed(s(0));
        let mut polls = 0;
        for millisecond in 0..10_000 {
            let now = Duration::from_millis(millisecond);
            schedule.request_all_polls(now);
            schedule.request_list(now);
            polls += due(&mut schedule, now, true).len();
        }
        assert_eq!(polls, 10);
        assert_eq!(due(&mut schedule, s(60), true), [Action::Poll(0), Action::ListDevices]);
    }

    #[test]
    fn polls_new_devices_at_once() {
        let mut schedule = Schedule::new(timing(), 0, s(0));
        schedule.subscribed(s(0));
        assert_eq!(schedule.next(s(1)), Action::Wait(s(300)));
        schedule.listed(1, s(1));
        assert_eq!(schedule.next(s(1)), Action::Poll(0));
    }
}
