//! The binding of libdcmi.so.
