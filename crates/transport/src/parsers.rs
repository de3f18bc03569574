//! Parsing apart from the thread that serves.
//!
//! A stranger's document may be megabytes, and its reader takes time that grows with them. The
//! readers bound their own work, so that each of these threads comes to its end.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Documents that are parsed at once. Default 2: one large document does not keep another waiting,
/// and the other processors are left to the work.
const THREADS_MAX: usize = 2;
/// Bytes from which a document is parsed apart. Default 64 KiB: a thread costs as much as parsing
/// some kilobytes, and a document of this length takes about a millisecond.
const APART_BYTES: usize = 64 << 10;

/// The threads on which documents of strangers are parsed.
#[derive(Debug, Clone)]
pub struct Parsers(Arc<Semaphore>);

/// The runtime ended before the work was done, or the work panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the parser ended early")]
pub struct ParserEnded;

impl Default for Parsers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS_MAX)))
    }
}

impl Parsers {
    /// Does `work` on a thread of its own, when it is its turn. Work that nobody awaits any more goes
    /// on to its end, and keeps its turn until then.
    ///
    /// # Errors
    /// When the work did not come to its end.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ParserEnded> {
        let turn = Arc::clone(&self.0).acquire_owned().await;
        let turn = turn.map_err(|_| ParserEnded)?;
        let working = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(turn);
            result
        });
        working.await.map_err(|_| ParserEnded)
    }

    /// As [`Parsers::run`] for a document of many bytes; at once for a short one.
    ///
    /// # Errors
    /// When the work did not come to its end.
    pub async fn run_if_large<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ParserEnded> {
        match Self::is_large(bytes) {
            true => self.run(work).await,
            false => Ok(work()),
        }
    }

    /// Whether a document of so many bytes is parsed apart.
    #[must_use]
    pub const fn is_large(bytes: usize) -> bool {
        bytes >= APART_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn the_serving_thread_goes_on() {
        // The work ends when the only thread of the runtime has answered it.
        let (send, receive) = mpsc::channel();
        let parsers = Parsers::default();
        let working = parsers.run_if_large(APART_BYTES, move || receive.recv());
        let answering = async { send.send(7) };
        let (worked, answered) = tokio::join!(working, answering);
        assert_eq!((worked, answered), (Ok(Ok(7)), Ok(())));
    }

    #[tokio::test]
    async fn abandoned_work_keeps_its_turn() {
        let parsers = Parsers::default();
        let mut held = Vec::new();
        for _ in 0..THREADS_MAX {
            let (send, receive) = mpsc::channel::<()>();
            let (started, starts) = tokio::sync::oneshot::channel();
            let working = parsers.run(move || {
                let _ = started.send(());
                receive.recv()
            });
            tokio::select! {
                biased;
                _ = working => panic!("nobody has answered it"),
                started = starts => started.unwrap(),
            }
            held.push(send);
        }
        assert_eq!(parsers.0.available_permits(), 0);
        held.clear();
        assert_eq!(parsers.run(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let parsers = Parsers::default();
        let ended: Result<(), _> = parsers.run(|| panic!("on purpose")).await;
        assert_eq!(ended, Err(ParserEnded));
        assert_eq!(parsers.0.available_permits(), THREADS_MAX);
    }
}
