//! The durable record of losses and of the presence of sources, in two journals.
//!
//! Only what the log cannot tell later is recorded: damage, trims and numbers are read from the log
//! itself. A loss or a change is written at once; more of the same in the next second are added up and
//! written together, so that a flood costs one entry a second for each stream and reason.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_log::{EpochReason, Error, Level, Recovery, Store};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::journal::{Entries, Journal};
use super::run_state::{LastRun, RunState};
use crate::clock;

/// Entries that each journal keeps; reason: about 8 MiB, and all are read for one answer.
const ENTRIES_MAX: u64 = 1 << 16;
/// Losses of different streams and reasons, and changes, that wait to be written.
const PENDING_MAX: usize = 1 << 16;
/// Time between two writes.
const WRITE_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a reason or a cause; reason: some repeat what a device or another node says.
const TEXT_BYTES_MAX: usize = 256;

/// The name of a loss whose stream is not recorded, because too many waited to be written.
pub(super) const UNNAMED: &str = "*";
/// The key of the node itself among the sources.
pub(super) const NODE: &str = "";

/// What happened to elements that are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum LossKind {
    /// They will never come.
    Lost,
    /// They came, and were not accepted.
    Refused,
    /// They were refused before, and were stored later.
    Restored,
}

/// Elements of a stream that are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    /// The stream here.
    pub(crate) stream: String,
    pub(crate) kind: LossKind,
    pub(crate) reason: String,
    /// How many.
    pub(crate) elements: u64,
    /// Whether there may be more.
    pub(crate) is_lower_bound: bool,
    /// The last number given out here before the first of them, and before the last of them.
    pub(crate) after: u64,
    pub(crate) until: u64,
    /// Their numbers, where they had some: epoch, first, and the one after the last.
    pub(crate) numbers: Option<(u64, u64, u64)>,
    /// Whether these are numbers at the origin of a link.
    pub(crate) is_of_origin: bool,
    /// The first and last source time, where these are known; nanoseconds since 1970.
    pub(crate) times: Option<(i64, i64)>,
    /// When the first and the last of them were noticed.
    pub(crate) noticed: (i64, i64),
}

impl Loss {
    /// Elements of a stream that are noticed to be lost now.
    pub(crate) fn now(stream: &str, kind: LossKind, reason: &str, elements: u64) -> Self {
        let now = clock::now().0;
        Self {
            stream: stream.to_owned(),
            kind,
            reason: shortened(reason),
            elements,
            is_lower_bound: false,
            after: 0,
            until: 0,
            numbers: None,
            is_of_origin: false,
            times: None,
            noticed: (now, now),
        }
    }

    /// Whether nothing that matters is forgotten when `more` is added.
    fn continues(&self, more: &Self) -> bool {
        match (self.numbers, more.numbers) {
            (None, None) => self.times.is_some() == more.times.is_some(),
            (Some((epoch, _, next)), Some((other, first, _))) => epoch == other && next == first,
            _ => false,
        }
    }

    /// Adds further elements of the same stream, kind and reason.
    fn add(&mut self, more: &Self) {
        self.elements = self.elements.saturating_add(more.elements);
        self.is_lower_bound |= more.is_lower_bound;
        self.until = self.until.max(more.until);
        self.noticed.1 = self.noticed.1.max(more.noticed.1);
        self.times = match (self.times, more.times) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            _ => None,
        };
        self.numbers = match (self.numbers, more.numbers) {
            (Some((epoch, first, next)), Some((other, from, after)))
                if epoch == other && next == from =>
            {
                Some((epoch, first, after))
            }
            _ => None,
        };
    }
}

/// An entry of the record of sources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum SourceEntry {
    /// A source became usable, or is no longer.
    Changed {
        key: String,
        is_present: bool,
        cause: String,
        /// Nanoseconds since 1970.
        at: i64,
    },
    /// From now on a stream belongs to this source.
    Claimed {
        stream: String,
        key: String,
        at: i64,
    },
}

impl SourceEntry {
    fn at(&self) -> i64 {
        match self {
            Self::Changed { at, .. } | Self::Claimed { at, .. } => *at,
        }
    }
}

#[derive(Default)]
struct Pending {
    losses: BTreeMap<(String, LossKind, String), Vec<Loss>>,
    /// How many losses wait.
    count: usize,
    sources: VecDeque<SourceEntry>,
    /// What is being written.
    writing_losses: Vec<Loss>,
    writing_sources: Vec<SourceEntry>,
    /// The source of each stream, as recorded.
    claims: BTreeMap<String, String>,
}

