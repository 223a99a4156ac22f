//! The request of a review, read in one pass together with the core's view of its object.

use std::fmt;
use std::str;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{API_VERSION, KIND, NotAReview, trim};
use swansong_inject::reason::Reason;
use swansong_inject::view::{Object, ObjectOf, Slot, Text};
use swansong_inject::workload::WorkloadKind;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a, const READ_OBJECT: bool> {
    #[serde(borrow, default)]
    api_version: Slot<Text<'a>>,
    #[serde(borrow, default)]
    kind: Slot<Text<'a>>,
    #[serde(borrow, default)]
    request: Slot<ReceivedRequest<'a, READ_OBJECT>>,
}

/// What a review is decided by.
#[derive(Default)]
pub(super) struct Request<'a> {
    pub(super) uid: Slot<Text<'a>>,
    kind: Slot<GroupVersionKind<'a>>,
    sub_resource: Slot<Text<'a>>,
    pub(super) name: Slot<Text<'a>>,
    pub(super) namespace: Slot<Text<'a>>,
    pub(super) operation: Slot<Text<'a>>,
    pub(super) object: Option<ReceivedObject<'a>>,
}

/// The object under review.
pub(super) enum ReceivedObject<'a> {
    /// What the core needs of it.
    Read(Object<'a>),
    /// Its text, if it doesn't have to be processed or couldn't be read.
    Raw(&'a RawValue),
}

#[derive(Deserialize)]
struct GroupVersionKind<'a> {
    #[serde(borrow, default)]
    group: Slot<Text<'a>>,
    #[serde(borrow, default)]
    kind: Slot<Text<'a>>,
}

/// The members by which the object is read.
const DECIDING: [&str; 3] = ["kind", "subResource", "operation"];

/// Absent, `null` and empty mean the same in the API.
pub(super) fn text<'s>(slot: &'s Slot<Text<'_>>) -> &'s str {
    slot.present().map_or("", |text| text)
}

impl<'a> Request<'a> {
    /// Reads a whole review.
    ///
    /// An object that the core can't read doesn't fail the review; it is kept as text, so that the core reports the field.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, NotAReview> {
        // One check for all strings, which the parser would otherwise check one by one.
        let body = str::from_utf8(body).map_err(|error| NotAReview::Unreadable(error.to_string()))?;
        Self::parse::<true>(body).or_else(|_| Self::parse::<false>(body))
    }

    /// The length of the object in `body`, or somewhat more for a small one, which isn't worth another pass.
    pub(super) fn object_length(body: &[u8]) -> usize {
        const EXACT_FROM: usize = 1 << 20;
        if body.len() < EXACT_FROM {
            return body.len();
        }
        let request = str::from_utf8(body).ok().and_then(|body| Request::parse::<false>(body).ok());
        match request.and_then(|request| request.object) {
            Some(ReceivedObject::Raw(object)) => object.get().len(),
            _ => body.len(),
        }
    }

    /// The object in a review that was read before.
    pub(super) fn object_tree(body: &[u8]) -> Value {
        #[derive(Deserialize)]
        struct Review {
            request: Object,
        }
        #[derive(Deserialize)]
        struct Object {
            object: Value,
        }
        serde_json::from_slice(body).map_or(Value::Null, |review: Review| review.request.object)
    }

    fn parse<const READ_OBJECT: bool>(body: &'a str) -> Result<Self, NotAReview> {
        let review: Review<'_, READ_OBJECT> =
            serde_json::from_str(body).map_err(|error| NotAReview::Unreadable(error.to_string()))?;
        let (api_version, kind) = (text(&review.api_version), text(&review.kind));
        if (api_version, kind) != (API_VERSION, KIND) {
            let (api_version, kind) = (trim::cut(api_version, 64), trim::cut(kind, 64));
            return Err(NotAReview::Unknown { api_version, kind });
        }
        match review.request {
            Slot::Present(ReceivedRequest(request)) => Ok(request),
            Slot::Absent | Slot::Null => Err(NotAReview::NoRequest),
        }
    }

    /// The kind of the request, if it is one that is changed online. Templates of other kinds are never: their controllers
    /// would see a difference to what they asked for, and act on it again and again.
    pub(super) fn handled_kind(&self) -> Option<WorkloadKind> {
        let kind = self.kind.present()?;
        WorkloadKind::of_group(text(&kind.group), text(&kind.kind)).filter(|kind| {
            matches!(kind, WorkloadKind::Pod | WorkloadKind::AscendJob | WorkloadKind::VolcanoJob)
        })
    }

    /// The kind, or why the review doesn't apply, for any object.
    pub(super) fn applicable_kind(&self) -> Result<WorkloadKind, Reason> {
        match text(&self.operation) {
            "CREATE" => {}
            // The API server sends updates that remove the injection, such as a second apply of the file.
            "UPDATE" if self.handled_kind() == Some(WorkloadKind::VolcanoJob) => {}
            _ => return Err(Reason::NotCreate),
        }
        if !text(&self.sub_resource).is_empty() {
            return Err(Reason::Subresource);
        }
        self.handled_kind().ok_or(Reason::KindNotHandled)
    }

    /// Reads the next value of `map` if a member other than the object is named `key`; returns whether it is.
    pub(super) fn read_member<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "uid" => self.uid = map.next_value()?,
            "kind" => self.kind = map.next_value()?,
            "subResource" => self.sub_resource = map.next_value()?,
            "name" => self.name = map.next_value()?,
            "namespace" => self.namespace = map.next_value()?,
            "operation" => self.operation = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A request whose object is read, if the members before it say that it applies; otherwise the object is kept as text.
struct ReceivedRequest<'a, const READ_OBJECT: bool>(Request<'a>);

impl<'de: 'a, 'a, const READ_OBJECT: bool> Deserialize<'de> for ReceivedRequest<'a, READ_OBJECT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RequestVisitor<const READ_OBJECT: bool>;
        impl<'de, const READ_OBJECT: bool> Visitor<'de> for RequestVisitor<READ_OBJECT> {
            type Value = Request<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut request = Request::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    if &*key == "object" {
                        request.object = if READ_OBJECT && let Ok(kind) = request.applicable_kind() {
                            map.next_value_seed(ObjectOf(kind))?.map(ReceivedObject::Read)
                        } else {
                            map.next_value::<Option<&RawValue>>()?.map(ReceivedObject::Raw)
                        };
                    } else if READ_OBJECT && request.object.is_some() && DECIDING.contains(&&*key) {
                        // The API server writes them before the object, which was read by their values.
                        return Err(A::Error::custom("a member comes after the object"));
                    } else if !request.read_member(&key, &mut map)? {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(request)
            }
        }
        deserializer.deserialize_map(RequestVisitor::<READ_OBJECT>).map(Self)
    }
}
