//! Objects by path, their versions, and the requests that change them.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::failure_status;

#[derive(Default)]
pub(crate) struct Store {
    objects: BTreeMap<String, Value>,
    version: u64,
    changes: Vec<Change>,
}

/// A write of an object.
pub(crate) struct Change {
    at: Instant,
    pub(crate) version: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(crate) kind: &'static str,
    path: String,
    object: Value,
}

impl Store {
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.objects.get(path).cloned()
    }

    pub(crate) fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let kind = if self.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        self.objects.insert(path.to_owned(), object.clone());
        self.record(kind, path, object.clone());
        object
    }

    pub(crate) fn delete(&mut self, path: &str) -> Option<Value> {
        let mut object = self.objects.remove(path)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.record("DELETED", path, object.clone());
        Some(object)
    }

    fn record(&mut self, kind: &'static str, path: &str, object: Value) {
        let (at, version, path) = (Instant::now(), self.version, path.to_owned());
        self.changes.push(Change { at, version, kind, path, object });
    }

    pub(crate) fn history(&self, path: &str) -> Vec<(Instant, Option<Value>)> {
        let changes = self.changes.iter().filter(|change| change.path == path);
        changes.map(|change| (change.at, (change.kind != "DELETED").then(|| change.object.clone()))).collect()
    }

    /// Returns the changes of a collection after a version.
    pub(crate) fn changes_after<'a>(
        &'a self,
        collection: &'a str,
        query: &'a str,
        version: u64,
    ) -> impl Iterator<Item = (&'a Change, &'a Value)> {
        let after = self.changes.iter().filter(move |change| change.version > version);
        after
            .filter(move |change| is_in(collection, query, &change.path))
            .map(|change| (change, &change.object))
    }

    pub(crate) fn serve(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        content_type: &str,
        body: &[u8],
    ) -> (u16, Value) {
        let target = path.strip_suffix("/status").unwrap_or(path);
        let parsed = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        match *method {
            Method::GET if self.objects.contains_key(target) => (200, self.objects[target].clone()),
            Method::GET if is_collection(path) => (200, self.list(path, query)),
            Method::POST => self.create(path, parsed()),
            Method::PUT => match self.objects.get(target) {
                None => failure_status(404),
                Some(old) if is_conflict(old, &parsed()) => failure_status(409),
                Some(_) => (200, self.put(target, parsed())),
            },
            Method::PATCH => match self.patched(target, content_type, body) {
                Ok(object) => (200, self.put(target, object)),
                Err(code) => failure_status(code),
            },
            Method::DELETE => self.delete(target).map_or_else(|| failure_status(404), |object| (200, object)),
            _ => failure_status(404),
        }
    }

    fn create(&mut self, collection: &str, object: Value) -> (u16, Value) {
        let generated = || {
            let prefix = object["metadata"]["generateName"].as_str().unwrap_or("unnamed-");
            format!("{prefix}{}", self.version + 1)
        };
        let name = object["metadata"]["name"].as_str().map_or_else(generated, str::to_owned);
        let path = format!("{collection}/{name}");
        if self.objects.contains_key(&path) {
            return failure_status(409);
        }
        let mut object = object;
        object["metadata"]["name"] = json!(name);
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version + 1));
        }
        (201, self.put(&path, object))
    }

    fn patched(&self, path: &str, content_type: &str, body: &[u8]) -> Result<Value, u16> {
        let mut object = self.get(path).ok_or(404_u16)?;
        if content_type.contains("json-patch") {
            let changes: json_patch::Patch = serde_json::from_slice(body).map_err(|_| 400_u16)?;
            json_patch::patch(&mut object, &changes).map_err(|_| 422_u16)?;
        } else {
            let changes: Value = serde_json::from_slice(body).map_err(|_| 400_u16)?;
            if is_conflict(&object, &changes) {
                return Err(409);
            }
            json_patch::merge(&mut object, &changes);
        }
        Ok(object)
    }

    fn list(&self, collection: &str, query: &str) -> Value {
        let items = self.objects.iter().filter(|(path, _)| is_in(collection, query, path));
        let items: Vec<&Value> = items.map(|(_, object)| object).collect();
        let kind = items.first().and_then(|item| item["kind"].as_str()).unwrap_or_default();
        let api_version = items.first().map_or(json!("v1"), |item| item["apiVersion"].clone());
        json!({
            "kind": format!("{kind}List"), "apiVersion": api_version,
            "metadata": { "resourceVersion": self.version.to_string() }, "items": items,
        })
    }
}

/// A write without a resource version overwrites unconditionally.
fn is_conflict(old: &Value, new: &Value) -> bool {
    let (old, new) = (&old["metadata"]["resourceVersion"], &new["metadata"]["resourceVersion"]);
    !new.is_null() && old != new
}

/// The path of a collection has 1, 3, 5… parts after the version: `pods`, `namespaces/a/pods`.
fn is_collection(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let prefix = if parts.first() == Some(&"api") { 2 } else { 3 };
    parts.len() > prefix && (parts.len() - prefix) % 2 == 1
}

/// Whether an object belongs to a collection, also to that of all namespaces, and to a field selector by name.
fn is_in(collection: &str, query: &str, path: &str) -> bool {
    let Some((parent, name)) = path.rsplit_once('/') else { return false };
    let selected = query
        .split('&')
        .find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"))
        .is_none_or(|selected| selected == name);
    let in_any_namespace = || {
        let (root, resource) = collection.rsplit_once('/')?;
        let (namespace, rest) = parent.strip_prefix(root)?.strip_prefix("/namespaces/")?.split_once('/')?;
        Some(!namespace.is_empty() && rest == resource)
    };
    selected && (parent == collection || in_any_namespace().unwrap_or_default())
}
