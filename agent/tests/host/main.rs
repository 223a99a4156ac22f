//! The agent on hosts made of files.

mod broken;
mod checks;
mod laws;
mod pod_processes;
mod processes;
mod verdicts;
