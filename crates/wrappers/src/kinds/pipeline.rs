//! A queue of batches to a task that writes them, and its reports: while one batch is written, the next is read.

use std::future::Future;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::{Batch, Delivered, WrapperError};

/// Batches that wait; reason: each has up to a megabyte, mostly a third of one, and a transaction takes all of them.
const WAITING_MAX: usize = 8;

/// The batches that a writer takes.
pub(super) type Batches = mpsc::Receiver<Batch>;
/// Where it reports what the peer has. One report after each batch that it takes, also an empty one: there is room again.
pub(super) type Reports = mpsc::UnboundedSender<Result<Delivered, WrapperError>>;

/// A task that writes, and the queue to it. It ends when this is dropped.
pub(super) struct Pipeline {
    batches: mpsc::Sender<Batch>,
    reports: mpsc::UnboundedReceiver<Result<Delivered, WrapperError>>,
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
        let writing = write(waiting, reporting.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = writing.await {
                // Without a receiver the exporter has ended.
                let _ = reporting.send(Err(error));
            }
        });
        Self {
            batches,
            reports,
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

    /// The next report.
    pub(super) async fn delivered(&mut self) -> Result<Delivered, WrapperError> {
        let ended = || WrapperError::peer("the writer has ended");
        self.reports.recv().await.ok_or_else(ended)?
    }
}
