//! Types of which views are built: optional members, borrowed strings, partial maps.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A member that may be absent, `null` or present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slot<T> {
    /// The object has no such member.
    #[default]
    Absent,
    /// The member is `null`.
    Null,
    /// The member has a value.
    Present(T),
}

impl<T> Slot<T> {
    /// The value, if there is one.
    pub const fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }
}

impl<T> Slot<Vec<T>> {
    /// The items; none when absent or `null`.
    pub fn items(&self) -> &[T] {
        self.present().map_or(&[], Vec::as_slice)
    }
}

impl Slot<Text<'_>> {
    /// The string; empty when absent or `null`.
    pub fn text(&self) -> &str {
        self.present().map_or("", |text| text)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Slot<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Null, Self::Present))
    }
}

/// A string, borrowed unless it holds escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Some members of a JSON object, in its order.
#[derive(Debug)]
pub struct Kept<'a, K, V> {
    /// The members whose key `K` keeps.
    pub(super) members: Vec<(Text<'a>, V)>,
    /// Number of all members.
    pub len: usize,
    /// Bytes of the keys and string values of the other members.
    pub other_bytes: usize,
    keys: PhantomData<K>,
}

/// Selects keys of a map.
pub trait Keys {
    /// Whether to keep the member.
    fn keep(key: &str) -> bool;
}

impl<K, V> Kept<'_, K, V> {
    /// The keys of the kept members.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(key, _)| &**key)
    }

    /// The last member named `key`.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.members.iter().rev().find(|(name, _)| &**name == key).map(|(_, value)| value)
    }
}

impl<'de: 'a, 'a, K: Keys, V: Deserialize<'de>> Deserialize<'de> for Kept<'a, K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeptVisitor<K, V>(PhantomData<(K, V)>);
        impl<'de, K: Keys, V: Deserialize<'de>> Visitor<'de> for KeptVisitor<K, V> {
            type Value = Kept<'de, K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut kept = Kept { members: Vec::new(), len: 0, other_bytes: 0, keys: PhantomData };
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    kept.len += 1;
                    if K::keep(&key) {
                        kept.members.push((key, map.next_value()?));
                    } else {
                        kept.other_bytes += key.len() + map.next_value::<StringLength>()?.0;
                    }
                }
                Ok(kept)
            }
        }
        deserializer.deserialize_map(KeptVisitor(PhantomData))
    }
}

/// The length of a string; 0 for other values.
struct StringLength(usize);

impl<'de> Deserialize<'de> for StringLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor(|scalar| match scalar {
            Scalar::String(text) => Self(text.len()),
            _ => Self(0),
        }))
    }
}

/// A quantity of a resource.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    /// Whether it is more than zero.
    pub is_positive: bool,
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor(|scalar| Self {
            is_positive: match scalar {
                Scalar::Number(number) => number > 0.0,
                // The mantissa is before the suffix or exponent.
                Scalar::String(text) => text
                    .bytes()
                    .take_while(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'+'))
                    .any(|byte| matches!(byte, b'1'..=b'9')),
                Scalar::Other => false,
            },
        }))
    }
}

enum Scalar<'s> {
    String(&'s str),
    Number(f64),
    Other,
}

/// Reads any JSON value; the function gets what is not a string or number as [`Scalar::Other`].
struct ScalarVisitor<T>(fn(Scalar<'_>) -> T);

impl<'de, T> Visitor<'de> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok((self.0)(Scalar::String(text)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok((self.0)(Scalar::Number(if number > 0 { 1.0 } else { 0.0 })))
    }

    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok((self.0)(Scalar::Number(if number > 0 { 1.0 } else { 0.0 })))
    }

    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok((self.0)(Scalar::Number(number)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok((self.0)(Scalar::Other))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok((self.0)(Scalar::Other))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        IgnoredAny.visit_seq(seq)?;
        Ok((self.0)(Scalar::Other))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        IgnoredAny.visit_map(map)?;
        Ok((self.0)(Scalar::Other))
    }
}

/// All members of a JSON object, in its order.
#[derive(Debug)]
pub struct Ordered<'a, V>(pub Vec<(Text<'a>, V)>);

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Ordered<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Debug)]
        struct All;
        impl Keys for All {
            fn keep(_: &str) -> bool {
                true
            }
        }
        Ok(Self(Kept::<'de, All, V>::deserialize(deserializer)?.members))
    }
}

/// Defines a view: a struct of some members of a JSON object.
///
/// A derived `Deserialize` would accept an array and refuse a repeated key. Like the API server, this accepts objects only
/// and uses the last of repeated keys.
macro_rules! view {
    ($($(#[$meta:meta])* pub struct $name:ident<'a> {
        $($(#[$field_meta:meta])* pub $field:ident: $key:literal => $type:ty,)+
    })+) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name<'a> {
            $($(#[$field_meta])* pub $field: $type,)+
            /// Number of members that the view doesn't have.
            pub unread: usize,
            lifetime: ::std::marker::PhantomData<&'a str>,
        }

        impl<'de: 'a, 'a> ::serde::Deserialize<'de> for $name<'a> {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct ViewVisitor;
                impl<'a> ::serde::de::Visitor<'a> for ViewVisitor {
                    type Value = $name<'a>;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: ::serde::de::MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        let mut view = $name {
                            $($field: Default::default(),)+
                            unread: 0,
                            lifetime: ::std::marker::PhantomData,
                        };
                        while let Some(key) = map.next_key::<$crate::view::Text<'a>>()? {
                            match &*key {
                                $($key => view.$field = map.next_value()?,)+
                                _ => {
                                    map.next_value::<::serde::de::IgnoredAny>()?;
                                    view.unread += 1;
                                }
                            }
                        }
                        Ok(view)
                    }
                }
                deserializer.deserialize_map(ViewVisitor)
            }
        }
    )+};
}
pub(super) use view;
