//! The calls into libdcmi.so: the only module of this repository with unsafe code.
//!
//! Signatures are those that `ascend-common/devmanager/dcmi/dcmi.go` and `dcmi_v2.go` cast the symbols to. Every
//! length and index that a call returns is bounded before use.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint};
use std::mem::ManuallyDrop;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};
use serde::{Deserialize, Serialize};

use crate::layout::{Event, EventFilter};
use crate::queue;
use crate::return_code::ReturnCode;
use crate::text::one_line;

/// The limit of cards of a node.
const CARDS: c_int = 64;

/// The limit of error codes of a device.
const CODES: c_uint = 128;

/// The buffer of `dcmi_get_dcmi_version`: 32 characters and a zero byte.
const DCMI_VERSION: c_int = 33;

/// The buffer of `dcmi_get_driver_version`.
const DRIVER_VERSION: c_uint = 64;

type Callback = extern "C" fn(*const Event);

/// Why a call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The library doesn't have the function.
    #[error("libdcmi.so has no {0}; upgrade the driver")]
    Missing(&'static str),
    /// The function failed.
    #[error("{function}: {code}")]
    Failed { function: &'static str, code: ReturnCode },
}

impl CallError {
    /// The return code, if the function was called.
    pub const fn code(&self) -> Option<ReturnCode> {
        match self {
            Self::Missing(_) => None,
            Self::Failed { code, .. } => Some(*code),
        }
    }

    /// Whether a retry is useless.
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Missing(_) => true,
            Self::Failed { code, .. } => code.is_final(),
        }
    }
}

pub(crate) type Call<T> = Result<T, CallError>;

/// The generation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// `dcmi_*`: devices are counted by card.
    V1,
    /// `dcmiv2_*`, of Ascend 950 drivers: devices have one number, which is the logic id.
    V2,
}

/// The library's address of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// The card; with [`Api::V2`] the logic id.
    pub card: i32,
    /// The device in the card; with [`Api::V2`] 0.
    pub device: i32,
}

/// The functions of both generations, as far as this library has them.
macro_rules! functions {
    ($($function:ident($($argument:ty),*);)*) => {
        #[derive(Debug)]
        pub(crate) struct Functions {
            $($function: Option<unsafe extern "C" fn($($argument),*) -> c_int>,)*
            /// Never unloaded: its threads may run, and call back, as long as the process does.
            _library: ManuallyDrop<Library>,
        }

        impl Functions {
            /// Loads the library as MindCluster does and resolves its functions.
            pub(crate) fn open(path: &Path) -> Result<Self, libloading::Error> {
                // SAFETY: Loading runs the library's initialisers. It is the driver's own, found by the rule that all of
                // MindCluster's components have, and this process does nothing else; what it may break is this process.
                let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_GLOBAL) }?;
                Ok(Self {
                    $($function: {
                        // SAFETY: The type is that of the function of this name in the vendor's headers. `Option` takes
                        // a null, as a weak symbol has. The pointer outlives this call since the library is never closed.
                        let symbol = unsafe {
                            library.get::<Option<unsafe extern "C" fn($($argument),*) -> c_int>>(stringify!($function))
                        };
                        symbol.ok().and_then(|symbol| *symbol)
                    },)*
                    _library: ManuallyDrop::new(library),
                })
            }
        }
    };
}

functions! {
    dcmi_init();
    dcmi_get_card_list(*mut c_int, *mut c_int, c_int);
    dcmi_get_card_num_list(*mut c_int, *mut c_int, c_int);
    dcmi_get_device_num_in_card(c_int, *mut c_int);
    dcmi_get_device_type(c_int, c_int, *mut c_uint);
    dcmi_get_device_logic_id(*mut c_int, c_int, c_int);
    dcmi_get_device_phyid_from_logicid(c_uint, *mut c_uint);
    dcmi_get_device_health(c_int, c_int, *mut c_uint);
    dcmi_get_device_errorcode_v2(c_int, c_int, *mut c_int, *mut c_uint, c_uint);
    dcmi_subscribe_fault_event(c_int, c_int, EventFilter, Callback);
    dcmi_get_dcmi_version(*mut c_char, c_int);
    dcmi_get_driver_version(*mut c_char, c_uint);

    dcmiv2_init();
    dcmiv2_get_device_list(*mut c_int, *mut c_int, c_int);
    dcmiv2_get_device_type(c_int, *mut c_uint);
    dcmiv2_get_chip_phy_id_by_dev_id(c_uint, *mut c_uint);
    dcmiv2_get_device_health(c_int, *mut c_uint);
    dcmiv2_get_device_error_code_list(c_int, *mut c_int, *mut c_uint, c_uint);
    dcmiv2_subscribe_fault_event(c_int, EventFilter, Callback);
    dcmiv2_get_dcmi_version(*mut c_char, c_int);
}

/// Calls a function with pointers that are valid for the call.
macro_rules! call {
    ($functions:expr, $function:ident($($argument:expr),*)) => {{
        let name = stringify!($function);
        $functions.$function.ok_or(CallError::Missing(name)).and_then(|function| {
            // SAFETY: The function has this type (see `functions!`). Pointers come from `value`, `list` and `text`, whose
            // variables live for the call and have the capacity that is passed beside them; the library keeps none of them.
            let returned = unsafe { function($($argument),*) };
            ReturnCode::check(returned).map_err(|code| CallError::Failed { function: name, code })
        })
    }};
}

