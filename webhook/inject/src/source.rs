//! The object as a tree of values, for what is copied from a container.

use std::cell::OnceCell;

use serde_json::{Map, Value};

use crate::operation::{Operation, Verb};

/// The JSON of an object that was read before.
#[derive(Clone, Copy)]
pub struct ObjectJson<'j> {
    /// Length of its text in bytes, or more.
    pub length: usize,
    /// Parses it into a tree, which few objects need.
    pub parse: &'j dyn Fn() -> Value,
}

/// Parses the reviewed object when a part of it is copied for the first time.
pub(crate) struct Source<'j> {
    parse: &'j dyn Fn() -> Value,
    parsed: OnceCell<Value>,
}

impl<'j> Source<'j> {
    pub(crate) const fn new(parse: &'j dyn Fn() -> Value) -> Self {
        Self { parse, parsed: OnceCell::new() }
    }

    /// The object at a JSON pointer, such as a container; empty if there is none.
    pub(crate) fn object(&self, pointer: &str) -> Map<String, Value> {
        let parsed = self.parsed.get_or_init(self.parse);
        parsed.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// The variables of the container at `pointer` after `operations`.
    pub(crate) fn env(&self, pointer: &str, operations: &[Operation]) -> Vec<Value> {
        let list = format!("{pointer}/env");
        let mut env = match self.object(pointer).remove("env") {
            Some(Value::Array(env)) => env,
            _ => Vec::new(),
        };
        for operation in operations {
            let Some(place) = operation.path.strip_prefix(&list) else { continue };
            let value = operation.value.as_ref().map(|value| serde_json::from_str(value.get()));
            let Some(Ok(value)) = value else { continue };
            apply(&mut env, place, operation.verb, value);
        }
        env
    }
}

/// Applies an operation of the injection at a place in a list of variables: `` is the list, `/-` its end, `/N` an entry and
/// `/N/value` a member of it.
fn apply(env: &mut Vec<Value>, place: &str, verb: Verb, value: Value) {
    let mut parts = place.split('/').skip(1);
    let index = parts.next().map(|index| index.parse().unwrap_or(env.len()));
    match (index, parts.next(), verb) {
        (None, ..) => {
            if let Value::Array(items) = value {
                *env = items;
            }
        }
        (Some(index), None, Verb::Add) => env.insert(index.min(env.len()), value),
        (Some(index), Some(member), _) => {
            if let Some(Value::Object(entry)) = env.get_mut(index) {
                entry.insert(member.to_owned(), value);
            }
        }
        (Some(_), None, _) => {}
    }
}
