//! The process `swansong dcmi`, and the agent's source that starts it, with the fake libdcmi.so.

mod child;
mod faults;
mod source;
