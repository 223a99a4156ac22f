//! The library of the command line, which tests use.

pub mod manifest;
