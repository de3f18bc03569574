//! The inputs of a virtual sensor: it follows its bound streams from its last position.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use chappe_log::Error;
use chappe_machine::Input;
use chappe_stream::{
    Epoch, Extent, Position, SensorCommand, SensorInput, StoreError, StreamElement, StreamFollower,
    StreamLog, WINDOW_ELEMENTS_MAX,
};

use super::running::{Running, SensorMachineInput};
use crate::sensors::progress::{Evaluated, Held};

/// Most evaluated elements of a stream that are read again for the windows: those that a full window
/// holds, and twice as many that it does not hold, because they were late, or because it has moved on
/// since its first element was recorded.
const RECALLED_MAX: u64 = 3 * WINDOW_ELEMENTS_MAX as u64;

impl Running {
    /// Follows exactly the bound streams, each from its last position in this or an earlier run,
    /// otherwise from now on. Returns the earlier elements that the windows must hold.
    pub(super) async fn follow_bound(&mut self) -> Option<SensorMachineInput> {
        let mut wanted: Vec<String> = Vec::new();
        for binding in &self.bindings {
            wanted.extend(binding.bound().map(|bound| bound.candidate.stream.clone()));
        }
        self.followers
            .retain(|stream, _| wanted.iter().any(|wanted| **wanted == **stream));
        let mut recalled = Vec::new();
        for stream in wanted {
            if self.followers.contains_key(stream.as_str()) {
                continue;
            }
            let Some(entry) = self.app.catalogue.get(&stream) else {
                continue;
            };
            let log = &entry.log;
            let is_from_newest = self.from_newest.remove(&stream);
            let evaluated = self.evaluated(&stream, log);
            if is_from_newest {
                let done = evaluated.map_or(0, |evaluated| evaluated.at.sequence);
                // The element by which the choice was found to deliver, unless it was evaluated before.
                let next = log.log().last().max(done + 1);
                self.begin(&stream, log, next);
                self.insert_follower(stream, log, next);
                continue;
            }
            let next = match evaluated.map(|evaluated| log.resume(evaluated.at)) {
                None => {
                    let next = log.log().last() + 1;
                    self.begin(&stream, log, next);
                    next
                }
                Some(Ok(next)) => {
                    if let Some(evaluated) = evaluated {
                        recalled.extend(self.recall(&stream, log, evaluated, next).await);
                    }
                    next
                }
                Some(Err(rollback)) => {
                    self.drop("rollback", rollback.to_string());
                    rollback.next
                }
            };
            self.insert_follower(stream, log, next);
        }
        // Several streams of a window are received in this order.
        recalled.sort_by_key(|input: &SensorInput| input.element.receive_time);
        let elements = Some(recalled).filter(|elements| !elements.is_empty())?;
        Some(Input::Command(SensorCommand::Recall { elements }))
    }

    /// Stores that a stream is evaluated from `next` on, so that no element after it is skipped if this run ends.
    fn begin(&mut self, stream: &str, log: &StreamLog, next: u64) {
        let at = Position {
            epoch: Epoch(log.log().epoch()),
            sequence: next - 1,
        };
        let stored = self
            .progress
            .begin(self.rollbacks_seen, stream, at, self.shape);
        self.on_progress_stored(stored);
    }

    fn insert_follower(&mut self, stream: String, log: &StreamLog, next: u64) {
        let follower = match self.reads_uncommitted {
            true => log.follow_eagerly(next),
            false => log.follow(next),
        };
        self.followers.insert(stream.into(), follower);
    }

    /// The progress of an earlier run on a stream.
    fn evaluated(&self, stream: &str, log: &StreamLog) -> Option<Evaluated> {
        let recorded = self.progress.of(stream)?;
        // The output of a single stream carries its position itself.
        let newest = self.output.log.newest(1).ok()?;
        let origin = newest.last().and_then(|element| element.origin);
        let epochs = log.log().epochs();
        let is_known = |at: &Position| epochs.iter().any(|(epoch, _)| *epoch == at.epoch.0);
        let is_later =
            |at: &Position| at.epoch != recorded.at.epoch || at.sequence > recorded.at.sequence;
        let at = origin.filter(is_known).filter(is_later);
        let at = at.unwrap_or(recorded.at);
        Some(Evaluated { at, ..recorded })
    }

