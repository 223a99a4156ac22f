mod after_sending;
mod before_sending;

use super::*;
use crate::code::Code;
use crate::fault::{Classification, Handling};
use crate::level::Level;
use crate::source_update::{ActiveFault, Severity, SourceUpdate};
use crate::tracker::Context;

const SETTLE: Duration = Duration::from_secs(5);
const CODE: u32 = 0x80E0_1801;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A node whose NPUs report faults of one level, and its reconciler.
struct Node {
    tracker: FaultTracker,
    reconciler: Reconciler,
    level: Level,
    is_plugin_reporting: bool,
    preflight: Option<Preflight>,
    is_classified: bool,
}

impl Node {
    /// ClusterD was observed without faults.
    fn new(level: Level) -> Self {
        Self::with(level, Settings::default())
    }

    fn with(level: Level, settings: Settings) -> Self {
        let mut node = Self {
            tracker: FaultTracker::new("n", None),
            reconciler: Reconciler::new(settings, Duration::ZERO),
            level,
            is_plugin_reporting: false,
            preflight: None,
            is_classified: true,
        };
        node.observe(&[], Duration::ZERO);
        node
    }

    /// What NPU 3 reports.
    fn report(&mut self, codes: &[u32]) -> &mut Self {
        self.report_of(3, codes)
    }

    fn report_of(&mut self, npu: u32, codes: &[u32]) -> &mut Self {
        let level = self.level;
        let classify =
            move |_: &Code, _: Option<Severity>| Classification { level, reason: "test".to_owned() };
        let active = |&code| ActiveFault { code: Code::from(code), severity: None, name: None };
        let faults = codes.iter().map(active).collect();
        let update = SourceUpdate::Snapshot { subject: Subject::Npu(npu), faults, at: 1_784_000_000_000 };
        let context = Context { classify: &classify, devices: &[], now: 0, notices: false };
        self.tracker.apply("dcmi", &update, context);
        self
    }

    fn plan(&mut self, now: Duration) -> Plan {
        let Self { tracker, reconciler, is_plugin_reporting, preflight, is_classified, .. } = self;
        reconciler.reconcile(
            tracker,
            &Inputs {
                now,
                is_reported_by_device_plugin: &|_| *is_plugin_reporting,
                preflight: &|_| *preflight,
                is_classified: *is_classified,
            },
        )
    }

    /// With a preflight that has just been made and objects to nothing.
    fn cleared(&mut self, now: Duration) -> Plan {
        self.preflight = Some(Preflight { at: now, objects_since: None });
        self.plan(now)
    }

    fn complete(&mut self, plan: Plan, result: Result<(), BatchError>, now: Duration) -> Completed {
        self.reconciler.complete(&mut self.tracker, plan.batch, result, now, 0.5)
    }

    fn observe(&mut self, ids: &[&str], now: Duration) {
        let faults = ids.iter().map(|id| ((*id).to_owned(), Some(Handling::EndRanks))).collect();
        let observed = Observed { faults, is_complete: true };
        self.reconciler.observe(&mut self.tracker, &observed, now);
    }

    fn phase(&self) -> &Phase {
        let mut faults = self.tracker.faults();
        let fault = faults.next().expect("a fault");
        assert!(faults.next().is_none(), "one fault");
        &fault.phase
    }

    fn id(&self) -> String {
        self.tracker.faults().next().expect("a fault").id.clone()
    }

    /// A fault of NPU 3 that ClusterD has accepted at `now`.
    fn sent(level: Level, now: Duration) -> Self {
        let mut node = Self::new(level);
        node.report(&[CODE]);
        // It has been reported for long enough.
        node.plan(Duration::ZERO);
        let plan = node.cleared(now);
        assert_eq!(assertions(&plan), [Assertion::Occur]);
        node.complete(plan, Ok(()), now);
        assert_eq!(*node.phase(), Phase::Sent);
        node
    }
}

fn assertions(plan: &Plan) -> Vec<Assertion> {
    plan.batch.iter().map(|outbound| outbound.assertion).collect()
}

fn causes(plan: &Plan) -> Vec<Cause> {
    plan.batch.iter().map(|outbound| outbound.cause).collect()
}

fn invalid() -> Result<(), BatchError> {
    Err(BatchError::Invalid("no valid fault".to_owned()))
}
