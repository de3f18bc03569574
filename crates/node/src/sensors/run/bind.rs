//! The bindings of a running sensor: updated from the registry, and restored after a rollback.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_machine::Input;
use chappe_stream::binding::{BindingChange, BindingChangeKind};
use chappe_stream::{
    Binding, Fallback, SensorCommand, SensorLimits, StreamElement, StreamFollower, VirtualSensor,
};

use super::evaluate::continued;
use super::running::{Running, SensorMachineInput};
use crate::catalogue::FULL_PAUSE;
use crate::clock;
use crate::notices::NoticeKind;

/// An update of the bindings that took less is followed by the next one without a pause: a new stream is
/// read from its binding on.
const UPDATE_PROMPT: Duration = Duration::from_millis(50);

/// The longest pause between two updates of the bindings.
const UPDATE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// When the bindings are next updated. A search among very many streams takes a while, and streams may
/// appear at any rate: after a long update, the pause is nine times as long as it took.
#[derive(Default)]
pub(super) struct Rebinding {
    is_requested: bool,
    not_before: Option<Instant>,
}

impl Rebinding {
    pub(super) fn request(&mut self) {
        self.is_requested = true;
    }

    /// Resolves when an update is requested and its time has come.
    pub(super) async fn due(&self) {
        match (self.is_requested, self.not_before) {
            (false, _) => std::future::pending().await,
            (true, Some(time)) => tokio::time::sleep_until(time.into()).await,
            (true, None) => {}
        }
    }

    pub(super) fn done(&mut self, started: Instant) {
        let now = Instant::now();
        self.is_requested = false;
        let spent = now.duration_since(started);
        self.not_before = (spent > UPDATE_PROMPT).then(|| now + (9 * spent).min(UPDATE_PAUSE_MAX));
    }
}

impl Running {
    /// Converts elements to the schema with which their stream is bound. If the stream's schema has
    /// changed, the stream is rebound first, because values of one field could otherwise be taken for
    /// those of another. Elements that come again, because the stream is then followed anew, are removed.
    pub(super) async fn shape_as_bound(&mut self, stream: &str, elements: &mut Vec<StreamElement>) {
        let follower = self.followers.get(stream);
        let Some(schema) = follower.map(|follower| follower.schema().clone()) else {
            return;
        };
        if self.bound_schema(stream) == Some(&schema) {
            return;
        }
        self.bind().await;
        let next = self
            .followers
            .get(stream)
            .map_or(0, StreamFollower::next_sequence);
        elements.retain(|element| element.position.sequence < next);
        if let Some(bound) = self.bound_schema(stream) {
            for element in elements {
                element.values = bound.project(&schema, std::mem::take(&mut element.values));
            }
        }
    }

    /// Updates the bindings from the registry.
    pub(super) async fn bind(&mut self) {
        let now = clock::now();
        // Unbound sources later resume from their last position.
        self.store_progress();
        let mut kept = self.bound_counts();
        let mut updates: Vec<(Vec<SensorMachineInput>, Vec<BindingChange>)> = Vec::new();
        let mut ends: Vec<SensorMachineInput> = Vec::new();
        self.may_unbind = false;
        for index in 0..self.bindings.len() {
            let mut choice = Vec::new();
            let Some(mut found) = self.find(index, now, &mut choice).await else {
                continue;
            };
            let unread = self.unread(index, &found);
            self.may_unbind |= !unread.is_empty();
            found.extend(unread);
            found.extend(self.silent(index, &found));
            let binding = &mut self.bindings[index];
            let before: Vec<String> = names(binding).map(str::to_owned).collect();
            let changes = binding.update(now, &found);
            let is_kept = |stream: &String| names(binding).any(|bound| bound == stream);
            if !before.is_empty() && !before.iter().any(is_kept) {
                let alias = binding.alias().to_owned();
                ends.push(Input::Command(SensorCommand::EndSlides { alias }));
            }
            updates.push((choice, changes));
        }
        if !ends.is_empty() {
            // By themselves, so that a stream that returns continues after them.
            self.step(ends).await;
            self.store_progress();
        }
        let mut commands: Vec<SensorMachineInput> = Vec::new();
        for (choice, changes) in updates {
            commands.extend(choice);
            for change in changes {
                let stream = change.candidate.stream.clone();
                let (alias, schema) = (change.alias.clone(), change.candidate.schema.clone());
                let verb = match change.kind {
                    BindingChangeKind::Bound => "bound to",
                    BindingChangeKind::Unbound => "unbound from",
                };
                let shown = self.app.catalogue.names().current(&stream);
                let text = format!("{alias} {verb} {shown}: {}", change.reason);
                self.app.observability.notices.notify(
                    NoticeKind::Binding,
                    &self.name,
                    text.clone(),
                );
                self.remember(change.at.to_string(), text);
                if change.kind == BindingChangeKind::Unbound
                    && let Some(count) = kept.get_mut(&stream)
                {
                    *count = count.saturating_sub(1);
                }
                let shared: Arc<str> = stream.as_str().into();
                commands.push(Input::Command(match change.kind {
                    BindingChangeKind::Bound => SensorCommand::Bind {
                        alias,
                        stream: shared,
                        schema,
                    },
                    BindingChangeKind::Unbound => SensorCommand::Unbind {
                        alias,
                        stream: shared,
                    },
                }));
            }
        }
        // A stream that was unbound everywhere is followed again, and its windows are filled again, even if it is
        // bound again at once: with other fields, or by another device.
        self.followers
            .retain(|stream, _| kept.get(&**stream).is_none_or(|count| *count > 0));
        commands.extend(self.follow_bound().await);
        self.step(commands).await;
        self.show_bindings();
    }

    /// The number of sources to which each stream is bound.
    fn bound_counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for bound in self.bindings.iter().flat_map(Binding::bound) {
            *counts.entry(bound.candidate.stream.clone()).or_default() += 1;
        }
        counts
    }

    /// Restarts from the stored state, after the log was full.
    pub(super) async fn restart(&mut self) {
        tokio::time::sleep(FULL_PAUSE).await;
        for offered in std::mem::take(&mut self.offered) {
            // The stored state decides, whatever the result.
            let _ = offered.await;
        }
        self.progress.roll_back();
        self.must_rebind = false;
        self.followers.clear();
        let limits = SensorLimits::default();
        let machine = VirtualSensor::new(self.descriptor.clone(), limits);
        self.machine = Some(continued(machine, &self.output).await);
        let mut commands = Vec::new();
        for (index, binding) in self.bindings.iter().enumerate() {
            let source = &self.descriptor.sources[index];
            let fallback = self.fallbacks[index].as_ref();
            if let Some(choice) = fallback.and_then(Fallback::current) {
                let alias = source.alias.clone();
                commands.push(Input::Command(SensorCommand::Choose { alias, choice }));
            }
            commands.extend(binding.bound().map(|bound| {
                Input::Command(SensorCommand::Bind {
                    alias: source.alias.clone(),
                    stream: bound.candidate.stream.as_str().into(),
                    schema: bound.candidate.schema.clone(),
                })
            }));
        }
        commands.extend(self.follow_bound().await);
        self.step(commands).await;
    }
}

/// The streams that a source is bound to.
fn names(binding: &Binding) -> impl Iterator<Item = &str> {
    binding.bound().map(|bound| &*bound.candidate.stream)
}