/// The record of losses and of sources.
pub(crate) struct Ledger {
    store: Store,
    losses: Journal,
    sources: Journal,
    pending: Mutex<Pending>,
    /// Held by the one that writes.
    writing: Mutex<()>,
    wake: Notify,
    run: Option<Arc<RunState>>,
}

impl Ledger {
    /// Opens the record, and records how the last run ended. Reads the disk.
    pub(crate) fn open(directory: &std::path::Path, store: &Store, recovery: &Recovery) -> Self {
        let now = clock::now().0;
        let (run, last) = match RunState::begin(directory, now) {
            Ok((run, last)) => (Some(run), last),
            Err(error) => {
                tracing::warn!(%error, "cannot record the state of this run");
                (None, None)
            }
        };
        let ledger = Self {
            store: store.clone(),
            losses: Journal::new(store, "record/losses", ENTRIES_MAX),
            sources: Journal::new(store, "record/sources", ENTRIES_MAX),
            pending: Mutex::default(),
            writing: Mutex::default(),
            wake: Notify::new(),
            run,
        };
        ledger.record_last_run(last.as_ref(), now);
        for loss in lost_at_the_end(store, recovery, last.as_ref(), now) {
            ledger.note(loss);
        }
        ledger
    }

    /// Records that the node is here, and when the last run ended, unless that run did.
    fn record_last_run(&self, last: Option<&LastRun>, now: i64) {
        let mut was_here = false;
        let entries = self.read_sources().map(|read| read.entries);
        for (_, entry) in entries.unwrap_or_default() {
            match entry {
                SourceEntry::Claimed { stream, key, .. } => {
                    self.lock().claims.insert(stream, key);
                }
                SourceEntry::Changed {
                    key, is_present, ..
                } if key == NODE => was_here = is_present,
                SourceEntry::Changed { .. } => {}
            }
        }
        if was_here {
            let at = last.map_or(now, |last| last.alive.min(now));
            self.changed_at(NODE, false, "the node ended without a shutdown", at);
        }
        self.changed_at(NODE, true, "the node started", now);
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where streams of level memory note how far they are acknowledged.
    pub(crate) fn run_state(&self) -> Option<&Arc<RunState>> {
        self.run.as_ref()
    }

    /// Records a loss, whose place among the elements of its stream is here unless it names one.
    pub(crate) fn note(&self, mut loss: Loss) {
        if loss.elements == 0 && !loss.is_lower_bound {
            return;
        }
        if loss.until == 0
            && let Some(stream) = self.store.existing(&loss.stream)
        {
            loss.after = stream.assigned();
            loss.until = loss.after;
        }
        let mut pending = self.lock();
        let mut key = (loss.stream.clone(), loss.kind, loss.reason.clone());
        let is_full = pending.count >= PENDING_MAX;
        if is_full && !pending.losses.contains_key(&key) {
            key.0 = UNNAMED.to_owned();
            (loss.stream, loss.after, loss.until) = (UNNAMED.to_owned(), 0, 0);
        }
        let known = pending.losses.entry(key).or_default();
        match known.last_mut() {
            Some(last) if is_full || last.continues(&loss) => last.add(&loss),
            _ => {
                known.push(loss);
                pending.count += 1;
            }
        }
        drop(pending);
        self.wake.notify_one();
    }

    /// A source became usable or is no longer.
    pub(crate) fn changed(&self, key: &str, is_present: bool, cause: &str) {
        self.changed_at(key, is_present, cause, clock::now().0);
    }

    fn changed_at(&self, key: &str, is_present: bool, cause: &str, at: i64) {
        self.push(SourceEntry::Changed {
            key: key.to_owned(),
            is_present,
            cause: shortened(cause),
            at,
        });
    }

    /// These streams belong to the source.
    pub(crate) fn claimed<'a>(&self, key: &str, streams: impl IntoIterator<Item = &'a str>) {
        for stream in streams {
            let known = self.lock().claims.insert(stream.to_owned(), key.to_owned());
            if known.is_none_or(|known| known != key) {
                self.push(SourceEntry::Claimed {
                    stream: stream.to_owned(),
                    key: key.to_owned(),
                    at: clock::now().0,
                });
            }
        }
    }

    fn push(&self, entry: SourceEntry) {
        let mut pending = self.lock();
        if pending.sources.len() >= PENDING_MAX {
            pending.sources.pop_front();
        }
        pending.sources.push_back(entry);
        drop(pending);
        self.wake.notify_one();
    }

