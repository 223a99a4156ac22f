//! libdcmi.so, safe to call.

use std::ffi::{c_int, c_uint};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde::{Deserialize, Serialize};

use crate::ffi::{Address, Api, Call, CallError, Functions};
use crate::queue::Events;

/// The value of `dcmi_get_device_health` for a device that is absent or hasn't started.
const ABSENT: c_uint = u32::MAX;

/// `NPU_TYPE` of `enum dcmi_unit_type`; a card has an MCU and a CPU besides.
const NPU: c_uint = 0;

/// A card has one to four devices; more are ignored.
const MAX_DEVICES_PER_CARD: c_int = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The library's address.
    #[serde(flatten)]
    pub address: Address,
    /// The logic id, which events use.
    pub logic: u32,
    /// The physical id: the N of `/dev/davinciN`.
    pub physical: u32,
}

/// The devices of a node.
#[derive(Debug, Default)]
pub struct Listed {
    /// Devices with all ids.
    pub devices: Vec<Device>,
    /// Devices without an unambiguous id, and why.
    pub unnamed: Vec<String>,
}

/// The health of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Normal,
    /// 1 minor, 2 major, 3 critical, or a number that isn't documented.
    Unhealthy(u32),
    /// Absent or not started.
    Absent,
}

/// libdcmi.so can't be loaded.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path} can't be loaded: {problem}; are the driver's folders in LD_LIBRARY_PATH, and is it for this machine?"
)]
pub struct OpenError {
    path: PathBuf,
    /// The loader's message.
    pub problem: String,
}

/// No generation of the API can be initialized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitError {
    /// The error of `dcmi_init`.
    pub v1: CallError,
    /// The error of `dcmiv2_init`.
    pub v2: CallError,
}

impl std::error::Error for InitError {}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the driver can't be initialized: ")?;
        match (self.v1, self.v2) {
            (CallError::Missing(v1), CallError::Missing(v2)) => {
                write!(f, "libdcmi.so has neither {v1} nor {v2}; upgrade the driver")
            }
            // A driver has one generation; that it lacks the other doesn't help the user.
            (one, CallError::Missing(_)) | (CallError::Missing(_), one) => one.fmt(f),
            (v1, v2) => write!(f, "{v1}; {v2}"),
        }
    }
}

/// Why a subscription failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The vendor allows one subscription per process.
    #[error("this process has subscribed already, which is possible once; start another")]
    Already,
}

static SUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// The loaded library.
#[derive(Debug)]
pub struct Library {
    functions: Functions,
    path: PathBuf,
}

impl Library {
    /// Loads the library. It remains loaded until the process exits.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let functions = Functions::open(path)
            .map_err(|error| OpenError { path: path.to_owned(), problem: error_chain(&error) })?;
        Ok(Self { functions, path: path.to_owned() })
    }

    /// Initializes the API, v1 before v2 as MindCluster does.
    pub fn init(&self) -> Result<Dcmi<'_>, InitError> {
        let dcmi = |api| Dcmi { library: self, api };
        let Err(v1) = self.functions.init(Api::V1) else { return Ok(dcmi(Api::V1)) };
        let Err(v2) = self.functions.init(Api::V2) else { return Ok(dcmi(Api::V2)) };
        Err(InitError { v1, v2 })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The initialized API.
#[derive(Debug, Clone, Copy)]
pub struct Dcmi<'l> {
    library: &'l Library,
    api: Api,
}

