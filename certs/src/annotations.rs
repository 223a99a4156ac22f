//! Annotations on the Secret.

/// Annotation on the Secret by which a user requests a rotation: `ca` for a new CA with overlap, `leaf` for a new leaf
/// of the same CA, `revoke-ca` for a new CA at once. The write that fulfils the request removes it.
pub const ROTATE: &str = "swansong.dev/rotate";

/// Annotation on the Secret with the time at which each previous CA leaves the `caBundle`, as `ID=TIME` separated by
/// blanks.
pub const TRUSTED_UNTIL: &str = "swansong.dev/trusted-until";

/// Annotation on the Secret with the IDs of CAs that are no longer trusted. They are removed from a `caBundle` that
/// contains them again.
pub const RETIRED: &str = "swansong.dev/retired";