    /// Reads evaluated elements before `next` again that windows hold.
    async fn recall(
        &mut self,
        stream: &str,
        log: &StreamLog,
        evaluated: Evaluated,
        next: u64,
    ) -> Vec<SensorInput> {
        let first = log.log().first().max(evaluated.first);
        let from = match evaluated.held {
            held if held.shape == self.shape => held.first,
            // Other windows than before, or none recorded yet.
            _ => next.saturating_sub(self.reach()),
        };
        let from = from.max(first);
        let bounded = from.max(next.saturating_sub(RECALLED_MAX));
        if bounded > from {
            let detail = format!("{} elements of {stream}", bounded - from);
            self.drop("not_recalled", detail);
        }
        let held = Held {
            shape: self.shape,
            first: bounded.min(next),
        };
        self.progress.note_held(stream, held);
        let log = log.clone();
        let read = tokio::task::spawn_blocking(move || read(&log, bounded..next)).await;
        let stream: Arc<str> = stream.into();
        let inputs = read.unwrap_or_default().into_iter().map(|element| {
            let (stream, element) = (stream.clone(), Arc::new(element));
            SensorInput { stream, element }
        });
        inputs.collect()
    }

    /// The number of elements of a stream that its windows may hold, with as many late ones.
    fn reach(&self) -> u64 {
        let sources = self.descriptor.sources.iter();
        let reach = sources.map(|source| match (source.window, &source.per) {
            (Extent::Count(count), None) if !source.has_turns() => {
                2 * count as u64 + UNRECORDED_MAX
            }
            _ => RECALLED_MAX,
        });
        reach.max().unwrap_or(0)
    }

    /// Records from which element on each stream is needed after a restart, once many before it are not.
    /// Runs once a second, because it looks at each element of the windows.
    pub(super) fn record_held(&mut self) {
        let Some(machine) = &self.machine else {
            return;
        };
        let elements = machine.held() as u64;
        for stream in self.followers.keys() {
            let Some(known) = self.progress.of(stream) else {
                continue;
            };
            let next = known.at.sequence + 1;
            let recorded = match known.held.shape == self.shape {
                true => known.held.first,
                false => known.first,
            };
            if next.saturating_sub(recorded) > 2 * elements + UNRECORDED_MAX {
                let first = machine.first_held(stream).map(|first| first.sequence);
                let held = Held {
                    shape: self.shape,
                    first: first.unwrap_or(next).min(next),
                };
                self.progress.note_held(stream, held);
            }
        }
    }
}

/// Elements before the windows that may be read again after a restart, in addition to twice as many as
/// the windows hold; reason: they are read in milliseconds.
const UNRECORDED_MAX: u64 = 4_096;

/// The elements of these numbers that exist.
fn read(log: &StreamLog, numbers: Range<u64>) -> Vec<StreamElement> {
    let mut found = Vec::new();
    let mut at = numbers.start;
    while at < numbers.end {
        let count = usize::try_from(numbers.end - at).unwrap_or(usize::MAX);
        match log.read(at, count) {
            Ok(read) => {
                let Some(last) = read.last() else { break };
                at = last.position.sequence + 1;
                found.extend(read);
            }
            Err(StoreError::Log(Error::Gap { next, .. })) => at = next,
            Err(_) => break,
        }
    }
    found
}

/// The next elements of any stream. The search starts after the stream `last`, so that none starves.
pub(super) async fn next_batch(
    followers: &mut BTreeMap<Arc<str>, StreamFollower>,
    last: &mut Arc<str>,
) -> (Arc<str>, Result<Vec<StreamElement>, StoreError>) {
    poll_fn(|context| {
        for round in [true, false] {
            for (name, follower) in followers.iter_mut() {
                if (*name > *last) == round
                    && let Poll::Ready(result) = follower.poll_next(context)
                {
                    last.clone_from(name);
                    return Poll::Ready((name.clone(), result));
                }
            }
        }
        Poll::Pending
    })
    .await
}