impl Dcmi<'_> {
    /// The generation of the API.
    pub const fn api(&self) -> Api {
        self.api
    }

    const fn functions(&self) -> &Functions {
        &self.library.functions
    }

    /// The NPUs of this node.
    pub fn devices(&self) -> Result<Listed, CallError> {
        let mut unnamed = Vec::new();
        let found = match self.api {
            Api::V1 => self.by_card(&mut unnamed)?,
            Api::V2 => self.by_device()?,
        };
        let physical = found.iter().map(|(_, logic)| self.functions().physical_id(self.api, *logic));
        let physical: Vec<_> = physical.collect();
        Ok(Listed { devices: assign_physical_ids(&found, &physical, &mut unnamed), unnamed })
    }

    fn by_card(&self, unnamed: &mut Vec<String>) -> Call<Vec<(Address, u32)>> {
        let functions = self.functions();
        let mut found = Vec::new();
        for card in functions.cards(Api::V1)? {
            let count = match functions.devices_of(card) {
                Ok(count) => count.clamp(0, MAX_DEVICES_PER_CARD),
                Err(error) => {
                    unnamed.push(format!("card {card}: {error}"));
                    continue;
                }
            };
            let addresses = (0..count).map(|device| Address { card, device });
            for address in addresses.filter(|address| self.is_npu(*address)) {
                let name = || format!("card {card} device {}", address.device);
                match functions.logic_id(address) {
                    Ok(logic) if logic >= 0 => found.push((address, logic.unsigned_abs())),
                    Ok(logic) => unnamed.push(format!("{} has the logic id {logic}", name())),
                    Err(error) => unnamed.push(format!("{}: {error}", name())),
                }
            }
        }
        Ok(found)
    }

    fn by_device(&self) -> Call<Vec<(Address, u32)>> {
        let devices = self.functions().cards(Api::V2)?.into_iter().filter(|card| *card >= 0);
        let addresses = devices.map(|card| Address { card, device: 0 });
        let npus = addresses.filter(|address| self.is_npu(*address));
        Ok(npus.map(|address| (address, address.card.unsigned_abs())).collect())
    }

    /// A device of unknown kind counts as one.
    fn is_npu(&self, address: Address) -> bool {
        self.functions().kind(self.api, address).unwrap_or(NPU) == NPU
    }

    /// The health of a device.
    pub fn health(&self, address: Address) -> Result<Health, CallError> {
        let health = self.functions().health(self.api, address)?;
        Ok(match health {
            0 => Health::Normal,
            ABSENT => Health::Absent,
            level => Health::Unhealthy(level),
        })
    }

    /// The codes of a device's active faults, without zeros and duplicates.
    pub fn error_codes(&self, address: Address) -> Result<Vec<u32>, CallError> {
        let mut codes = self.functions().error_codes(self.api, address)?;
        codes.retain(|code| *code != 0);
        codes.sort_unstable();
        codes.dedup();
        Ok(codes)
    }

    /// The version of the API, if it reports one.
    pub fn dcmi_version(&self) -> Option<String> {
        self.functions().dcmi_version(self.api).ok().flatten()
    }

    /// The version of the driver, if it reports one.
    pub fn driver_version(&self) -> Option<String> {
        match self.api {
            Api::V1 => self.functions().driver_version().ok().flatten(),
            Api::V2 => None,
        }
    }

    /// Subscribes `events` to all events of all devices. A failed call may be repeated; after success there is no other
    /// subscription in this process.
    pub fn subscribe(&self, _events: &Events) -> Result<(), SubscribeError> {
        if SUBSCRIBED.swap(true, SeqCst) {
            return Err(SubscribeError::Already);
        }
        let subscribed = self.functions().subscribe(self.api);
        if subscribed.is_err() {
            SUBSCRIBED.store(false, SeqCst);
        }
        Ok(subscribed?)
    }
}

/// Assigns physical ids to devices.
///
/// A device whose physical id is unknown gets its logic id, but only if the two are equal for all devices with a known one
/// and no other device has it: an isolated device shifts the logic ids after it, and a wrong id would end another job.
fn assign_physical_ids(
    found: &[(Address, u32)],
    physical: &[Call<u32>],
    unnamed: &mut Vec<String>,
) -> Vec<Device> {
    let known =
        || found.iter().zip(physical).filter_map(|((_, logic), id)| Some((*logic, *id.as_ref().ok()?)));
    let same = known().all(|(logic, physical)| logic == physical);
    let mut devices: Vec<Device> = Vec::new();
    for (&(address, logic), id) in found.iter().zip(physical) {
        let free = |id: u32| !known().any(|(_, other)| other == id);
        let physical = match id {
            Ok(id) => *id,
            Err(_) if same && free(logic) => logic,
            Err(error) => {
                unnamed.push(format!("the device with logic id {logic} has no physical id: {error}"));
                continue;
            }
        };
        if let Some(other) = devices.iter().find(|other| other.physical == physical || other.logic == logic) {
            unnamed.push(format!(
                "the device with logic id {logic} and physical id {physical} has an id of the one with {} and {}",
                other.logic, other.physical
            ));
            continue;
        }
        devices.push(Device { address, logic, physical });
    }
    devices
}

/// An error with all its causes; libloading has the loader's message in the last.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::return_code::ReturnCode;

    const fn at(card: i32) -> Address {
        Address { card, device: 0 }
    }

    fn named(physical: &[Option<u32>]) -> (Vec<(u32, u32)>, usize) {
        let failed = CallError::Failed { function: "f", code: ReturnCode::NOT_READY };
        let physical: Vec<_> = physical.iter().map(|id| id.ok_or(failed)).collect();
        let found: Vec<_> = (0..).take(physical.len()).map(|n: i32| (at(n), n.unsigned_abs())).collect();
        let mut unnamed = Vec::new();
        let devices = assign_physical_ids(&found, &physical, &mut unnamed);
        (devices.iter().map(|device| (device.logic, device.physical)).collect(), unnamed.len())
    }

    #[test]
    fn physical_ids() {
        for (known, devices, unnamed) in [
            (&[Some(0), Some(1)][..], &[(0, 0), (1, 1)][..], 0),
            (&[Some(4), Some(2)], &[(0, 4), (1, 2)], 0),
            (&[None, None], &[(0, 0), (1, 1)], 0),
            (&[Some(0), None, Some(2)], &[(0, 0), (1, 1), (2, 2)], 0),
            // With one isolated, the rest is shifted; the unknown one can't be derived.
            (&[Some(0), Some(2), None], &[(0, 0), (1, 2)], 1),
            (&[Some(1), None], &[(0, 1)], 1),
            (&[Some(3), Some(3)], &[(0, 3)], 1),
            (&[], &[], 0),
        ] {
            assert_eq!(named(known), (devices.to_vec(), unnamed), "{known:?}");
        }
    }
}
