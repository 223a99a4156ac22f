//! The calls into libdcmi.so: the only module of this repository with unsafe code.
//!
//! Signatures are those that `ascend-common/devmanager/dcmi/dcmi.go` and `dcmi_v2.go` cast the symbols to. Every
//! length and index that a call returns is bounded before use.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint};
use std::mem::ManuallyDrop;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};

use crate::layout::{Event, EventFilter};
use crate::queue;
use crate::return_code::ReturnCode;
use crate::text::one_line;

/// The limit of cards of a node.
pub(crate) const CARDS: c_int = 64;

/// The limit of error codes of a device.
pub(crate) const CODES: c_uint = 128;

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

/// The functions of both generations, as far as this library has them.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) v1: V1,
    pub(crate) v2: V2,
    /// Never unloaded: its threads may run, and call back, as long as the process does.
    _library: ManuallyDrop<Library>,
}

impl Functions {
    /// Loads the library as MindCluster does and resolves its functions.
    pub(crate) fn open(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: Loading runs the library's initialisers. It is the driver's own, found by the rule that all of
        // MindCluster's components have, and this process does nothing else; what it may break is this process.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_GLOBAL) }?;
        Ok(Self { v1: V1::load(&library), v2: V2::load(&library), _library: ManuallyDrop::new(library) })
    }
}

/// A struct of functions that may be missing.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($function:ident($($argument:ty),*);)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        #[expect(clippy::struct_field_names, reason = "the names of the symbols")]
        pub(crate) struct $name { $($function: Option<unsafe extern "C" fn($($argument),*) -> c_int>,)* }

        impl $name {
            fn load(library: &Library) -> Self {
                Self { $($function: {
                    // SAFETY: The type is that of the function of this name in the vendor's headers. `Option` takes
                    // a null, as a weak symbol has. The pointer outlives this call since the library is never closed.
                    let symbol = unsafe {
                        library.get::<Option<unsafe extern "C" fn($($argument),*) -> c_int>>(stringify!($function))
                    };
                    symbol.ok().and_then(|symbol| *symbol)
                },)* }
            }
        }
    };
}

/// Calls a function with pointers that are valid for the call.
macro_rules! call {
    ($functions:expr, $function:ident($($argument:expr),*)) => {{
        let name = stringify!($function);
        $functions.$function.ok_or(CallError::Missing(name)).and_then(|function| {
            // SAFETY: The function has this type (see `functions!`). Pointers come from live local variables, arrays
            // with the capacity that is passed beside them, and the library keeps none of them after it returns.
            let returned = unsafe { function($($argument),*) };
            ReturnCode::check(returned).map_err(|code| CallError::Failed { function: name, code })
        })
    }};
}

functions! {
    /// The API of cards and devices.
    V1 {
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
    }
}

functions! {
    /// The API of devices alone, of Ascend 950 drivers.
    V2 {
        dcmiv2_init();
        dcmiv2_get_device_list(*mut c_int, *mut c_int, c_int);
        dcmiv2_get_device_type(c_int, *mut c_uint);
        dcmiv2_get_chip_phy_id_by_dev_id(c_uint, *mut c_uint);
        dcmiv2_get_device_health(c_int, *mut c_uint);
        dcmiv2_get_device_error_code_list(c_int, *mut c_int, *mut c_uint, c_uint);
        dcmiv2_subscribe_fault_event(c_int, EventFilter, Callback);
        dcmiv2_get_dcmi_version(*mut c_char, c_int);
    }
}

impl V1 {
    pub(crate) fn init(&self) -> Call<()> {
        call!(self, dcmi_init())
    }

    pub(crate) fn cards(&self) -> Call<Vec<c_int>> {
        let mut list = [0; CARDS.unsigned_abs() as usize];
        let mut count = 0;
        let (number, cards) = (&raw mut count, list.as_mut_ptr());
        match call!(self, dcmi_get_card_list(number, cards, CARDS)) {
            Err(CallError::Missing(_)) => call!(self, dcmi_get_card_num_list(number, cards, CARDS))?,
            other => other?,
        }
        Ok(prefix(&list, count))
    }

    pub(crate) fn devices_of(&self, card: c_int) -> Call<c_int> {
        let mut count = 0;
        call!(self, dcmi_get_device_num_in_card(card, &raw mut count))?;
        Ok(count)
    }

    /// 0 is an NPU.
    pub(crate) fn kind(&self, card: c_int, device: c_int) -> Call<c_uint> {
        let mut kind = 0;
        call!(self, dcmi_get_device_type(card, device, &raw mut kind))?;
        Ok(kind)
    }

