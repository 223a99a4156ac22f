//! What to ask the library next. Times are counted from any moment, and come in as arguments.

use std::time::Duration;

/// A device that has to be asked is asked again no sooner than so long after it was.
const BREATH: Duration = Duration::from_secs(1);

/// Devices are listed again for an event of one that isn't known no sooner than so long after they were.
const BETWEEN_LISTS: Duration = Duration::from_mins(1);

/// MindCluster's device plugin tries three times.
const TRIES: u32 = 3;

/// How often to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paces {
    /// Between tries to subscribe.
    pub(crate) subscribe: Duration,
    /// Devices without events, and devices that are ill.
    pub(crate) poll: Duration,
    /// All others.
    pub(crate) repoll: Duration,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Subscribe,
    /// Ask the device with this index.
    Poll(usize),
    /// List the devices.
    List,
    /// Nothing until then.
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
    asked: Option<Duration>,
}

/// When to ask what.
#[derive(Debug)]
pub(crate) struct Schedule {
    paces: Paces,
    subscription: Subscription,
    devices: Vec<Due>,
    list: Due,
}

impl Schedule {
    /// Asks everything at once.
    pub(crate) fn new(paces: Paces, devices: usize, now: Duration) -> Self {
        let mut schedule = Self {
            paces,
            subscription: Subscription::Trying { left: TRIES, at: now },
            devices: Vec::new(),
            list: Due { at: now + paces.repoll, asked: Some(now) },
        };
        schedule.listed(devices, now);
        schedule
    }

    pub(crate) fn next(&self, now: Duration) -> Step {
        if let Subscription::Trying { at, .. } = self.subscription
            && at <= now
        {
            return Step::Subscribe;
        }
        let soonest = self.devices.iter().enumerate().min_by_key(|(_, due)| due.at);
        let mut wait = self.list.at;
        if let Some((index, due)) = soonest {
            if due.at <= now {
                return Step::Poll(index);
            }
            wait = wait.min(due.at);
        }
        if self.list.at <= now {
            return Step::List;
        }
        if let Subscription::Trying { at, .. } = self.subscription {
            wait = wait.min(at);
        }
        Step::Wait(wait)
    }

    /// Events come from now on; what came before has to be asked for.
    pub(crate) fn subscribed(&mut self, now: Duration) {
        self.subscription = Subscription::Active;
        for due in &mut self.devices {
            due.at = now;
        }
    }

    /// It couldn't be subscribed; whether that is for good, by what was said or by the number of tries.
    pub(crate) fn refused(&mut self, in_vain: bool, now: Duration) -> bool {
        let Subscription::Trying { left, .. } = self.subscription else { return true };
        let over = in_vain || left <= 1;
        self.subscription = if over {
            Subscription::Refused
        } else {
            Subscription::Trying { left: left - 1, at: now + self.paces.subscribe }
        };
        if over {
            for due in &mut self.devices {
                due.at = due.at.min(due.asked.unwrap_or(now) + self.paces.poll);
            }
        }
        over
    }