impl Functions {
    pub(crate) fn init(&self, api: Api) -> Call<()> {
        match api {
            Api::V1 => call!(self, dcmi_init()),
            Api::V2 => call!(self, dcmiv2_init()),
        }
    }

    /// The cards; with [`Api::V2`] the devices, of which a missing one is -1.
    pub(crate) fn cards(&self, api: Api) -> Call<Vec<c_int>> {
        list::<_, { CARDS.unsigned_abs() as usize }>(|cards, number| match api {
            Api::V1 => match call!(self, dcmi_get_card_list(number, cards, CARDS)) {
                Err(CallError::Missing(_)) => call!(self, dcmi_get_card_num_list(number, cards, CARDS)),
                other => other,
            },
            Api::V2 => call!(self, dcmiv2_get_device_list(cards, number, CARDS)),
        })
    }

    pub(crate) fn devices_of(&self, card: c_int) -> Call<c_int> {
        value(|count| call!(self, dcmi_get_device_num_in_card(card, count)))
    }

    /// 0 is an NPU.
    pub(crate) fn kind(&self, api: Api, at: Address) -> Call<c_uint> {
        value(|kind| match api {
            Api::V1 => call!(self, dcmi_get_device_type(at.card, at.device, kind)),
            Api::V2 => call!(self, dcmiv2_get_device_type(at.card, kind)),
        })
    }

    pub(crate) fn logic_id(&self, at: Address) -> Call<c_int> {
        value(|logic| call!(self, dcmi_get_device_logic_id(logic, at.card, at.device)))
    }

    pub(crate) fn physical_id(&self, api: Api, logic: c_uint) -> Call<c_uint> {
        value(|physical| match api {
            Api::V1 => call!(self, dcmi_get_device_phyid_from_logicid(logic, physical)),
            Api::V2 => call!(self, dcmiv2_get_chip_phy_id_by_dev_id(logic, physical)),
        })
    }

    pub(crate) fn health(&self, api: Api, at: Address) -> Call<c_uint> {
        value(|health| match api {
            Api::V1 => call!(self, dcmi_get_device_health(at.card, at.device, health)),
            Api::V2 => call!(self, dcmiv2_get_device_health(at.card, health)),
        })
    }

    pub(crate) fn error_codes(&self, api: Api, at: Address) -> Call<Vec<c_uint>> {
        list::<_, { CODES as usize }>(|codes, number| match api {
            Api::V1 => {
                call!(self, dcmi_get_device_errorcode_v2(at.card, at.device, number, codes, CODES))
            }
            Api::V2 => call!(self, dcmiv2_get_device_error_code_list(at.card, number, codes, CODES)),
        })
    }

    /// Subscribes to all events of all devices.
    pub(crate) fn subscribe(&self, api: Api) -> Call<()> {
        let filter = EventFilter::default();
        match api {
            Api::V1 => call!(self, dcmi_subscribe_fault_event(-1, -1, filter, on_event)),
            Api::V2 => call!(self, dcmiv2_subscribe_fault_event(-1, filter, on_event)),
        }
    }

    pub(crate) fn dcmi_version(&self, api: Api) -> Call<Option<String>> {
        text(|into| match api {
            Api::V1 => call!(self, dcmi_get_dcmi_version(into, DCMI_VERSION)),
            Api::V2 => call!(self, dcmiv2_get_dcmi_version(into, DCMI_VERSION)),
        })
    }

    pub(crate) fn driver_version(&self) -> Call<Option<String>> {
        text(|into| call!(self, dcmi_get_driver_version(into, DRIVER_VERSION)))
    }
}

/// The value that `call` writes.
fn value<T: Default>(call: impl FnOnce(*mut T) -> Call<()>) -> Call<T> {
    let mut value = T::default();
    call(&raw mut value)?;
    Ok(value)
}

/// The list that `call` writes, of at most `N` elements. The number that it writes beside them may be larger.
fn list<T: Copy + Default, const N: usize>(
    call: impl FnOnce(*mut T, *mut c_int) -> Call<()>,
) -> Call<Vec<T>> {
    let (mut list, mut count) = ([T::default(); N], 0);
    call(list.as_mut_ptr(), &raw mut count)?;
    let count = usize::try_from(count).unwrap_or(0);
    Ok(list.into_iter().take(count).collect())
}

/// The text that `call` writes into a buffer of twice the longest size that is passed.
fn text(call: impl FnOnce(*mut c_char) -> Call<()>) -> Call<Option<String>> {
    let mut text = [0_u8; 2 * DRIVER_VERSION as usize];
    call(text.as_mut_ptr().cast())?;
    Ok(one_line(&text))
}

/// Called by the driver's thread. It copies the event, as the pointer is invalid afterwards.
extern "C" fn on_event(event: *const Event) {
    if event.is_null() {
        queue::lost_one();
        return;
    }
    // SAFETY: The driver passes a `struct dcmi_event` that lives for the call. Every field takes any bits. Nothing says
    // that it is aligned, so it isn't taken to be.
    let event = unsafe { event.read_unaligned() };
    queue::push(&event);
}

mod exit {
    use std::ffi::c_int;

    // SAFETY: As POSIX declares it.
    unsafe extern "C" {
        pub(super) safe fn _exit(status: c_int) -> !;
    }
}

/// Ends the process without running what libraries registered for its end: a driver that hangs hangs there too.
pub(crate) fn exit_at_once(status: u8) -> ! {
    exit::_exit(status.into())
}
