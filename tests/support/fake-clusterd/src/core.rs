//! ClusterD's state and its handling of messages, as a pure core: times are passed in, in milliseconds.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use serde_json::{Value, json};
use swansong_clusterd::customization::{BUILT_IN, customize};
use swansong_clusterd_client::proto::{Fault, PubFaultInfo, PublicFaultRequest, RespStatus};

use crate::bucket::Bucket;
use crate::ledger::{AcceptedFault, Answer, Dropped, Effect, Kill, Ledger};
use crate::rules;
use crate::whitelist::{Customization, Mark, Whitelist};

/// Limit of faults in the cache.
const CACHE: usize = 50_000;
/// ClusterD delays the end of a fault until it is this many seconds old.
const SETTLE: u64 = 5;
/// Limit of faults in `statistic-fault-info`.
const SHOWN: usize = 4500;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The senders and fault codes that ClusterD accepts.
    pub customization: Customization,
    /// Nodes with a device-info ConfigMap; faults of others are accepted without effect. `None` for all.
    pub nodes: Option<HashSet<String>>,
    /// A node without serial-number annotation; faults without a node name affect it.
    pub unnumbered: String,
    /// Limit of connections from one address; 512 unless all agents of a test share an address.
    pub per_source: usize,
}

impl Default for Settings {
    /// Swansong's codes are installed, and all nodes are known.
    fn default() -> Self {
        let ours = customize(BUILT_IN).map(|ours| ours.text).unwrap_or_default();
        Self {
            customization: Customization::Text(ours),
            nodes: None,
            unnumbered: "some-other-node".to_owned(),
            per_source: 512,
        }
    }
}

/// A fault in the cache. Times are in seconds.
#[derive(Debug, Clone)]
struct CachedFault {
    resource: String,
    fault_id: String,
    fault_type: String,
    code: String,
    level: &'static str,
    devices: Vec<i32>,
    fault_time: i64,
    added: u64,
}

/// A pending deletion, due at `at` seconds.
#[derive(Debug)]
struct Deletion {
    at: u64,
    node: String,
    key: String,
}

#[derive(Debug)]
pub struct Core {
    settings: Settings,
    /// Read at the first public fault.
    whitelist: Option<(Mark, Whitelist)>,
    buckets: HashMap<String, Bucket>,
    /// Node, then resource + fault id.
    faults: BTreeMap<String, BTreeMap<String, CachedFault>>,
    deletions: VecDeque<Deletion>,
    /// Nodes and devices whose ranks were ended. The real ClusterD keeps them in memory only.
    handled: HashSet<(String, i32)>,
    ledger: Ledger,
}

