//! The streams that a source is bound to now: of a source with a fallback, those of the first choice that delivers.

use chappe_machine::Input;
use chappe_registry::Principal;
use chappe_stream::descriptor::Source;
use chappe_stream::{
    Candidate, Descriptor, Fallback, Selection, SensorCommand, Sighting, StreamSchema, Timestamp,
    WindowClock,
};
use tokio::task::JoinHandle;

use super::running::{Running, SensorMachineInput};
use crate::catalogue::key;
use crate::sensors::candidates::{self, candidates};
use crate::sensors::table::Choice;
use crate::shared::App;

impl Running {
    /// The streams that match a source now. A change of its choice is added to `commands`.
    pub(super) async fn find(
        &mut self,
        index: usize,
        now: Timestamp,
        commands: &mut Vec<SensorMachineInput>,
    ) -> Option<Vec<Candidate>> {
        let source = &self.descriptor.sources[index];
        let alias = source.alias.clone();
        let fallback = self.fallbacks[index].as_ref();
        let choices = source.choices().enumerate().map(|(index, choice)| {
            let is_new = fallback.is_some_and(|fallback| fallback.is_new(index));
            (choice.clone(), self.descriptor.stream_of(choice), is_new)
        });
        let choices: Vec<_> = choices.collect();
        let has_fallback = fallback.is_some();
        let (app, own) = (self.app.clone(), self.output.name.clone());
        let search = move || {
            let found = choices.iter().map(|(selection, named, is_new)| {
                let mut found = candidates(&app, selection, named.as_deref(), &own)?;
                if has_fallback {
                    // A stream whose source has left makes room for the next choice at once.
                    found.retain(|one| is_here(&app, &one.stream));
                }
                let seen = has_fallback
                    .then(|| sighting(&app, &found, *is_new))
                    .flatten();
                Ok((found, seen))
            });
            found.collect::<Vec<Result<_, String>>>()
        };
        let found = tokio::task::spawn_blocking(search).await.ok()?;
        let mut searched = Vec::with_capacity(found.len());
        for one in found {
            match one {
                Ok(found) => searched.push(found),
                Err(error) => {
                    self.drop("source not searched", error);
                    if !has_fallback {
                        return None;
                    }
                    searched.push((Vec::new(), None));
                }
            }
        }
        let Some(fallback) = &mut self.fallbacks[index] else {
            return searched.pop().map(|(found, _)| found);
        };
        let before = fallback.current();
        let seen: Vec<Option<Sighting>> = searched.iter().map(|(_, seen)| *seen).collect();
        let Some(choice) = fallback.update(now, &seen) else {
            return Some(Vec::new());
        };
        let count = searched.len();
        let (mut found, _) = searched.swap_remove(choice);
        if before == Some(choice) {
            return Some(found);
        }
        let after = self.descriptor.sources[index].fallback_after;
        let reason = match before {
            Some(before) if before < choice => {
                format!(
                    ", since choice {} has delivered nothing for {after:?}",
                    before + 1
                )
            }
            Some(_) => ", which delivers again".to_owned(),
            None => String::new(),
        };
        for candidate in &mut found {
            candidate.why = format!(
                "{}; choice {} of {count}{reason}",
                candidate.why,
                choice + 1
            );
        }
        if before.is_some() {
            let streams = found.iter().map(|candidate| candidate.stream.clone());
            self.from_newest.extend(streams);
        }
        commands.push(Input::Command(SensorCommand::Choose { alias, choice }));
        Some(found)
    }

    /// Bound streams of a source that are no longer found, with stored elements that this sensor has not read.
    /// They stay bound until it has, so that the last elements of a device that leaves are evaluated, too.
    /// A source with a fallback leaves a stream at once, because another one already delivers.
    pub(super) fn unread(&self, index: usize, found: &[Candidate]) -> Vec<Candidate> {
        if self.fallbacks[index].is_some() {
            return Vec::new();
        }
        let is_unread = |stream: &str| {
            let follower = self.followers.get(stream)?;
            let entry = self.app.catalogue.get(stream)?;
            Some(follower.next_sequence() <= entry.log.log().last())
        };
        let bound = self.bindings[index].bound().map(|bound| &bound.candidate);
        let unread = bound.filter(|bound| {
            !found.iter().any(|one| one.stream == bound.stream)
                && is_unread(&bound.stream) == Some(true)
        });
        unread.cloned().collect()
    }

