//! Certificates (see Cargo.toml).
