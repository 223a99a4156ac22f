//! The thread that calls the library and takes events.

use std::time::{Duration, Instant};

use swansong_fault_model::{FaultEvent, SourceUpdate, Subject};

use super::MOVES;
use super::known::{Answer, Known, Told};
use super::line::{Line, Mode, State};
use super::meaning::{Fault, Meaning};
use super::output::Output;
use super::schedule::{Paces, Schedule, Step};
use crate::library::{Dcmi, Device, Library, Listed, SubscribeError};
use crate::queue::{Events, Received, now as clock};

/// How many events are taken before devices get their turn: a flood mustn't hold back what it may have lost.
const TURN: usize = 1024;

pub(super) struct Watcher<'w> {
    dcmi: Dcmi<'w>,
    events: Events,
    schedule: Schedule,
    /// In the order of `state.devices`.
    known: Vec<Known>,
    state: State,
    output: &'w Output,
    begun: Instant,
}

impl<'w> Watcher<'w> {
    pub(super) fn new(
        dcmi: Dcmi<'w>,
        library: &Library,
        Listed { devices, unnamed }: Listed,
        events: Events,
        paces: Paces,
        output: &'w Output,
    ) -> Self {
        let known = devices.iter().map(|_| Known::default()).collect();
        let schedule = Schedule::new(paces, devices.len(), Duration::ZERO);
        let state = State {
            library: library.path().display().to_string(),
            api: dcmi.api(),
            dcmi_version: dcmi.dcmi_version(),
            driver_version: dcmi.driver_version(),
            devices,
            unnamed,
            mode: Mode::Subscribing,
        };
        Self { dcmi, events, schedule, known, state, output, begun: Instant::now() }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Watches; why it can't any more.
    pub(super) fn run(mut self) -> String {
        self.tell_state();
        loop {
            self.output.moved();
            // Before a device is asked, so that what it says is never older than the last event told before.
            let drained = self.take_waiting();
            self.output.flush();
            self.see_to_losses();
            // What told a fault may still be waiting.
            if drained && let Some(why) = self.silence() {
                return why;
            }
            match self.schedule.next(self.now()) {
                Step::Subscribe => self.subscribe(),
                Step::Poll(index) => self.poll(index),
                Step::List => self.list(),
                Step::Wait(until) => {
                    let patience = until.saturating_sub(self.now()).min(MOVES);
                    if let Some(received) = self.events.next(patience) {
                        self.take(&received);
                        self.output.flush();
                    }
                }
            }
        }
    }

    /// Takes what waits; whether that was all.
    fn take_waiting(&mut self) -> bool {
        for _ in 0..TURN {
            let Some(received) = self.events.waiting() else { return true };
            self.take(&received);
        }
        false
    }

    fn take(&mut self, Received { event, at }: &Received) {
        self.output.count(|counts| counts.events += 1);
        match Meaning::of(event) {
            Meaning::Nothing => self.output.count(|counts| counts.ignored += 1),
            Meaning::Ask { logic, understood } => {
                if !understood {
                    self.output.count(|counts| counts.ignored += 1);
                }
                if let Some(index) = self.find(logic) {
                    self.known[index].may_have_missed();
                    self.schedule.ask(index, self.now());
                }
            }
            Meaning::Fault(fault) => {
                if let Some(index) = self.find(fault.logic) {
                    self.happened(index, fault, *at);
                }
            }
        }
    }

    /// The device that events call so. One that isn't known may be new.
    fn find(&mut self, logic: u32) -> Option<usize> {
        let found = self.state.devices.iter().position(|device| device.logic == logic);
        if found.is_none() {
            self.output.count(|counts| counts.unknown_device += 1);
            self.schedule.ask_for_list(self.now());
        }
        found
    }

    fn happened(&mut self, index: usize, fault: Fault, at: u64) {
        self.known[index].event(&fault);
        if !self.known[index].is_well() {
            self.schedule.is_ill(index, self.now());
        }
        let Fault { code, severity, assertion, name, .. } = fault;
        self.see(SourceUpdate::Event(FaultEvent {
            subject: self.subject(index),
            code,
            severity,
            assertion,
            name,
            at,
        }));
    }

    /// Whatever was lost, the devices know what stands.
    fn see_to_losses(&mut self) {
        let lost = self.events.lost();
        if lost > 0 {
            self.output.count(|counts| counts.lost += lost);
            self.known.iter_mut().for_each(Known::may_have_missed);
            self.schedule.ask_all(self.now());
        }
    }

    /// Faults that are there and that nothing told. Only another process can subscribe again.
    fn silence(&self) -> Option<String> {
        let now = self.now();
        let mut devices = self.state.devices.iter().zip(&self.known);
        devices.find_map(|(device, known)| {
            let code = known.untold(now)?;
            Some(format!(
                "the driver tells no events any more: {code} stands at npu{} and none told it",
                device.physical
            ))
        })
    }

    fn subscribe(&mut self) {
        let now = self.now();
        match self.dcmi.subscribe(&self.events) {
            Ok(()) => {
                self.schedule.subscribed(now);
                self.state.mode = Mode::Subscribed;
                self.tell_state();
            }
            Err(error) => {
                let in_vain = match error {
                    SubscribeError::Call(call) => call.is_final(),
                    SubscribeError::Already => true,
                };
                if self.schedule.refused(in_vain, now) {
                    self.state.mode = Mode::Polling(error.to_string());
                    self.tell_state();
                }
            }
        }
    }

    fn poll(&mut self, index: usize) {
        let Device { address, .. } = self.state.devices[index];
        let ask = || -> Answer { Ok((self.dcmi.health(address)?, self.dcmi.error_codes(address)?)) };
        let (at, answer) = (clock(), ask());
        let now = self.now();
        let told = self.known[index].answered(answer, self.schedule.is_subscribed(), now);
        let well = matches!(&told, Told::All(standing) if standing.is_empty());
        self.schedule.polled(index, well, now);
        let subject = self.subject(index);
        self.see(match told {
            Told::All(standing) => SourceUpdate::Snapshot { subject, faults: standing, at },
            Told::Blind(why) => SourceUpdate::Unavailable { subject, reason: why },
        });
    }

    /// New devices are added. None is taken away: one that isn't listed any more is asked and says why.
    fn list(&mut self) {
        let listed = self.dcmi.devices().unwrap_or_default();
        let known = &self.state.devices;
        let is_new = |device: &Device| {
            known.iter().all(|old| old.logic != device.logic && old.physical != device.physical)
        };
        let new: Vec<Device> = listed.devices.into_iter().filter(is_new).collect();
        if !new.is_empty() {
            self.state.devices.extend(new);
            self.known.resize_with(self.state.devices.len(), Known::default);
            self.state.unnamed = listed.unnamed;
            self.tell_state();
        }
        self.schedule.listed(self.state.devices.len(), self.now());
    }

    fn subject(&self, index: usize) -> Subject {
        Subject::Npu(self.state.devices[index].physical)
    }

    fn see(&self, seen: SourceUpdate) {
        self.output.put(&Line::Update(seen));
    }

    fn tell_state(&self) {
        self.output.tell(&Line::State(self.state.clone()));
    }
}
