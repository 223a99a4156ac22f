//! The job guard.
