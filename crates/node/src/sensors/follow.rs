//! The inputs of a virtual sensor: it follows its bound streams from its last position.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use chappe_log::Error;
use chappe_machine::Input;
use chappe_stream::{
    Epoch, Extent, Position, SensorCommand, StoreError, StreamElement, StreamFollower, StreamLog,
};

use super::progress::Evaluated;
use super::run::{Running, SensorMachineInput};

/// Evaluated elements that are recalled into the windows; reason: the size of a usual window.
const RECALLED_MAX: u64 = 65_536;
/// Elements read per step of a recall.
const RECALL_STEP: u64 = 1_024;

impl Running {
    /// Follows exactly the bound streams, each from its last position in this or an earlier run,
    /// otherwise from now on. Returns the earlier elements that the windows must hold.
    pub(super) async fn follow_bound(&mut self) -> Vec<SensorMachineInput> {
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
            let evaluated = self.evaluated(&stream, log);
            let next = match evaluated.map(|evaluated| log.resume(evaluated.at)) {
                None => {
                    let next = log.log().last() + 1;
                    // Store the start, so that no element after it is skipped if this run ends.
                    let at = Position {
                        epoch: Epoch(log.log().epoch()),
                        sequence: next - 1,
                    };
                    let stored = self.progress.begin(self.rollbacks_seen, &stream, at);
                    self.on_progress_stored(stored);
                    next
                }
                Some(Ok(next)) => {
                    let first = evaluated.map_or(next, |evaluated| evaluated.first);
                    recalled.extend(self.recall(&stream, log, first..next).await);
                    next
                }
                Some(Err(rollback)) => {
                    self.drop("rollback", rollback.to_string());
                    rollback.next
                }
            };
            let follower = match self.reads_uncommitted {
                true => log.follow_eagerly(next),
                false => log.follow(next),
            };
            self.followers.insert(stream.into(), follower);
        }
        recalled
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

    /// Reads recently evaluated elements back into the windows.
    async fn recall(
        &mut self,
        stream: &str,
        log: &StreamLog,
        evaluated: Range<u64>,
    ) -> Option<SensorMachineInput> {
        if evaluated.is_empty() {
            return None;
        }
        let bindings = self.descriptor.sources.iter().zip(&self.bindings);
        let bound = bindings.filter(|(_, binding)| {
            let mut bound = binding.bound();
            bound.any(|bound| bound.candidate.stream == stream)
        });
        let (mut elements, mut age) = (1, Duration::ZERO);
        for (source, _) in bound {
            match source.window {
                Extent::Count(count) => elements = elements.max(count as u64),
                Extent::Time(length) => age = age.max(length),
            }
        }
        let log = log.clone();
        let read =
            tokio::task::spawn_blocking(move || before(&log, evaluated, elements, age)).await;
        let elements = read.ok()?;
        Some(Input::Command(SensorCommand::Recall {
            stream: stream.into(),
            elements: elements.into_iter().map(Arc::new).collect(),
        }))
    }
}

/// The newest of the evaluated elements that a window of this many elements or this length holds.
fn before(
    log: &StreamLog,
    evaluated: Range<u64>,
    elements: u64,
    age: Duration,
) -> Vec<StreamElement> {
    let next = evaluated.end;
    let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
    let first = log.log().first().max(evaluated.start);
    let mut from = next.saturating_sub(elements.min(RECALLED_MAX)).max(first);
    let read = |from: u64| {
        let mut found = Vec::new();
        let mut at = from;
        while at < next {
            let count = usize::try_from(next - at).unwrap_or(usize::MAX);
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
    };
    loop {
        let found = read(from);
        let times = || found.iter().map(|element| element.source_time.0);
        let reached = match (times().next(), times().max()) {
            (Some(oldest), Some(newest)) => newest.saturating_sub(oldest) >= age,
            _ => true,
        };
        let enough = next - from >= RECALLED_MAX;
        if reached || enough || from == first {
            return found;
        }
        // Double the distance.
        from = from
            .saturating_sub((next - from).max(RECALL_STEP))
            .max(first);
    }
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
