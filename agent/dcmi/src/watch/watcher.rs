//! The thread that calls the library and receives events.

use std::time::{Duration, Instant};

use swansong_fault_model::{FaultEvent, SourceUpdate, Subject};

use super::PROGRESS_INTERVAL;
use super::device_faults::{DeviceFaults, PollResponse, PollResult};
use super::driver_event::{DriverEvent, Fault};
use super::line::{Line, Mode, State};
use super::output::Output;
use super::schedule::{Action, Schedule};
use super::timing::Timing;
use crate::library::{Dcmi, Device, Library, Listed, SubscribeError};
use crate::queue::{Events, Received, now as clock};

/// The limit of events that are handled between two polls, so a flood doesn't delay the polls for events that it lost.
const MAX_EVENTS: usize = 1024;

pub(super) struct DeviceWatcher<'w> {
    dcmi: Dcmi<'w>,
    events: Events,
    schedule: Schedule,
    /// In the order of `state.devices`.
    faults: Vec<DeviceFaults>,
    state: State,
    output: &'w Output,
    start: Instant,
}

impl<'w> DeviceWatcher<'w> {
    pub(super) fn new(
        dcmi: Dcmi<'w>,
        library: &Library,
        Listed { devices, unnamed }: Listed,
        events: Events,
        timing: Timing,
        output: &'w Output,
    ) -> Self {
        let faults = devices.iter().map(|_| DeviceFaults::default()).collect();
        let schedule = Schedule::new(timing, devices.len(), Duration::ZERO);
        let state = State {
            library: library.path().display().to_string(),
            api: dcmi.api(),
            dcmi_version: dcmi.dcmi_version(),
            driver_version: dcmi.driver_version(),
            devices,
            unnamed,
            mode: Mode::Subscribing,
        };
        Self { dcmi, events, schedule, faults, state, output, start: Instant::now() }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Watches until it fails, and returns why.
    pub(super) fn run(mut self) -> String {
        self.write_state();
        loop {
            self.output.record_progress();
            // Before a poll, so its snapshot is never older than the last event that was written before it.
            let drained = self.handle_queued_events();
            self.output.flush();
            self.handle_lost_events();
            // The event of a fault may still be queued.
            if drained && let Some(why) = self.silent_subscription() {
                return why;
            }
            match self.schedule.next(self.now()) {
                Action::Subscribe => self.subscribe(),
                Action::Poll(index) => self.poll(index),
                Action::ListDevices => self.list_devices(),
                Action::Wait(until) => {
                    let timeout = until.saturating_sub(self.now()).min(PROGRESS_INTERVAL);
                    if let Some(received) = self.events.next(timeout) {
                        self.handle_event(&received);
                        self.output.flush();
                    }
                }
            }
        }
    }

    /// Handles queued events. Returns whether the queue is empty.
    fn handle_queued_events(&mut self) -> bool {
        for _ in 0..MAX_EVENTS {
            let Some(received) = self.events.try_next() else { return true };
            self.handle_event(&received);
        }
        false
    }

    fn handle_event(&mut self, Received { event, at }: &Received) {
        self.output.count(|counts| counts.events += 1);
        match DriverEvent::parse(event) {
            DriverEvent::Ignored => self.output.count(|counts| counts.ignored += 1),
            DriverEvent::Poll { logic, is_valid } => {
                if !is_valid {
                    self.output.count(|counts| counts.ignored += 1);
                }
                if let Some(index) = self.find_device(logic) {
                    self.faults[index].mark_incomplete();
                    self.schedule.request_poll(index, self.now());
                }
            }
            DriverEvent::Fault(fault) => {
                if let Some(index) = self.find_device(fault.logic) {
                    self.handle_fault(index, fault, *at);
                }
            }
        }
    }

    /// The index of the device with this logic id. An unknown one may be new, so devices are listed.
    fn find_device(&mut self, logic: u32) -> Option<usize> {
        let found = self.state.devices.iter().position(|device| device.logic == logic);
        if found.is_none() {
            self.output.count(|counts| counts.unknown_device += 1);
            self.schedule.request_list(self.now());
        }
        found
    }

    fn handle_fault(&mut self, index: usize, fault: Fault, at: u64) {
        self.faults[index].apply_event(&fault);
        if !self.faults[index].is_healthy() {
            self.schedule.mark_unhealthy(index, self.now());
        }
        let Fault { code, severity, assertion, name, .. } = fault;
        self.buffer_update(SourceUpdate::Event(FaultEvent {
            subject: self.subject(index),
            code,
            severity,
            assertion,
            name,
            at,
        }));
    }

    /// Polls all devices if events were lost.
    fn handle_lost_events(&mut self) {
        let lost = self.events.lost();
        if lost > 0 {
            self.output.count(|counts| counts.lost += lost);
            self.faults.iter_mut().for_each(DeviceFaults::mark_incomplete);
            self.schedule.request_all_polls(self.now());
        }
    }

    /// Why the subscription is considered silent. Only another process can subscribe again.
    fn silent_subscription(&self) -> Option<String> {
        let now = self.now();
        let mut devices = self.state.devices.iter().zip(&self.faults);
        devices.find_map(|(device, faults)| {
            let code = faults.overdue_event(now)?;
            Some(format!(
                "the driver no longer sends events: there was none for {code} at npu{}",
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
                self.write_state();
            }
            Err(error) => {
                let is_final = match error {
                    SubscribeError::Call(call) => call.is_final(),
                    SubscribeError::Already => true,
                };
                if self.schedule.subscription_failed(is_final, now) {
                    self.state.mode = Mode::Polling(error.to_string());
                    self.write_state();
                }
            }
        }
    }

    fn poll(&mut self, index: usize) {
        let Device { address, .. } = self.state.devices[index];
        let poll = || -> PollResponse { Ok((self.dcmi.health(address)?, self.dcmi.error_codes(address)?)) };
        let (at, response) = (clock(), poll());
        let now = self.now();
        let result = self.faults[index].apply_poll(response, self.schedule.is_subscribed(), now);
        let is_healthy = matches!(&result, PollResult::Snapshot(faults) if faults.is_empty());
        self.schedule.polled(index, is_healthy, now);
        let subject = self.subject(index);
        self.buffer_update(match result {
            PollResult::Snapshot(faults) => SourceUpdate::Snapshot { subject, faults, at },
            PollResult::Unavailable(reason) => SourceUpdate::Unavailable { subject, reason },
        });
    }

    /// Adds new devices. None is removed: a poll of a device that is no longer listed reports why.
    fn list_devices(&mut self) {
        let listed = self.dcmi.devices().unwrap_or_default();
        let known = &self.state.devices;
        let is_new = |device: &Device| {
            known.iter().all(|old| old.logic != device.logic && old.physical != device.physical)
        };
        let new: Vec<Device> = listed.devices.into_iter().filter(is_new).collect();
        if !new.is_empty() {
            self.state.devices.extend(new);
            self.faults.resize_with(self.state.devices.len(), DeviceFaults::default);
            self.state.unnamed = listed.unnamed;
            self.write_state();
        }
        self.schedule.listed(self.state.devices.len(), self.now());
    }

    fn subject(&self, index: usize) -> Subject {
        Subject::Npu(self.state.devices[index].physical)
    }

    fn buffer_update(&self, update: SourceUpdate) {
        self.output.buffer_line(&Line::Update(update));
    }

    fn write_state(&self) {
        self.output.write_line(&Line::State(self.state.clone()));
    }
}
