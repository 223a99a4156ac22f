//! What has been told already, so that a state that lasts is told once and not at every look.

use std::sync::Arc;
use std::time::SystemTime;

use crate::anchor::AuthorityId;
use crate::content::{Stage, Trust};
use crate::event::{Event, Observer};

/// Tells states when they begin.
pub(crate) struct Told {
    observer: Arc<dyn Observer>,
    authorities: Option<(Stage, usize, AuthorityId)>,
    held_back: Option<String>,
    ignored: Option<String>,
}

impl Told {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self { observer, authorities: None, held_back: None, ignored: None }
    }

    pub(crate) fn authorities(&mut self, trust: &Trust, now: SystemTime) {
        let current = &trust.current;
        let (stage, trusted, id) = (trust.stage(), trust.wanted(now).count(), current.id().clone());
        let seen = Some((stage, trusted, id.clone()));
        if self.authorities != seen {
            self.authorities = seen;
            self.observer.observe(&Event::Authorities { stage, trusted, id, not_after: current.not_after() });
        }
    }

    pub(crate) fn held_back(&mut self, serial: &str, authority: &AuthorityId) {
        if self.held_back.as_deref() != Some(serial) {
            self.held_back = Some(serial.to_owned());
            self.observer.observe(&Event::HeldBack { serial: serial.to_owned(), id: authority.clone() });
        }
    }

    pub(crate) fn ignored(&mut self, value: &str) {
        if self.ignored.as_deref() != Some(value) {
            self.ignored = Some(value.to_owned());
            self.observer.observe(&Event::RequestIgnored { value: value.to_owned() });
        }
    }
}
