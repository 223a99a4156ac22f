//! The process that keeps the driver's library, and the agent's source that keeps the process, against a libdcmi.so that
//! was built from C.

mod child;
mod faults;
mod source;
