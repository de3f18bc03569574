//! The hops of a wrapper and of an exporter.

use super::stream::{earlier_version, fault};
use super::{HopState, Path};
use crate::wrappers::{Exporter, PeerState, Wrapper};

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

    /// An exporter with the streams that it reads, each of which names it among its readers.
    pub(super) fn exporter_with_streams(&mut self, exporter: &Exporter) {
        let entries = exporter.streams.iter().map(|one| self.visible(&one.stream));
        for entry in entries.flatten().collect::<Vec<_>>() {
            self.stream(&entry);
        }
        let peer = &exporter.peer;
        let name = peer.name.as_str();
        if self
            .hops
            .iter()
            .any(|hop| hop.hop == "exporter" && hop.subject == name)
        {
            return;
        }
        let (state, detail, hint) = match fault(peer) {
            Some((detail, hint)) => (HopState::Blocked, detail, Some(hint)),
            None => {
                let detail = peer.reason.clone();
                let detail =
                    detail.unwrap_or_else(|| "no stream that it names exists yet".to_owned());
                (HopState::Ok, detail, None)
            }
        };
        self.add("exporter", name, state, detail, hint);
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
                let detail = format!("elements stored since it started: {}", peer.elements);
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
        let is_failed = peer.state == PeerState::Failed;
        if let Some(error) = peer.error.as_ref().filter(|_| !is_failed) {
            let (detail, hint) = (earlier_version(&peer.file, error), error.hint.clone());
            self.add("wrapper", name, HopState::Degraded, detail, hint);
        }
        if peer.dead_letters > 0 {
            let detail = format!("dead letters: {}", peer.dead_letters);
            let hint = Some(format!("chappe wrapper dead-letters {name}"));
            self.add("wrapper", name, HopState::Degraded, detail, hint);
        }
    }
}
