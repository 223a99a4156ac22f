//! The head of a review: its first bytes, when the rest hasn't arrived or can't be read in time.
//!
//! The API server writes `kind` and `apiVersion`, then the request with `uid`, `kind`, `name`, `namespace` and
//! `operation`, and only then the object, which begins with its name: a few hundred bytes are enough for a response.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::name::Names;
use super::request::Request;
use swansong_inject::view::{Slot, Text};

/// What was found; the object itself is never among it.
#[derive(Default)]
pub(super) struct Head<'a> {
    pub(super) api_version: Slot<Text<'a>>,
    pub(super) kind: Slot<Text<'a>>,
    pub(super) request: Request<'a>,
    pub(super) names: Names<'a>,
}

impl<'a> Head<'a> {
    /// Reads as far as the bytes are JSON in UTF-8, and no further than the object's name.
    pub(super) fn read(bytes: &'a [u8]) -> Self {
        Self::read_from(Level::Review, bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid()))
    }

    /// Reads an object no further than its name: the API server writes `metadata` before `spec`, where the bulk is.
    pub(super) fn read_object(object: &'a str) -> Self {
        Self::read_from(Level::Object, object)
    }

    fn read_from(level: Level, json: &'a str) -> Self {
        let mut head = Self::default();
        // The end of the bytes is an error, as is the end of the search; what was found until then counts.
        let _ = Fill { head: &mut head, level }.deserialize(&mut serde_json::Deserializer::from_str(json));
        head
    }
}

#[derive(Clone, Copy)]
enum Level {
    Review,
    Request,
    Object,
    Metadata,
}

/// Fills a head from the members of one level, and ends the reading with an error when it has the object's name.
struct Fill<'h, 'a> {
    head: &'h mut Head<'a>,
    level: Level,
}

impl<'de> DeserializeSeed<'de> for Fill<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fill<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { head, level } = self;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match (level, &*key) {
                (Level::Review, "apiVersion") => head.api_version = map.next_value()?,
                (Level::Review, "kind") => head.kind = map.next_value()?,
                (Level::Review, "request") => {
                    map.next_value_seed(Fill { head: &mut *head, level: Level::Request })?;
                }
                (Level::Request, "object") => {
                    map.next_value_seed(Fill { head: &mut *head, level: Level::Object })?;
                }
                (Level::Request, key) if head.request.read_member(key, &mut map)? => {}
                (Level::Object, "metadata") => {
                    map.next_value_seed(Fill { head: &mut *head, level: Level::Metadata })?;
                    return Err(A::Error::custom("found"));
                }
                (Level::Metadata, "name") => head.names.name = map.next_value()?,
                (Level::Metadata, "generateName") => head.names.generate_name = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::{Answer, Kind, Verdict, admit_unprocessed};
    use crate::config::Config;
    use swansong_inject::reason::Reason;

    /// In the order in which the API server writes it.
    const REVIEW: &str = concat!(
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","#,
        r#""kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"resource":"pods"},"name":"","namespace":"ns","#,
        r#""operation":"CREATE","userInfo":{"username":"ä"},"#,
        r#""object":{"kind":"Pod","metadata":{"generateName":"p-"},"spec":{"containers":[{"name":"c"}]}},"dryRun":false}}"#
    );

    fn shed(head: &[u8]) -> Option<Answer<'_>> {
        admit_unprocessed(head, Reason::Overloaded, &Config::default())
    }

    fn end_of(needle: &str) -> usize {
        REVIEW.find(needle).expect(needle) + needle.len()
    }

    #[test]
    fn every_cut_behind_the_uid_is_answered_and_none_before_it() {
        let uid = end_of(r#""uid":"u-1""#);
        for cut in 0..=REVIEW.len() {
            let answer = shed(&REVIEW.as_bytes()[..cut]);
            assert_eq!(answer.is_some(), cut >= uid, "{cut}");
            let Some(answer) = answer else { continue };
            assert_eq!(answer.verdict, Verdict::Shed(Reason::Overloaded));
            assert_eq!(answer.warnings, [Reason::Overloaded]);
            let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
            assert_eq!(body["apiVersion"], "admission.k8s.io/v1");
            let response = &body["response"];
            assert_eq!((&response["uid"], &response["allowed"]), (&"u-1".into(), &true.into()));
            assert_eq!((response.get("patch"), response.get("patchType")), (None, None));
            assert_eq!(response["auditAnnotations"]["failed"], "Overloaded");
            let warning = response["warnings"][0].as_str().expect("a warning");
            assert!(warning.starts_with("swansong: Overloaded: ") && warning.contains("admitted unchanged"));
        }
    }

    #[test]
    fn reads_what_is_there() {
        let seen = |cut: usize| {
            let answer = shed(&REVIEW.as_bytes()[..cut]).expect("an answer");
            (answer.kind, answer.subject.to_string())
        };
        assert_eq!(seen(end_of(r#""uid":"u-1""#)), (Kind::Other, "?".to_owned()));
        assert_eq!(seen(end_of(r#""kind":"Pod"}"#)), (Kind::Pod, "?".to_owned()));
        assert_eq!(seen(end_of(r#""namespace":"ns""#)), (Kind::Pod, "ns/?".to_owned()));
        assert_eq!(seen(end_of(r#""generateName":"p-""#)), (Kind::Pod, "ns/p-*".to_owned()));
    }

    #[test]
    fn reviews_that_do_not_apply_are_skipped() {
        for (from, to, reason) in [
            ("CREATE", "UPDATE", Reason::NotCreate),
            (r#""version":"v1","kind":"Pod""#, r#""version":"v1","kind":"Secret""#, Reason::KindNotHandled),
            (r#""name":"","#, r#""subResource":"status","#, Reason::Subresource),
        ] {
            let review = REVIEW.replace(from, to);
            let answer = shed(review.as_bytes()).expect("an answer");
            assert_eq!(answer.verdict, Verdict::Skipped(reason));
            assert!(answer.warnings.is_empty());
        }
    }

    #[test]
    fn strict_denies_with_a_code_to_retry() {
        let strict = Config::parse("strictness: deny").expect("sound");
        for (reason, code) in [(Reason::Overloaded, 429), (Reason::BodyTimeout, 504)] {
            let answer = admit_unprocessed(REVIEW.as_bytes(), reason, &strict).expect("an answer");
            assert_eq!(answer.verdict, Verdict::Denied(reason));
            let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
            assert_eq!(body["response"]["allowed"], false);
            assert_eq!(body["response"]["status"]["code"], code);
        }
    }

    #[test]
    fn what_is_no_review_of_the_one_version_is_not_answered() {
        for (from, to) in
            [("admission.k8s.io/v1", "admission.k8s.io/v1beta1"), ("u-1", ""), ("AdmissionReview", "Pod")]
        {
            assert!(shed(REVIEW.replace(from, to).as_bytes()).is_none(), "{to}");
        }
        for junk in [&b""[..], b"{", b"[]", b"\xff{}", b"{\"request\":1}"] {
            assert!(shed(junk).is_none());
        }
    }
}
