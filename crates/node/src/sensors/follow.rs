//! What a virtual sensor reads: the streams that it is bound to, from where it was.

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
use super::run::{Given, Running};

/// Elements before the first one to be evaluated that are recalled into the windows; reason: as many
/// as a window of the usual size has.
const RECALLED_MAX: u64 = 65_536;
/// Elements read at once for that.
const RECALL_STEP: u64 = 1_024;

impl Running {
    /// Follows the streams that a source is bound to, and no others: from where it was before, in
    /// this run or an earlier one, else from now on. What the windows are to hold of what was before.
    pub(super) async fn follow_bound(&mut self) -> Vec<Given> {
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
                    // From here on nothing is passed over, whatever ends this run.
                    let at = Position {
                        epoch: Epoch(log.log().epoch()),
                        sequence: next - 1,
                    };
                    let begun = self.progress.begin(self.taken_back, &stream, at);
                    self.told(begun);
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
            let follower = match self.eager {
                true => log.follow_eagerly(next),
                false => log.follow(next),
            };
            self.followers.insert(stream.into(), follower);
        }
        recalled
    }

    /// How far an earlier run has evaluated a stream.
    fn evaluated(&self, stream: &str, log: &StreamLog) -> Option<Evaluated> {
        let told = self.progress.of(stream)?;
        // An output of one stream alone says it itself.
        let newest = self.output.log.newest(1).ok()?;
        let said = newest.last().and_then(|element| element.origin);
        let epochs = log.log().epochs();
        let said = said.filter(|said| epochs.iter().any(|(epoch, _)| *epoch == said.epoch.0));
        let later =
            |said: &Position| said.epoch != told.at.epoch || said.sequence > told.at.sequence;
        let at = said.filter(later).unwrap_or(told.at);
        Some(Evaluated { at, ..told })
    }

    /// Reads what was evaluated of late into the windows.
    async fn recall(
        &mut self,
        stream: &str,
        log: &StreamLog,
        evaluated: Range<u64>,
    ) -> Option<Given> {
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

/// The newest of these elements that a window of so many elements, or of such a length, holds.
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
        // Twice as far back.
        from = from
            .saturating_sub((next - from).max(RECALL_STEP))
            .max(first);
    }
}

/// The elements that come next in any stream; the search begins behind the one that was `last`.
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
