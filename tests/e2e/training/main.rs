//! Dying checkpoints of training jobs with Swansong's launcher hook: MindCluster's programs as fakes in Python, and the
//! launcher of the real torch.
#![allow(missing_docs, clippy::unwrap_used)]

mod dump;
mod machine;