impl Core {
    /// The state after a start without faults.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            whitelist: None,
            buckets: HashMap::new(),
            faults: BTreeMap::new(),
            deletions: VecDeque::new(),
            handled: HashSet::new(),
            ledger: Ledger::default(),
        }
    }

    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Replaces the file. As in the real ClusterD this fills all buckets.
    pub fn customize(&mut self, customization: Customization) {
        self.settings.customization = customization;
        self.whitelist = None;
    }

    /// Handles a public fault that arrives at `now` by gRPC or ConfigMap.
    pub fn send_public_fault(&mut self, message: &PublicFaultRequest, now: u64) -> RespStatus {
        self.tick(now);
        let (code, info) = match self.collect(message, now) {
            Ok(()) => (0, "public fault send successfully".to_owned()),
            Err((code, info)) => (code, info),
        };
        let faults = message.faults.len();
        self.ledger.answers.push(Answer { at: now, code, info: info.clone(), faults });
        RespStatus { code, info }
    }

    fn collect(&mut self, message: &PublicFaultRequest, now: u64) -> Result<(), (i32, String)> {
        let whitelist = self.load(now);
        // The rate limit comes first, so unknown senders get the same answer as those that exceed it.
        if !self.buckets.get_mut(&message.resource).is_some_and(|bucket| bucket.take(now)) {
            return Err((410, "limiter work by resource failed".to_owned()));
        }
        let refused = |why: &str| (409, format!("check public fault info failed, error: {why}"));
        rules::envelope(message, &whitelist).map_err(refused)?;
        let mut valid = Vec::new();
        for fault in &message.faults {
            match rules::fault(fault, &whitelist) {
                Ok(()) => valid.push(fault),
                Err(why) => self.ledger.dropped.push(Dropped { fault_id: fault.fault_id.clone(), why }),
            }
        }
        if valid.is_empty() {
            return Err(refused("there is no valid fault"));
        }
        for fault in valid {
            for influence in &fault.influence {
                self.take(message, fault, influence, &whitelist, now);
            }
        }
        Ok(())
    }

    /// The whitelist; the file is read again when it has changed.
    fn load(&mut self, now: u64) -> Whitelist {
        let mark = self.settings.customization.mark();
        match &self.whitelist {
            Some((old, whitelist)) if *old == mark => whitelist.clone(),
            _ => {
                let whitelist = self.settings.customization.read();
                let full = |resource: &str| (resource.to_owned(), Bucket::new(1, 100, now));
                self.buckets = whitelist.resources().map(full).collect();
                self.whitelist = Some((mark, whitelist.clone()));
                whitelist
            }
        }
    }

    fn take(
        &mut self,
        message: &PublicFaultRequest,
        fault: &Fault,
        influence: &PubFaultInfo,
        whitelist: &Whitelist,
        now: u64,
    ) {
        let nameless = influence.node_name.is_empty();
        let node = if nameless { &self.settings.unnumbered } else { &influence.node_name }.clone();
        let key = format!("{}{}", message.resource, fault.fault_id);
        let seconds = now / 1000;
        let added = self.faults.get(&node).and_then(|faults| faults.get(&key)).map(|fault| fault.added);
        let later = |at| Deletion { at, node: node.clone(), key: key.clone() };
        let effect = match (fault.assertion.as_str(), added) {
            ("recover", None) => {
                self.deletions.push_back(later(seconds + SETTLE));
                Effect::Unknown
            }
            ("recover", Some(added)) if seconds - added >= SETTLE => {
                self.remove(&node, &key);
                Effect::Recovered
            }
            ("recover", Some(added)) => {
                self.deletions.push_back(later(added + SETTLE));
                Effect::Deferred
            }
            (_, Some(_)) => Effect::Repeated,
            (_, None) if self.count() >= CACHE => Effect::Full,
            (assertion, None) => {
                if assertion == "once" {
                    self.deletions.push_back(later(seconds + SETTLE));
                }
                let cached = CachedFault {
                    resource: message.resource.clone(),
                    fault_id: fault.fault_id.clone(),
                    fault_type: fault.fault_type.clone(),
                    code: fault.fault_code.clone(),
                    level: whitelist.level(&fault.fault_code).unwrap_or_default(),
                    devices: influence.device_ids.clone(),
                    fault_time: fault.fault_time / 1000,
                    added: seconds,
                };
                self.faults.entry(node.clone()).or_default().insert(key.clone(), cached);
                self.kill(&node, &key, now);
                Effect::Added
            }
        };
        let accepted = AcceptedFault {
            at: now,
            message: message.id.clone(),
            resource: message.resource.clone(),
            fault_id: fault.fault_id.clone(),
            assertion: fault.assertion.clone(),
            node,
            devices: influence.device_ids.clone(),
            code: fault.fault_code.clone(),
            fault_time: fault.fault_time,
            effect,
        };
        if nameless {
            self.ledger.misdirected.push(accepted.clone());
        }
        self.ledger.accepted.push(accepted);
    }

    /// Executes the deletions that are due at `now`, in their order.
    pub fn tick(&mut self, now: u64) {
        while self.deletions.front().is_some_and(|first| first.at <= now / 1000) {
            if let Some(Deletion { node, key, .. }) = self.deletions.pop_front() {
                self.remove(&node, &key);
            }
        }
    }

    fn remove(&mut self, node: &str, key: &str) {
        let Some(faults) = self.faults.get_mut(node) else { return };
        let gone = faults.remove(key);
        if faults.is_empty() {
            self.faults.remove(node);
        }
        for device in gone.into_iter().flat_map(|fault| fault.devices) {
            self.handled.remove(&(node.to_owned(), device));
        }
    }

    /// Ends the ranks on the devices of a `SeparateNPU` fault, once for each device.
    fn kill(&mut self, node: &str, key: &str, now: u64) {
        let known = self.settings.nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
        let fault = self.faults.get(node).and_then(|faults| faults.get(key)).filter(|_| known);
        let Some(fault) = fault.filter(|fault| fault.level == "SeparateNPU") else { return };
        let devices = fault.devices.iter().copied();
        let devices: Vec<_> =
            devices.filter(|device| self.handled.insert((node.to_owned(), *device))).collect();
        if !devices.is_empty() {
            let (node, fault_id) = (node.to_owned(), fault.fault_id.clone());
            self.ledger.kills.push(Kill { at: now, node, devices, fault_id });
        }
    }

    fn count(&self) -> usize {
        self.faults.values().map(BTreeMap::len).sum()
    }

    /// Restarts at `now`: active faults are loaded from `statistic-fault-info`, handled devices and pending deletions are
    /// lost.
    pub fn restart(&mut self, now: u64) {
        self.whitelist = None;
        self.buckets.clear();
        self.deletions.clear();
        self.handled.clear();
        for fault in self.faults.values_mut().flat_map(BTreeMap::values_mut) {
            fault.added = now / 1000;
        }
        let keys = |(node, faults): (&String, &BTreeMap<String, CachedFault>)| {
            faults.keys().map(|key| (node.clone(), key.clone())).collect::<Vec<_>>()
        };
        let all: Vec<_> = self.faults.iter().flat_map(keys).collect();
        for (node, key) in all {
            self.kill(&node, &key, now);
        }
    }

    /// `data` of the ConfigMap `statistic-fault-info`.
    pub fn statistic(&self) -> BTreeMap<String, String> {
        let count = self.count();
        let mut data =
            BTreeMap::from([("FaultNum".to_owned(), json!({"publicFaultNum": count}).to_string())]);
        if count > SHOWN {
            let description = "The current total number of faults is too large, and only a portion of the detailed fault data is displayed";
            data.insert("Description".to_owned(), description.to_owned());
        }
        let nodes = self.faults.iter().map(|(node, faults)| {
            let faults: Vec<_> = faults.values().map(CachedFault::to_json).collect();
            (node.clone(), Value::from(faults))
        });
        let faults: serde_json::Map<_, _> = nodes.collect();
        data.insert("PublicFaults".to_owned(), Value::from(faults).to_string());
        data
    }

    /// Records an answer that was given because of the configured [`Behaviour`](crate::Behaviour).
    pub(crate) fn note(&mut self, answer: Answer) {
        self.ledger.answers.push(answer);
    }
}

impl CachedFault {
    fn to_json(&self) -> Value {
        json!({
            "resource": self.resource,
            "devIds": self.devices,
            "faultId": self.fault_id,
            "type": self.fault_type,
            "faultCode": self.code,
            "level": self.level,
            "faultTime": self.fault_time,
        })
    }
}