    pub(crate) fn logic_id(&self, card: c_int, device: c_int) -> Call<c_int> {
        let mut logic = -1;
        call!(self, dcmi_get_device_logic_id(&raw mut logic, card, device))?;
        Ok(logic)
    }

    pub(crate) fn physical_id(&self, logic: c_uint) -> Call<c_uint> {
        let mut physical = 0;
        call!(self, dcmi_get_device_phyid_from_logicid(logic, &raw mut physical))?;
        Ok(physical)
    }

    pub(crate) fn health(&self, card: c_int, device: c_int) -> Call<c_uint> {
        let mut health = 0;
        call!(self, dcmi_get_device_health(card, device, &raw mut health))?;
        Ok(health)
    }

    pub(crate) fn error_codes(&self, card: c_int, device: c_int) -> Call<Vec<c_uint>> {
        let mut list = [0; CODES as usize];
        let mut count = 0;
        let (number, codes) = (&raw mut count, list.as_mut_ptr());
        call!(self, dcmi_get_device_errorcode_v2(card, device, number, codes, CODES))?;
        Ok(prefix(&list, count))
    }

    /// Subscribes to all events of all devices.
    pub(crate) fn subscribe(&self) -> Call<()> {
        call!(self, dcmi_subscribe_fault_event(-1, -1, EventFilter::default(), on_event))
    }

    pub(crate) fn dcmi_version(&self) -> Call<Option<String>> {
        let mut text = [0_u8; 2 * DCMI_VERSION.unsigned_abs() as usize];
        let into = text.as_mut_ptr().cast();
        call!(self, dcmi_get_dcmi_version(into, DCMI_VERSION))?;
        Ok(one_line(&text))
    }

    pub(crate) fn driver_version(&self) -> Call<Option<String>> {
        let mut text = [0_u8; 2 * DRIVER_VERSION as usize];
        let into = text.as_mut_ptr().cast();
        call!(self, dcmi_get_driver_version(into, DRIVER_VERSION))?;
        Ok(one_line(&text))
    }
}

impl V2 {
    pub(crate) fn init(&self) -> Call<()> {
        call!(self, dcmiv2_init())
    }

    pub(crate) fn devices(&self) -> Call<Vec<c_int>> {
        let mut list = [0; CARDS.unsigned_abs() as usize];
        let mut count = 0;
        // The list first, unlike that of cards.
        let (devices, number) = (list.as_mut_ptr(), &raw mut count);
        call!(self, dcmiv2_get_device_list(devices, number, CARDS))?;
        Ok(prefix(&list, count))
    }

    pub(crate) fn kind(&self, device: c_int) -> Call<c_uint> {
        let mut kind = 0;
        call!(self, dcmiv2_get_device_type(device, &raw mut kind))?;
        Ok(kind)
    }

    pub(crate) fn physical_id(&self, device: c_uint) -> Call<c_uint> {
        let mut physical = 0;
        call!(self, dcmiv2_get_chip_phy_id_by_dev_id(device, &raw mut physical))?;
        Ok(physical)
    }

    pub(crate) fn health(&self, device: c_int) -> Call<c_uint> {
        let mut health = 0;
        call!(self, dcmiv2_get_device_health(device, &raw mut health))?;
        Ok(health)
    }

    pub(crate) fn error_codes(&self, device: c_int) -> Call<Vec<c_uint>> {
        let mut list = [0; CODES as usize];
        let mut count = 0;
        let (number, codes) = (&raw mut count, list.as_mut_ptr());
        call!(self, dcmiv2_get_device_error_code_list(device, number, codes, CODES))?;
        Ok(prefix(&list, count))
    }

    pub(crate) fn subscribe(&self) -> Call<()> {
        call!(self, dcmiv2_subscribe_fault_event(-1, EventFilter::default(), on_event))
    }

    pub(crate) fn dcmi_version(&self) -> Call<Option<String>> {
        let mut text = [0_u8; 2 * DCMI_VERSION.unsigned_abs() as usize];
        let into = text.as_mut_ptr().cast();
        call!(self, dcmiv2_get_dcmi_version(into, DCMI_VERSION))?;
        Ok(one_line(&text))
    }
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

/// The first `count` elements of a list, or fewer if it is shorter.
fn prefix<T: Copy>(list: &[T], count: c_int) -> Vec<T> {
    let count = usize::try_from(count).unwrap_or(0);
    list.iter().copied().take(count).collect()
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
