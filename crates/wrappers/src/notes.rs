//! Notes: what a program prints for people, passed on to the operator at a bounded rate.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines that one note shows; reason: the last lines of a stack trace name the error.
const SHOWN_LINES: usize = 3;
/// Time in which lines are collected before a note.
const COLLECT_TIME: Duration = Duration::from_millis(300);
/// The shortest pause between two notes.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause; reason: the node keeps 200 notices of all its parts.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Passes lines for people on to the operator. Clones share the rate: several lines at once become one
/// note, and while lines keep coming, the pauses between notes grow.
#[derive(Clone)]
pub struct Notes(Arc<Shared>);

struct Shared {
    pass: Box<dyn Fn(String) + Send + Sync>,
    waiting: Mutex<Waiting>,
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notes").field(&*self.lock()).finish()
    }
}

impl Default for Notes {
    /// Passes nothing on.
    fn default() -> Self {
        Self::new(drop)
    }
}

impl Notes {
    /// Passes each note to `pass`.
    pub fn new(pass: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            pass: Box::new(pass),
            waiting: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        let waiting = self.0.waiting.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line.
    pub(crate) fn add(&self, line: String) {
        self.lock().add(line, Instant::now());
    }

    /// When the next note is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.lock().due
    }

    /// Passes the note on if it is due.
    pub(crate) fn pass(&self) {
        let note = self.lock().take(Instant::now());
        if let Some(note) = note {
            (self.0.pass)(note);
        }
    }

    /// Forgets the lines that wait: they are passed on in another way.
    pub(crate) fn forget(&self) {
        let mut waiting = self.lock();
        (waiting.due, waiting.hidden) = (None, 0);
        waiting.lines.clear();
    }
}

/// Lines that were not passed on yet.
#[derive(Debug, Default)]
struct Waiting {
    /// The last ones.
    lines: VecDeque<String>,
    /// Lines before them.
    hidden: u64,
    due: Option<Instant>,
    /// The time of the last note, and the pause after it.
    last: Option<(Instant, Duration)>,
}

impl Waiting {
    fn add(&mut self, line: String, now: Instant) {
        if self.lines.len() == SHOWN_LINES {
            self.lines.pop_front();
            self.hidden += 1;
        }
        self.lines.push_back(line);
        let soonest = now + COLLECT_TIME;
        let free = self.last.map_or(soonest, |(last, pause)| last + pause);
        self.due.get_or_insert(soonest.max(free));
    }

    fn take(&mut self, now: Instant) -> Option<String> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.due = None;
        // Twice the pause without a note: it was quiet.
        let pause = match self.last {
            Some((last, pause)) if now < last + 2 * pause => (2 * pause).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        self.last = Some((now, pause));
        let lines: Vec<String> = self.lines.drain(..).collect();
        let shown = lines.join(" / ");
        Some(match std::mem::take(&mut self.hidden) {
            0 => shown,
            hidden => format!("{shown} (after {hidden} more lines)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_at_once_are_one_note_of_the_last() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        for line in ["a", "b", "c", "d", "e"] {
            waiting.add(line.to_owned(), start);
        }
        assert_eq!(waiting.take(start), None);
        let note = waiting.take(start + COLLECT_TIME);
        assert_eq!(note.as_deref(), Some("c / d / e (after 2 more lines)"));
        assert_eq!(waiting.take(start + LONGEST_PAUSE), None);
    }

    #[test]
    fn a_flood_becomes_few_notes_and_the_pause_ends_with_it() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let mut notes = 0;
        for second in 0..86_400 {
            let now = start + Duration::from_secs(second);
            waiting.add("again".to_owned(), now);
            notes += u32::from(waiting.take(now).is_some());
        }
        assert!((100..200).contains(&notes), "{notes} notes in a day");
        let quiet = start + Duration::from_secs(86_400) + 2 * LONGEST_PAUSE;
        waiting.add("later".to_owned(), quiet);
        let note = waiting.take(quiet + COLLECT_TIME);
        assert!(note.is_some_and(|note| note.starts_with("again") || note.starts_with("later")));
        let next = quiet + COLLECT_TIME + FIRST_PAUSE;
        waiting.add("more".to_owned(), next - COLLECT_TIME);
        assert_eq!(waiting.take(next).as_deref(), Some("more"));
    }
}
