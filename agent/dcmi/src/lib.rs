//! libdcmi.so, the driver's management library: its binding, and the process that watches devices through it.
//!
//! A process can subscribe to fault events once, the library may crash or hang, and the loader reads `LD_LIBRARY_PATH`
//! only when a process starts. Therefore a separate process ([`mod@watch`]) uses the library. It writes lines of JSON
//! ([`Line`]), and the agent restarts it when it exits.
//!
//! - [`Library`], [`Dcmi`]: the binding. Layouts are checked at compile time, every length is bounded, and a missing
//!   function or a failed call is an error with its meaning. The module `ffi` has the only unsafe code of this repository.
//! - [`Events`]: the queue of events from the driver's thread.

mod ffi;
mod layout;
mod library;
mod queue;
mod return_code;
mod text;
pub mod watch;

pub use self::ffi::{Address, Api, CallError};
pub use self::layout::{DmsFaultEvent, Event};
pub use self::library::{Dcmi, Device, Health, InitError, Library, Listed, OpenError, SubscribeError};
pub use self::queue::{CAPACITY, Events, Received};
pub use self::return_code::ReturnCode;
pub use self::watch::Line;
