//! The agent on hosts made of files.

mod checks;
mod fixture;
mod laws;
