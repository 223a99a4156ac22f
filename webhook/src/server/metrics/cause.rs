//! Why requests are refused and connections closed.

use swansong_inject::reason::Reason;

/// Why a request got no review's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Refusal {
    /// No admission review (400).
    NotAReview,
    /// The connection broke, or the body is no sound HTTP (400).
    Broken,
    /// The body took too long, and what came of it doesn't tell whom an answer would be for (408).
    TooSlow,
    /// The body is too large (413).
    TooLarge,
    /// Too many large bodies at a time, and what came of this one doesn't tell whom an answer would be for (503).
    Overloaded,
}

impl Refusal {
    pub(super) const ALL: [Self; 5] =
        [Self::NotAReview, Self::Broken, Self::TooSlow, Self::TooLarge, Self::Overloaded];

    pub(in crate::server) const fn as_str(self) -> &'static str {
        match self {
            Self::NotAReview => "not_a_review",
            Self::Broken => "broken",
            Self::TooSlow => "too_slow",
            Self::TooLarge => "too_large",
            Self::Overloaded => "overloaded",
        }
    }

    /// Why a review was not served; `None` when it was none.
    pub(in crate::server) const fn unserved(self) -> Option<Reason> {
        match self {
            Self::NotAReview => None,
            Self::Broken => Some(Reason::BodyIncomplete),
            Self::TooSlow => Some(Reason::BodyTimeout),
            Self::TooLarge => Some(Reason::BodyTooLarge),
            Self::Overloaded => Some(Reason::Overloaded),
        }
    }
}

/// Why a connection was closed that wasn't at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Closed {
    /// No request came for long.
    Idle,
    /// A request's head wasn't whole in time.
    SlowHead,
    /// The client didn't read its answer.
    SlowReader,
    /// It was idle, and others needed its place.
    GaveWay,
    /// It got no place.
    NoPlace,
}

impl Closed {
    pub(super) const ALL: [Self; 5] =
        [Self::Idle, Self::SlowHead, Self::SlowReader, Self::GaveWay, Self::NoPlace];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::SlowHead => "slow_head",
            Self::SlowReader => "slow_reader",
            Self::GaveWay => "gave_way",
            Self::NoPlace => "no_place",
        }
    }
}
