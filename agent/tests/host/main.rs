//! The agent on hosts made of files.

mod broken;
mod checks;
mod laws;
mod processes;
mod verdicts;
