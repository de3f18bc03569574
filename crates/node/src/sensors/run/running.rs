//! The state of a running virtual sensor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chappe_log::Appended;
use chappe_machine::Input;
use chappe_stream::{
    Binding, Candidate, Descriptor, Fallback, Position, SensorCommand, SensorInput, StreamFollower,
    StreamSchema, VirtualSensor,
};
use chappe_transport::Hop;

use crate::catalogue::Entry;
use crate::config::Fault;
use crate::sensors::dropped::Dropped;
use crate::sensors::progress::Progress;
use crate::sensors::table::{Event, SensorState};
use crate::shared::App;

pub(super) type SensorMachineInput = Input<SensorInput, SensorCommand>;

pub(super) struct Running {
    pub(super) app: App,
    pub(super) name: String,
    pub(super) descriptor: Descriptor,
    pub(super) output: Arc<Entry>,
    pub(super) bindings: Vec<Binding>,
    /// By source, if it has one.
    pub(super) fallbacks: Vec<Option<Fallback>>,
    /// Streams of a choice that took the place of another: they are read from their newest element on.
    pub(super) from_newest: BTreeSet<String>,
    /// By source: the stream that an earlier run read, until the source is bound.
    pub(super) read_before: Vec<Option<Candidate>>,
    /// `None` while another thread runs it.
    pub(super) machine: Option<VirtualSensor>,
    /// Slow evaluations in a row of a compiled statement.
    pub(super) slow_evaluations: u32,
    /// The reported counts of unused elements.
    pub(super) dropped: Dropped,
    /// The evaluations that had succeeded when one failed, while that failure is shown.
    pub(super) failed_after: Option<u64>,
    /// The stream of refused elements, if a source wants it.
    pub(super) dead_letters: Option<Arc<Entry>>,
    /// Whether it reads elements before they are durable. False at level `memory`, where outputs
    /// would be acknowledged before their inputs are stored.
    pub(super) reads_uncommitted: bool,
    /// Appended batches of the output that are not yet acknowledged.
    pub(super) offered: VecDeque<Appended>,
    pub(super) progress: Progress,
    /// Stands for the windows of the descriptor.
    pub(super) shape: u64,
    /// Number of rollbacks of the log before the last elements were read.
    pub(super) rollbacks_seen: u64,
    /// The input position that the last output carries.
    pub(super) last_position: Option<Position>,
    /// Its inputs or outputs were rolled back, so it must restart from the stored state.
    pub(super) must_rebind: bool,
    /// A binding may end without a change in the registry: its stream stays bound only until its stored elements
    /// are read, or was removed.
    pub(super) may_unbind: bool,
    pub(super) followers: BTreeMap<Arc<str>, StreamFollower>,
    /// The stream that was read last.
    pub(super) last_stream: Arc<str>,
    pub(super) history: VecDeque<Event>,
}

impl Running {
    pub(super) fn bound_schema(&self, stream: &str) -> Option<&StreamSchema> {
        let mut bound = self.bindings.iter().flat_map(Binding::bound);
        let bound = bound.find(|bound| bound.candidate.stream == stream)?;
        Some(&bound.candidate.schema)
    }

    pub(super) fn drop(&self, reason: &'static str, detail: String) {
        self.app
            .observability
            .drops
            .record(Hop::Element, reason, &self.name, detail, None);
    }

    pub(super) fn set_state(&self, state: SensorState, message: Option<String>) {
        let error = message.map(|message| Fault {
            message,
            ..Fault::default()
        });
        self.app.sensors.update(&self.name, |sensor| {
            sensor.state = state;
            sensor.error = error.or_else(|| sensor.refused.clone());
        });
    }
}

pub(super) fn fail(app: &App, name: &str, message: String) {
    fail_with(app, name, message, None);
}

pub(super) fn fail_with(app: &App, name: &str, message: String, hint: Option<String>) {
    app.sensors.update(name, |sensor| {
        sensor.state = SensorState::Failed;
        sensor.error = Some(Fault {
            message,
            hint,
            ..Fault::default()
        });
    });
}
