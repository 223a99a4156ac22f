//! The agent's edge against an API server that misbehaves: a real HTTP server whose answers the test chooses.

mod api;
mod cases;
