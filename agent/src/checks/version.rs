//! Versions of the driver as in `version.info`: 23.0.7, 24.1.rc1, 25.7.RC1.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A comparable version.
#[derive(Debug, Clone)]
pub struct Version {
    text: String,
    parts: Vec<Part>,
}

/// A release candidate is older than a release with a number in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Candidate(u64),
    Number(u64),
}

/// The text isn't a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it isn't a version such as 24.1.0 or 24.1.rc1")]
pub struct InvalidVersion;

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let parts = text.split('.').map(part).collect::<Option<Vec<_>>>().ok_or(InvalidVersion)?;
        Ok(Self { text: text.to_owned(), parts })
    }
}

fn part(text: &str) -> Option<Part> {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("rc") {
        Some(number) => number.parse().ok().map(Part::Candidate),
        // `parse` alone accepts "+1".
        None if lower.bytes().all(|c| c.is_ascii_digit()) => lower.parse().ok().map(Part::Number),
        None => None,
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let length = self.parts.len().max(other.parts.len());
        let padded = |parts: &[Part], at: usize| parts.get(at).copied().unwrap_or(Part::Number(0));
        (0..length)
            .map(|at| padded(&self.parts, at).cmp(&padded(&other.parts, at)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_older_than_releases() {
        let ascending = ["23.0", "23.0.7", "23.0.10", "24.1.rc1", "24.1.RC2", "24.1", "24.1.0.1", "25.7.RC1"];
        let versions: Vec<Version> = ascending.iter().map(|text| text.parse().expect(text)).collect();
        for (left, a) in versions.iter().enumerate() {
            for (right, b) in versions.iter().enumerate() {
                assert_eq!(a.cmp(b), left.cmp(&right), "{a} and {b}");
            }
        }
        assert_eq!("24.1.rc1".parse::<Version>(), "24.1.RC1".parse());
        assert_eq!("24.1".parse::<Version>(), " 24.1.0\r\n".parse());
    }

    #[test]
    fn rejects_other_texts() {
        for text in
            ["", ".", "24..1", "v24.1", "24.1-rc1", "24.1.rc", "+24", "99999999999999999999", "24.1.beta1"]
        {
            assert!(text.parse::<Version>().is_err(), "{text:?}");
        }
    }
}
