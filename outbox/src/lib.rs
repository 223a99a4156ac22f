//! A durable, bounded, ordered outbox.
