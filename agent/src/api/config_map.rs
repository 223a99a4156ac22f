//! One ConfigMap, followed.

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::warn;

use super::follow::{Change, Follow, Timing, follow};
use super::server::ApiServer;
use swansong_runtime::supervisor::Progress;

/// The texts of a ConfigMap by their keys.
pub(crate) type Texts = BTreeMap<String, Option<String>>;

/// Follows the ConfigMap `name` in `namespace`, and hands to `look` what is in it whenever that may have changed; `None`
/// when there is none. Nothing is said while the API server can't be asked.
///
/// The field selector leaves one object, so the right to watch it may be given for that name alone.
pub(crate) async fn follow_config_map(
    api: &ApiServer,
    (namespace, name): (&str, &str),
    timing: &Timing,
    look: impl FnMut(Option<&Texts>) + Send,
    progress: &Progress,
) -> Infallible {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut one = One { name, look };
    follow(api, &path, ("metadata.name", name), timing, &mut one, progress).await
}

struct One<'a, F> {
    name: &'a str,
    look: F,
}

#[derive(Deserialize)]
struct ConfigMap {
    metadata: Metadata,
    data: Option<Texts>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

impl<F: FnMut(Option<&Texts>) + Send> One<'_, F> {
    /// The texts of an object, if it is ours.
    fn read(&self, object: &RawValue) -> Option<Texts> {
        match serde_json::from_str::<ConfigMap>(object.get()) {
            Ok(map) => (map.metadata.name == self.name).then(|| map.data.unwrap_or_default()),
            Err(error) => {
                warn!(name = self.name, %error, "a ConfigMap can't be read");
                None
            }
        }
    }
}

impl<F: FnMut(Option<&Texts>) + Send> Follow for One<'_, F> {
    fn replace(&mut self, objects: &[&RawValue]) {
        let found = objects.iter().find_map(|object| self.read(object));
        (self.look)(found.as_ref());
    }

    fn change(&mut self, change: Change, object: &RawValue) {
        let Some(texts) = self.read(object) else { return };
        (self.look)(Some(&texts).filter(|_| change == Change::Applied));
    }
}
