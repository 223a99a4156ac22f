//! libdcmi.so, the driver's management library: its binding, and the process that watches devices through it.
//!
//! A subscription to fault events can be made once in the life of a process, the library may crash or hang, and the
//! loader reads `LD_LIBRARY_PATH` at the start of a process only. So the library lives in a process of its own
//! ([`mod@watch`]), which writes what it sees as lines of JSON ([`Line`]) and is started anew by the agent.
//!
//! - [`Library`], [`Dcmi`]: the binding. Layouts are proven at compile time, every length is bounded, what is missing or
//!   fails is an error with its meaning. The module `ffi` holds the only unsafe code of this repository.
//! - [`Events`]: where the driver's thread leaves events.

mod ffi;
mod layout;
mod library;
mod queue;
mod return_code;
mod text;
pub mod watch;

pub use self::ffi::CallError;
pub use self::layout::{DmsFaultEvent, Event};
pub use self::library::{
    Address, Api, Dcmi, Device, Health, InitError, Library, Listed, OpenError, SubscribeError,
};
pub use self::queue::{CAPACITY, Events, Received};
pub use self::return_code::ReturnCode;
pub use self::watch::Line;
