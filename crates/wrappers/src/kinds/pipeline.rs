//! A queue of batches to a task that writes them, and its reports: while one batch is written, the next is read.

use std::future::Future;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

#[cfg(feature = "postgres")]
use crate::Refused;
use crate::{Batch, Delivered, WrapperError};

/// Batches that wait; reason: each has up to a megabyte, mostly a third of one, and a transaction takes all of them.
const WAITING_MAX: usize = 8;

/// The batches that a writer takes.
pub(super) type Batches = mpsc::Receiver<Batch>;

/// A report of a writer.
struct Report {
    delivered: Result<Delivered, WrapperError>,
    /// Told once the host has stored what the report asks it to store.
    is_kept: Option<oneshot::Sender<()>>,
}

/// Where a writer reports what the peer has. One report after each batch that it takes, also an empty one: there is room
/// again.
#[derive(Clone)]
pub(super) struct Reports(mpsc::UnboundedSender<Report>);

impl Reports {
    /// Reports what the peer has; false if the exporter has ended.
    pub(super) fn send(&self, delivered: Delivered) -> bool {
        self.report(Ok(delivered), None)
    }

    /// Reports elements that the peer will never accept, and waits until they are dead letters. A peer that knows how far
    /// it came is written to only after this: a crash in between would lose them.
    ///
    /// # Errors
    /// The exporter has ended.
    #[cfg(feature = "postgres")]
    pub(super) async fn put_aside(&self, refused: Vec<Refused>) -> Result<(), WrapperError> {
        if refused.is_empty() {
            return Ok(());
        }
        let (kept, is_kept) = oneshot::channel();
        let delivered = Delivered {
            refused,
            ..Delivered::default()
        };
        self.report(Ok(delivered), Some(kept));
        let ended = |_| WrapperError::peer("the exporter has ended");
        is_kept.await.map_err(ended)
    }

    fn report(
        &self,
        delivered: Result<Delivered, WrapperError>,
        is_kept: Option<oneshot::Sender<()>>,
    ) -> bool {
        self.0.send(Report { delivered, is_kept }).is_ok()
    }
}

/// A task that writes, and the queue to it. It ends when this is dropped.
pub(super) struct Pipeline {
    batches: mpsc::Sender<Batch>,
    reports: mpsc::UnboundedReceiver<Report>,
    /// Told at the next call of [`Pipeline::delivered`]: then the host has stored the last report.
    is_kept: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pipeline {
    /// Starts a writer. It reports its error, and then ends.
    pub(super) fn start<F>(write: impl FnOnce(Batches, Reports) -> F) -> Self
    where
        F: Future<Output = Result<(), WrapperError>> + Send + 'static,
    {
        let (batches, waiting) = mpsc::channel(WAITING_MAX);
        let (reporting, reports) = mpsc::unbounded_channel();
        let reporting = Reports(reporting);
        let writing = write(waiting, reporting.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = writing.await {
                reporting.report(Err(error), None);
            }
        });
        Self {
            batches,
            reports,
            is_kept: None,
            task,
        }
    }

    /// Whether a batch can be passed.
    pub(super) fn has_room(&self) -> bool {
        self.batches.capacity() > 0
    }

    /// Passes a batch.
    pub(super) fn pass(&self, batch: &Batch) -> Result<(), WrapperError> {
        let ended = |_| WrapperError::peer("the writer has ended");
        self.batches.try_send(batch.clone()).map_err(ended)
    }

    /// The next report; the caller has stored what the one before asked for. Dropping the future loses nothing.
    pub(super) async fn delivered(&mut self) -> Result<Delivered, WrapperError> {
        if let Some(is_kept) = self.is_kept.take() {
            // Without a receiver the writer has ended.
            let _ = is_kept.send(());
        }
        let ended = || WrapperError::peer("the writer has ended");
        let report = self.reports.recv().await.ok_or_else(ended)?;
        self.is_kept = report.is_kept;
        report.delivered
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use chappe_stream::{Epoch, Position};

    use super::*;

    #[tokio::test]
    async fn a_peer_gets_its_rows_only_after_refused_ones_are_dead_letters() {
        let is_committed = Arc::new(AtomicBool::new(false));
        let committed = is_committed.clone();
        let mut pipeline = Pipeline::start(|mut batches, reports| async move {
            batches.recv().await;
            let position = Position {
                epoch: Epoch(1),
                sequence: 7,
            };
            let refused = Refused {
                stream: "a".to_owned(),
                position,
                reason: "no text".to_owned(),
            };
            reports.put_aside(vec![refused]).await?;
            committed.store(true, Ordering::SeqCst);
            reports.send(Delivered {
                positions: vec![("a".to_owned(), position)],
                ..Delivered::default()
            });
            Ok(())
        });
        pipeline.pass(&Batch::default()).unwrap();
        let first = pipeline.delivered().await.unwrap();
        assert_eq!((first.refused.len(), first.positions.len()), (1, 0));
        // The host stores the dead letter now, for as long as it takes.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!is_committed.load(Ordering::SeqCst));
        let second = pipeline.delivered().await.unwrap();
        assert_eq!((second.refused.len(), second.positions.len()), (0, 1));
        assert!(is_committed.load(Ordering::SeqCst));
    }
}
