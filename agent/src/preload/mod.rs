//! Is the preload live in the pods of this node?

pub mod cgroup;
