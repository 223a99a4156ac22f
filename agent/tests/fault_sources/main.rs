//! Sources of faults with real files, real watches and a real HTTP server.

mod api;
mod config_maps;
mod device_nodes;
