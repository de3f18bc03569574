//! The hop of a wrapper.

use super::{HopState, Path};
use crate::wrappers::{PeerState, Wrapper};

impl Path<'_> {
    /// A wrapper with all its streams.
    pub(super) fn wrapper_with_streams(&mut self, wrapper: &Wrapper) {
        self.wrapper(wrapper);
        for stream in &wrapper.streams {
            if let Some(entry) = self.app.catalogue.get(stream) {
                self.stream_after_source(&entry);
            }
        }
    }

    /// A wrapper.
    pub(super) fn wrapper(&mut self, wrapper: &Wrapper) {
        let peer = &wrapper.peer;
        let name = peer.name.as_str();
        if !self.enter("wrapper", name) {
            return;
        }
        let reason = peer.reason.clone().unwrap_or_default();
        match peer.state {
            PeerState::Running => {
                let detail = format!("{} elements stored since it started", peer.elements);
                self.add("wrapper", name, HopState::Ok, detail, None);
            }
            PeerState::Waiting => {
                let detail = format!("waits: {reason}");
                self.add("wrapper", name, HopState::Ok, detail, None);
            }
            PeerState::Trouble => {
                let hint = peer.hint.clone();
                let hint = hint.or_else(|| Some(format!("chappe wrapper show {name}")));
                self.add("wrapper", name, HopState::Blocked, reason, hint);
            }
            PeerState::Failed => {
                let error = peer.error.clone().unwrap_or_default();
                let hint = error
                    .hint
                    .or_else(|| Some("chappe config check".to_owned()));
                self.add("wrapper", name, HopState::Blocked, error.message, hint);
            }
        }
        if peer.dead_letters > 0 {
            let detail = format!("{} dead letters", peer.dead_letters);
            let hint = Some(format!("chappe wrapper dead-letters {name}"));
            self.add("wrapper", name, HopState::Degraded, detail, hint);
        }
    }
}
