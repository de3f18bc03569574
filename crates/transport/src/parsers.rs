//! Parses documents on threads of their own.
//!
//! A stranger's document may have megabytes, and its parser takes time in proportion. The parsers bound their own
//! work, so each of these threads finishes.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Documents parsed at the same time. Default 2: one large document does not block another, and the other processors
/// stay free for serving.
const THREADS_MAX: usize = 2;
/// The size from which a document is parsed on another thread. Default 64 KiB: a thread costs as much as parsing a few
/// kilobytes, and a document of this size takes about a millisecond.
const APART_BYTES: usize = 64 << 10;

/// The threads that parse untrusted documents.
#[derive(Debug, Clone)]
pub struct Parsers(Arc<Semaphore>);

/// The runtime ended before the work was finished, or the work panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the parser ended early")]
pub struct ParserEnded;

impl Default for Parsers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS_MAX)))
    }
}

impl Parsers {
    /// Runs `work` on another thread, in turn. Abandoned work is finished, and keeps its turn until then.
    ///
    /// # Errors
    /// The work was not finished.
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

    /// Like [`Parsers::run`] for a large document; runs at once for a small one.
    ///
    /// # Errors
    /// The work was not finished.
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

    /// Whether a document of this size is parsed on another thread.
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
    async fn the_serving_thread_continues() {
        // The work ends only after the runtime's only thread has answered it.
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
                _ = working => panic!("it got no answer yet"),
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
