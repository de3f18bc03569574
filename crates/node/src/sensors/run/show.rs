//! What is shown of a running sensor: its bindings, their history, and how far each stream was read.

use super::running::Running;
use crate::sensors::table::{Bound, Event};

/// Events in a sensor's history.
const HISTORY_MAX: usize = 100;

impl Running {
    pub(super) fn remember(&mut self, at: String, what: String) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(Event { at, what });
    }

    /// The number of the last element that was read of a stream.
    fn read_of(&self, stream: &str) -> Option<u64> {
        let follower = self.followers.get(stream)?;
        Some(follower.next_sequence().saturating_sub(1))
    }

    /// Shows how far each stream was read.
    pub(super) fn show_progress(&self) {
        self.app.sensors.update(&self.name, |sensor| {
            for bound in sensor.sources.iter_mut().flat_map(|it| &mut it.bound) {
                bound.read = self.read_of(&bound.stream);
            }
        });
    }

    pub(super) fn show_bindings(&self) {
        self.app.sensors.update(&self.name, |sensor| {
            sensor.history = self.history.iter().cloned().collect();
            let bindings = self.bindings.iter().enumerate();
            for (source, (index, binding)) in sensor.sources.iter_mut().zip(bindings) {
                source.choices = self.shown_choices(index);
                let bound = binding.bound().map(|bound| Bound {
                    stream: bound.candidate.stream.clone(),
                    since: bound.since.to_string(),
                    why: bound.candidate.why.clone(),
                    read: self.read_of(&bound.candidate.stream),
                });
                source.bound = bound.collect();
                source.unbound_reason = binding.unbound_reason();
            }
        });
    }
}