    /// Writes everything that waits, and waits for the disk.
    ///
    /// # Errors
    /// The log refused; what was not written still waits.
    fn write(&self) -> Result<(), Error> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (losses, sources) = {
            let mut pending = self.lock();
            pending.writing_losses = take(&mut pending.losses).into_values().flatten().collect();
            pending.count = 0;
            pending.writing_sources = pending.sources.iter().cloned().collect();
            (pending.writing_losses.clone(), take(&mut pending.sources))
        };
        let entries: Vec<_> = losses.iter().map(|loss| (loss.noticed.1, loss)).collect();
        let (count, losses_written) = self.losses.append(&entries);
        let unwritten = losses.into_iter().skip(count);
        let entries: Vec<_> = sources.iter().map(|entry| (entry.at(), entry)).collect();
        let (sources_count, sources_written) = self.sources.append(&entries);
        let mut pending = self.lock();
        (pending.writing_losses, pending.writing_sources) = (Vec::new(), Vec::new());
        for (index, loss) in unwritten.enumerate() {
            let key = (loss.stream.clone(), loss.kind, loss.reason.clone());
            let later = pending.losses.entry(key).or_default();
            later.insert(index.min(later.len()), loss);
            pending.count += 1;
        }
        for entry in sources.into_iter().skip(sources_count).rev() {
            pending.sources.push_front(entry);
        }
        losses_written.and(sources_written)
    }

    /// The losses of a stream, and those whose stream is not recorded; oldest first.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn losses_of(&self, stream: &str) -> Result<Entries<Loss>, Error> {
        let is_wanted = |loss: &Loss| loss.stream == stream || loss.stream == UNNAMED;
        // First, since it may be written meanwhile.
        let waiting: Vec<Loss> = {
            let pending = self.lock();
            let pending_losses = pending.losses.values().flatten();
            let all = pending.writing_losses.iter().chain(pending_losses);
            all.filter(|loss| is_wanted(loss)).cloned().collect()
        };
        let mut read = self.losses.read::<Loss>()?;
        read.entries.retain(|(_, loss)| is_wanted(loss));
        for loss in waiting {
            if !read.entries.iter().rev().any(|(_, known)| *known == loss) {
                read.entries.push((loss.noticed.1, loss));
            }
        }
        Ok(read)
    }

    /// The record of sources, oldest first.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn read_sources(&self) -> Result<Entries<SourceEntry>, Error> {
        // First, since it may be written meanwhile.
        let mut waiting: Vec<SourceEntry> = {
            let pending = self.lock();
            let all = pending.writing_sources.iter().chain(&pending.sources);
            all.cloned().collect()
        };
        let mut read = self.sources.read::<SourceEntry>()?;
        let newest = read.entries.iter().rev().take(2 * PENDING_MAX);
        let written: BTreeSet<&SourceEntry> = newest.map(|(_, entry)| entry).collect();
        waiting.retain(|entry| !written.contains(entry));
        read.entries
            .extend(waiting.into_iter().map(|entry| (entry.at(), entry)));
        Ok(read)
    }

    /// Writes what is recorded until the node shuts down.
    pub(crate) async fn keep(self: Arc<Self>, mut drain: tokio::sync::watch::Receiver<bool>) {
        let mut alive = tokio::time::interval(WRITE_PAUSE);
        loop {
            tokio::select! {
                () = crate::tasks::shutdown(&mut drain) => return,
                _ = alive.tick() => {
                    if let Some(run) = &self.run {
                        run.touch(clock::now().0);
                    }
                    continue;
                }
                () = self.wake.notified() => {}
            }
            let ledger = self.clone();
            let written = tokio::task::spawn_blocking(move || ledger.write()).await;
            if !matches!(written, Ok(Ok(()))) {
                // The log is full or has stopped, which the node reports; it is tried again.
                self.wake.notify_one();
            }
            tokio::select! {
                () = crate::tasks::shutdown(&mut drain) => return,
                () = tokio::time::sleep(WRITE_PAUSE) => {}
            }
        }
    }

    /// Records the end of this run.
    pub(crate) fn end(&self) {
        let now = clock::now().0;
        if let Some(run) = &self.run {
            run.touch(now);
        }
        self.changed_at(NODE, false, "the node was shut down", now);
        if let Err(error) = self.write() {
            tracing::warn!(%error, "losses could not be recorded");
        }
    }
}

