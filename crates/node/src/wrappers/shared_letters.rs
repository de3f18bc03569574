//! Dead letters that several runs of a wrapper or exporter share.

use std::sync::Arc;

use chappe_links::DeadLetters;
use chappe_stream::StreamStore;
use tokio::sync::OnceCell;

/// The dead letters of one name. A run shares them with the run before, whose requests may go on.
#[derive(Default)]
pub(crate) struct SharedLetters {
    opened: OnceCell<Arc<DeadLetters>>,
    /// Held while a dead letter is sent again.
    pub(super) resending: tokio::sync::Mutex<()>,
}

impl SharedLetters {
    /// Opens the dead letters of a wrapper or an exporter, which reads the disk.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub(super) async fn open(
        &self,
        store: StreamStore,
        name: String,
        most: u64,
    ) -> Result<Arc<DeadLetters>, String> {
        let unreadable = |error| format!("cannot read the dead letters: {error}");
        let interrupted = |_| "reading the dead letters was interrupted".to_owned();
        let open = async {
            let open = move || DeadLetters::named(&store, &name, most);
            let opened = tokio::task::spawn_blocking(open).await;
            let letters = opened.map_err(interrupted)?.map_err(unreadable)?;
            Ok::<_, String>(Arc::new(letters))
        };
        let letters = self.opened.get_or_try_init(|| open).await?.clone();
        letters.set_most(most);
        // The run before may have queued some.
        letters.settled().await.map_err(unreadable)?;
        Ok(letters)
    }
}
