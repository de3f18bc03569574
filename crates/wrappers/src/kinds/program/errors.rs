//! The standard error of a program: lines for people, in the node's log, in its notices, and in the error
//! that says why the program ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::ChildStderr;
use tokio::time::Instant;

use crate::Notes;

/// Lines that an error shows.
const SHOWN_LINES: usize = 3;
/// Lines that are logged of one run; reason: the node's own log stays readable.
const LOGGED_LINES: usize = 1_000;
/// Longest part of a line that is kept.
const LINE_BYTES: u64 = 1_000;
/// Time that the last note may wait once standard error has ended; the next run passes on a later one.
const LAST_TIME: Duration = Duration::from_secs(1);

/// Reads standard error to its end. `kept` has the last lines.
pub(super) async fn read(
    name: String,
    errors: ChildStderr,
    kept: Arc<Mutex<VecDeque<String>>>,
    notes: Notes,
) {
    let mut errors = BufReader::new(errors);
    let mut count = 0;
    let mut line = Vec::new();
    loop {
        let due = notes.due();
        let room = LINE_BYTES.saturating_sub(line.len() as u64);
        let mut some = (&mut errors).take(room);
        let read = tokio::select! {
            // A read that is dropped leaves what it has in `line`.
            read = some.read_until(b'\n', &mut line) => read,
            () = until(due) => {
                notes.pass();
                continue;
            }
        };
        if !matches!(read, Ok(bytes) if bytes > 0 || !line.is_empty()) {
            break;
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        if text.is_empty() {
            continue;
        }
        count += 1;
        if count <= LOGGED_LINES {
            tracing::warn!(program = name, "{text}");
        }
        if count == LOGGED_LINES {
            tracing::warn!(program = name, "more lines of this run are not logged");
        }
        notes.add(text.clone());
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == SHOWN_LINES {
            kept.pop_front();
        }
        kept.push_back(text);
    }
    if let Some(due) = notes.due().filter(|due| *due < Instant::now() + LAST_TIME) {
        // The caller may wait for the last lines, which are here.
        tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            notes.pass();
        });
    }
}

/// Waits until a time; forever if there is none.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