    /// Whether the driver tells events.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscription == Subscription::Active
    }

    /// A device was asked, and is well or not.
    pub(crate) fn polled(&mut self, index: usize, well: bool, now: Duration) {
        let pace = if well && self.subscription != Subscription::Refused {
            self.paces.repoll
        } else {
            self.paces.poll
        };
        if let Some(due) = self.devices.get_mut(index) {
            *due = Due { at: now + pace, asked: Some(now) };
        }
    }

    /// A device has a fault: from now on it is asked as often as one that is ill.
    pub(crate) fn is_ill(&mut self, index: usize, now: Duration) {
        let soon = now + self.paces.poll;
        if let Some(due) = self.devices.get_mut(index) {
            due.at = due.at.min(soon);
        }
    }

    /// A device has to be asked.
    pub(crate) fn ask(&mut self, index: usize, now: Duration) {
        if let Some(due) = self.devices.get_mut(index) {
            due.at = due.at.min(due.asked.map_or(now, |asked| now.max(asked + BREATH)));
        }
    }

    /// All have to be asked.
    pub(crate) fn ask_all(&mut self, now: Duration) {
        for index in 0..self.devices.len() {
            self.ask(index, now);
        }
    }

    /// There may be others.
    pub(crate) fn ask_for_list(&mut self, now: Duration) {
        let soonest = self.list.asked.map_or(now, |asked| now.max(asked + BETWEEN_LISTS));
        self.list.at = self.list.at.min(soonest);
    }

    /// There are so many devices; none goes.
    pub(crate) fn listed(&mut self, devices: usize, now: Duration) {
        self.devices.resize(devices.max(self.devices.len()), Due { at: now, asked: None });
        self.list = Due { at: now + self.paces.repoll, asked: Some(now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACES: Paces = Paces {
        subscribe: Duration::from_secs(1),
        poll: Duration::from_secs(5),
        repoll: Duration::from_mins(5),
    };

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Does what is due at `now` and gives it.
    fn due(schedule: &mut Schedule, now: Duration, well: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let step = schedule.next(now);
            match step {
                Step::Wait(until) => {
                    assert!(until > now);
                    return steps;
                }
                Step::Poll(index) => schedule.polled(index, well, now),
                Step::List => schedule.listed(0, now),
                Step::Subscribe => {
                    schedule.refused(false, now);
                }
            }
            steps.push(step);
        }
    }

    #[test]
    fn subscribes_three_times_a_second_apart_and_polls_then() {
        let mut schedule = Schedule::new(PACES, 2, s(0));
        assert_eq!(due(&mut schedule, s(0), true), [Step::Subscribe, Step::Poll(0), Step::Poll(1)]);
        assert_eq!(schedule.next(s(0)), Step::Wait(s(1)));
        assert_eq!(due(&mut schedule, s(1), true), [Step::Subscribe]);
        assert_eq!(due(&mut schedule, s(2), true), [Step::Subscribe]);
        assert_eq!(schedule.next(s(2)), Step::Wait(s(5)));
        for round in 1..10 {
            assert_eq!(due(&mut schedule, s(5 * round), true), [Step::Poll(0), Step::Poll(1)], "{round}");
        }
    }

    #[test]
    fn what_is_refused_for_good_is_not_tried_again() {
        let mut schedule = Schedule::new(PACES, 1, s(0));
        assert!(schedule.refused(true, s(0)));
        assert_eq!(due(&mut schedule, s(0), true), [Step::Poll(0)]);
        assert_eq!(schedule.next(s(0)), Step::Wait(s(5)));
    }

    #[test]
    fn everything_is_asked_after_the_subscription_and_then_seldom() {
        let mut schedule = Schedule::new(PACES, 2, s(0));
        schedule.polled(0, true, s(0));
        schedule.subscribed(s(1));
        assert!(schedule.is_subscribed());
        assert_eq!(due(&mut schedule, s(1), true), [Step::Poll(0), Step::Poll(1)]);
        assert_eq!(schedule.next(s(1)), Step::Wait(s(300)));
        assert_eq!(due(&mut schedule, s(301), true), [Step::Poll(0), Step::Poll(1), Step::List]);
    }

    #[test]
    fn an_ill_device_is_asked_often_until_it_is_well() {
        let mut schedule = Schedule::new(PACES, 1, s(0));
        schedule.subscribed(s(0));
        assert_eq!(due(&mut schedule, s(0), false), [Step::Poll(0)]);
        assert_eq!(due(&mut schedule, s(5), false), [Step::Poll(0)]);
        assert_eq!(due(&mut schedule, s(10), true), [Step::Poll(0)]);
        assert_eq!(due(&mut schedule, s(15), true), []);
    }

    #[test]
    fn what_comes_and_goes_puts_no_question_off() {
        let mut schedule = Schedule::new(PACES, 1, s(0));
        schedule.subscribed(s(0));
        assert_eq!(due(&mut schedule, s(0), true), [Step::Poll(0)]);
        for second in 1..6 {
            schedule.is_ill(0, s(second));
        }
        assert_eq!(due(&mut schedule, s(6), true), [Step::Poll(0)]);
    }

    #[test]
    fn a_flood_does_not_make_a_flood_of_questions() {
        let mut schedule = Schedule::new(PACES, 1, s(0));
        schedule.subscribed(s(0));
        let mut polls = 0;
        for millisecond in 0..10_000 {
            let now = Duration::from_millis(millisecond);
            schedule.ask_all(now);
            schedule.ask_for_list(now);
            polls += due(&mut schedule, now, true).len();
        }
        assert_eq!(polls, 10);
        assert_eq!(due(&mut schedule, s(60), true), [Step::Poll(0), Step::List]);
    }

    #[test]
    fn a_new_device_is_asked_at_once() {
        let mut schedule = Schedule::new(PACES, 0, s(0));
        schedule.subscribed(s(0));
        assert_eq!(schedule.next(s(1)), Step::Wait(s(300)));
        schedule.listed(1, s(1));
        assert_eq!(schedule.next(s(1)), Step::Poll(0));
    }
}
