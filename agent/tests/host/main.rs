//! The agent on hosts made of files.

mod broken;
mod checks;
mod fixture;
mod laws;
mod processes;
mod verdicts;
