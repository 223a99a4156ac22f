//! The parts of the command line that are worth testing by themselves.
//!
//! The binary's `main` and `commands` only wire these to arguments, files and exit codes.

pub mod manifest;