    /// Bound streams of a source on the node's clock whose device has left, if no other stream is found: their
    /// silence is a value. After a restart, the stream that it read last counts as bound.
    pub(super) fn silent(&mut self, index: usize, found: &[Candidate]) -> Vec<Candidate> {
        let clock = self.descriptor.sources[index].timing.clock;
        let before = self.read_before.get_mut(index).and_then(Option::take);
        if clock != WindowClock::Node || !found.is_empty() {
            return Vec::new();
        }
        let bound = self.bindings[index].bound().map(|bound| &bound.candidate);
        let bound = bound.chain(&before);
        let silent = bound.filter(|bound| {
            self.app.catalogue.get(&bound.stream).is_some() && !is_here(&self.app, &bound.stream)
        });
        silent.cloned().collect()
    }

    /// For each source on the node's clock with a query, the stream that it read last in an earlier run.
    pub(super) fn recall_streams(&self) -> JoinHandle<Vec<Option<Candidate>>> {
        let streams: Vec<String> = self.progress.streams(self.shape).cloned().collect();
        let (app, descriptor) = (self.app.clone(), self.descriptor.clone());
        let search = move || {
            let sources = descriptor.sources.iter();
            let last = sources.map(|source| last_read(&app, &descriptor, source, &streams));
            last.collect()
        };
        tokio::task::spawn_blocking(search)
    }

    /// The choices of a source as they are shown; none without a fallback.
    pub(super) fn shown_choices(&self, index: usize) -> Vec<Choice> {
        let Some(fallback) = &self.fallbacks[index] else {
            return Vec::new();
        };
        let choices = self.descriptor.sources[index].choices().enumerate();
        let shown = choices.map(|(index, choice)| Choice {
            choice: match self.descriptor.stream_of(choice) {
                Some(stream) => self.app.catalogue.names().current(&stream),
                None => candidates::described(choice),
            },
            is_used: fallback.current() == Some(index),
            delivered_at: fallback.delivered(index).map(|at| at.to_string()),
        });
        shown.collect()
    }
}

/// The fallback of each source that has one.
pub(super) fn fallbacks(descriptor: &chappe_stream::Descriptor) -> Vec<Option<Fallback>> {
    let sources = descriptor.sources.iter().map(|source| {
        let count = source.choices().count();
        (count > 1).then(|| Fallback::new(count, source.fallback_after))
    });
    sources.collect()
}

/// Of the streams that a sensor has read, the one with the newest element that this source alone may have read.
fn last_read(
    app: &App,
    descriptor: &Descriptor,
    source: &Source,
    streams: &[String],
) -> Option<Candidate> {
    let query = |source: &Source| match &source.selection {
        Selection::Query(query) if source.fallback.is_empty() => Some(query.clone()),
        _ => None,
    };
    let own = query(source).filter(|_| source.timing.clock == WindowClock::Node)?;
    let others = descriptor.sources.iter();
    let others: Vec<&Source> = others.filter(|it| it.alias != source.alias).collect();
    let is_anothers = |stream: &str, schema: &StreamSchema| {
        others.iter().any(|other| {
            let mut choices = other.choices();
            choices.any(|choice| match choice {
                Selection::Query(query) => query.value_field(schema).is_ok(),
                named => descriptor.stream_of(named).as_deref() == Some(stream),
            })
        })
    };
    let mut last: Option<(Timestamp, Candidate)> = None;
    for stream in streams {
        let Some(entry) = app.catalogue.get(stream) else {
            continue;
        };
        let schema = entry.log.schema();
        if own.value_field(&schema).is_err() || is_anothers(stream, &schema) {
            continue;
        }
        let Some(newest) = entry.log.newest(1).ok().and_then(|mut newest| newest.pop()) else {
            continue;
        };
        if last
            .as_ref()
            .is_none_or(|(time, _)| *time < newest.receive_time)
        {
            let candidate = Candidate {
                stream: entry.name.clone(),
                device: Some(entry.source()).filter(|source| !source.is_empty()),
                registered: app.registrar.registered_at(&entry.key()),
                why: "the source read it before the node restarted".to_owned(),
                schema,
            };
            last = Some((newest.receive_time, candidate));
        }
    }
    last.map(|(_, candidate)| candidate)
}

/// Whether the source of a stream, such as a device, is there.
fn is_here(app: &App, stream: &str) -> bool {
    let entity = app.registry.get(&key(stream), &Principal::Operator);
    entity.is_some()
}

/// What is seen of the streams of a choice; the time of the newest element is read only if the choice `is_new`.
fn sighting(app: &App, found: &[Candidate], is_new: bool) -> Option<Sighting> {
    let entries = found
        .iter()
        .filter_map(|candidate| app.catalogue.get(&candidate.stream));
    let mut seen = None;
    for entry in entries {
        let newest = || entry.log.newest(1).ok()?.pop();
        let received = is_new.then(newest).flatten().map(|it| it.receive_time);
        let sighting: &mut Sighting = seen.get_or_insert(Sighting {
            last: 0,
            received: None,
        });
        sighting.last = sighting.last.saturating_add(entry.log.log().last());
        sighting.received = sighting.received.max(received);
    }
    seen
}
