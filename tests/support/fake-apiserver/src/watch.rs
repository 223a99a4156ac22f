//! Watches: the changes of a collection as a stream that ends only with its reader.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::unfold;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Frame;
use serde_json::json;

use crate::FakeApiServer;

/// Returns the body of a watch from the `resourceVersion` of the query on.
pub(crate) fn events(
    server: &FakeApiServer,
    collection: &str,
    query: &str,
) -> UnsyncBoxBody<Bytes, Infallible> {
    let version = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
    let watch = Watch {
        server: server.clone(),
        collection: collection.to_owned(),
        query: query.to_owned(),
        version: version.and_then(|version| version.parse().ok()).unwrap_or_default(),
        lines: VecDeque::new(),
    };
    let frames = unfold(watch, |mut watch| async move {
        let line = watch.next().await;
        Some((Ok::<_, Infallible>(Frame::data(line)), watch))
    });
    UnsyncBoxBody::new(StreamBody::new(frames))
}

struct Watch {
    server: FakeApiServer,
    collection: String,
    query: String,
    version: u64,
    lines: VecDeque<Bytes>,
}

impl Watch {
    async fn next(&mut self) -> Bytes {
        loop {
            // Created before the check, so that a change in between is not missed.
            let changed = Arc::clone(&self.server.changed);
            let changed = changed.notified();
            if let Some(line) = self.lines.pop_front() {
                return line;
            }
            {
                let state = self.server.state();
                for (change, object) in state.store.changes_after(&self.collection, &self.query, self.version)
                {
                    let line = format!("{}\n", json!({ "type": change.kind, "object": object }));
                    self.lines.push_back(Bytes::from(line));
                    self.version = change.version;
                }
            }
            if self.lines.is_empty() {
                changed.await;
            }
        }
    }
}