/// What the end of the last run took: acknowledged elements that did not reach their level.
fn lost_at_the_end(
    store: &Store,
    recovery: &Recovery,
    last: Option<&LastRun>,
    now: i64,
) -> Vec<Loss> {
    let mut losses = Vec::new();
    let names = recovery.streams.iter().map(|info| info.name.as_str());
    let streams: Vec<_> = names.filter_map(|name| store.existing(name)).collect();
    let is_same_boot = last.is_some_and(|last| last.is_same_boot);
    let alive = last.map_or(now, |last| last.alive.min(now));
    let reasons: BTreeMap<&str, EpochReason> = recovery
        .new_epochs
        .iter()
        .map(|epoch| (epoch.stream.as_str(), epoch.reason))
        .collect();
    let acknowledged: BTreeMap<(u64, u64), u64> = last
        .into_iter()
        .flat_map(|last| &last.acknowledged)
        .map(|one| ((one.stream, one.epoch), one.last))
        .collect();
    for stream in streams {
        let name = stream.name();
        if name.contains('/') {
            // A record of the node, not a stream of elements.
            continue;
        }
        let reason = reasons.get(name.as_str()).copied();
        let epochs = stream.epochs();
        let counted = epochs.iter().enumerate().find_map(|(at, (epoch, _))| {
            let last = acknowledged.get(&(stream.number().into(), *epoch))?;
            let end = epochs.get(at + 1).map_or(stream.last() + 1, |next| next.1);
            Some((*epoch, end, *last))
        });
        let is_below_power = stream.level() != Level::Power;
        let (reason, is_lower_bound) = match (reason, counted) {
            (Some(EpochReason::Copied), _) => ("restored_copy", true),
            (Some(EpochReason::Corrupt), _) => ("damaged", true),
            // The system still has what the process wrote.
            (_, Some(_)) if is_same_boot => ("process_ended", false),
            (Some(_), None) if is_same_boot => continue,
            (Some(EpochReason::TornTail), _) if !is_below_power => continue,
            (Some(_), _) => ("unclean_end", true),
            (None, Some(_)) => ("unclean_end", false),
            (None, None) => continue,
        };
        let (numbers, elements) = match counted {
            Some((epoch, end, last)) if last >= end => {
                (Some((epoch, end, last + 1)), last + 1 - end)
            }
            _ => (None, 0),
        };
        if elements == 0 && !is_lower_bound {
            continue;
        }
        let before = counted.map_or(stream.last(), |(_, end, _)| end - 1);
        losses.push(Loss {
            is_lower_bound,
            after: before,
            until: before,
            numbers,
            noticed: (alive, now),
            ..Loss::now(&name, LossKind::Lost, reason, elements)
        });
    }
    losses
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{MemoryDisk, Options};

    fn ledger(directory: &std::path::Path) -> Ledger {
        let (store, recovery) =
            Store::open(Box::new(MemoryDisk::new()), Options::default(), 1).unwrap();
        Ledger::open(directory, &store, &recovery)
    }

    fn letter(number: u64) -> Loss {
        Loss {
            numbers: Some((1, number, number + 1)),
            ..Loss::now("s", LossKind::Refused, "dead_letter_schema", 1)
        }
    }

    #[test]
    fn further_losses_are_added_up_but_numbers_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(directory.path());
        for _ in 0..1_000 {
            ledger.note(Loss::now("s", LossKind::Lost, "no stream", 2));
        }
        for number in [5, 6, 9] {
            ledger.note(letter(number));
        }
        let held = |ledger: &Ledger| {
            let read = ledger.losses_of("s").unwrap();
            assert!(!read.is_cut);
            let flat = read.entries.into_iter();
            let mut flat: Vec<_> = flat.map(|(_, it)| (it.elements, it.numbers)).collect();
            flat.sort_unstable();
            flat
        };
        let wanted = [(1, Some((1, 9, 10))), (2, Some((1, 5, 7))), (2_000, None)];
        // Whether they wait, are written, or both.
        assert_eq!(held(&ledger), wanted);
        ledger.write().unwrap();
        assert_eq!(held(&ledger), wanted);
        ledger.note(letter(10));
        assert_eq!(held(&ledger).len(), 4);
        assert!(ledger.losses_of("t").unwrap().entries.is_empty());
    }

    #[test]
    fn the_end_of_a_run_is_recorded_by_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let (store, recovery) =
            Store::open(Box::new(MemoryDisk::new()), Options::default(), 1).unwrap();
        let causes = |ledger: &Ledger| {
            let entries = ledger.read_sources().unwrap().entries.into_iter();
            let causes = entries.filter_map(|(_, entry)| match entry {
                SourceEntry::Changed { cause, .. } => Some(cause),
                SourceEntry::Claimed { .. } => None,
            });
            causes.collect::<Vec<_>>()
        };
        let first = Ledger::open(directory.path(), &store, &recovery);
        first.write().unwrap();
        let second = Ledger::open(directory.path(), &store, &recovery);
        let started = "the node started";
        let killed = "the node ended without a shutdown";
        assert_eq!(causes(&second), [started, killed, started]);
        second.end();
        let third = Ledger::open(directory.path(), &store, &recovery);
        let stopped = "the node was shut down";
        assert_eq!(causes(&third), [started, killed, started, stopped, started]);
    }
}
