//! What the library reports about itself: warnings, errors, and threads that it has ended.
//!
//! It reports them for the whole process, with the number of a domain in it. Each participant has a domain, and so a
//! journal. Texts come from strangers in part: they are bounded, and control characters are replaced.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The newest warnings that are shown; all are counted.
pub(crate) const WARNINGS_MAX: usize = 8;
/// The longest text in characters.
const TEXT_MAX: usize = 400;
/// Places in the library's sources whose warnings are logged, once each; reason: it has fewer.
const PLACES_MAX: usize = 256;

/// The journals of all participants, by the numbers of their domains.
static JOURNALS: Mutex<Vec<(u32, Weak<Journal>)>> = Mutex::new(Vec::new());

/// Threads that the library has ended, in this process.
static ABORTS: AtomicU64 = AtomicU64::new(0);

/// The reports of one participant's library.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    aborted: AtomicBool,
    warnings: Mutex<Warnings>,
}

#[derive(Debug, Default)]
struct Warnings {
    count: u64,
    newest: VecDeque<String>,
    logged: BTreeSet<(u32, &'static str)>,
}

impl Journal {
    /// The journal of a domain of this process.
    pub(crate) fn of(domain: u32) -> Arc<Self> {
        let journal = Arc::new(Self::default());
        let mut journals = lock(&JOURNALS);
        journals.retain(|(_, known)| known.strong_count() > 0);
        journals.push((domain, Arc::downgrade(&journal)));
        journal
    }

    /// Records a warning, and logs the first one from each place in the sources.
    pub(crate) fn warn(&self, place: (u32, &'static str), text: &str) {
        let text = printable(text);
        let mut warnings = lock(&self.warnings);
        warnings.count += 1;
        if warnings.newest.len() >= WARNINGS_MAX {
            warnings.newest.pop_front();
        }
        let is_new = warnings.logged.len() < PLACES_MAX && warnings.logged.insert(place);
        warnings.newest.push_back(text.clone());
        drop(warnings);
        if is_new {
            tracing::warn!("DDS: {text} (further ones of this kind are counted, not logged)");
        }
    }

    /// The number of warnings.
    pub(crate) fn count(&self) -> u64 {
        lock(&self.warnings).count
    }

    /// The newest warnings, oldest first.
    pub(crate) fn newest(&self) -> Vec<String> {
        lock(&self.warnings).newest.iter().cloned().collect()
    }

    /// Whether the library has ended a thread of this participant.
    pub(crate) fn has_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }
}

/// Records a warning of the library in the journal of its domain.
pub(crate) fn warn(domain: u32, place: (u32, &'static str), text: &str) {
    match find(domain) {
        Some(journal) => journal.warn(place, text),
        None => tracing::warn!("DDS: {}", printable(text)),
    }
}

/// Records that the library has ended a thread of a domain. Allocates nothing: memory may be used up.
pub(crate) fn abort(domain: u32) {
    ABORTS.fetch_add(1, Ordering::Relaxed);
    if let Some(journal) = find(domain) {
        journal.aborted.store(true, Ordering::Relaxed);
    }
}

/// The number of threads that the library has ended in this process.
pub(crate) fn aborts() -> u64 {
    ABORTS.load(Ordering::Relaxed)
}

fn find(domain: u32) -> Option<Arc<Journal>> {
    let journals = lock(&JOURNALS);
    let (_, found) = journals
        .iter()
        .rev()
        .find(|(number, _)| *number == domain)?;
    found.upgrade()
}

fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().take(TEXT_MAX).map(plain).collect();
    text.trim().to_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_counted_and_the_newest_are_shown() {
        let journal = Journal::of(u32::MAX - 7);
        for number in 0..WARNINGS_MAX + 3 {
            warn(u32::MAX - 7, (1, "a.c"), &format!("\x1b[2Jno {number}\n"));
        }
        assert_eq!(journal.count(), WARNINGS_MAX as u64 + 3);
        let newest = journal.newest();
        assert_eq!(newest.len(), WARNINGS_MAX);
        assert_eq!(newest[0], "[2Jno 3".to_owned());
        assert!(!journal.has_aborted());
        abort(u32::MAX - 7);
        assert!(journal.has_aborted());
    }
}
