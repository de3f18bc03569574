//! A list that an operator changes, which is in memory and in a file of the data directory.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::config::Config;
use crate::links::StateFile;

/// See the [module documentation](self).
pub(super) struct KeptList<T> {
    items: Mutex<Vec<T>>,
    /// Held while the file is written, so that no reader of the items waits for the disk.
    writing: Mutex<()>,
    file: StateFile<T>,
    changes: watch::Sender<u64>,
}

impl<T: Clone + PartialEq + Send + Serialize + DeserializeOwned + 'static> KeptList<T> {
    /// The list in this file of the data directory.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn open(config: &Config, file: &str) -> Result<Arc<Self>, String> {
        let file = StateFile::new(&config.data_directory, file);
        Ok(Arc::new(Self {
            items: Mutex::new(file.read()?),
            writing: Mutex::default(),
            file,
            changes: watch::Sender::new(0),
        }))
    }

    /// The items.
    pub(super) fn items(&self) -> MutexGuard<'_, Vec<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes with the list.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Changes the list, first in the file, on a thread that may wait for the disk. A change that has begun runs to
    /// its end, even if its caller is dropped.
    ///
    /// # Errors
    /// Those of `change` and of the file; then nothing has changed.
    pub(super) async fn change<R: Send + 'static, E: From<io::Error> + Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Vec<T>) -> Result<R, E> + Send + 'static,
    ) -> Result<R, E> {
        let this = Arc::clone(self);
        let changed = tokio::task::spawn_blocking(move || {
            let _writing = this.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let mut next = this.items().clone();
            let result = change(&mut next)?;
            if *this.items() != next {
                this.file.write(&next)?;
                *this.items() = next;
                this.changes.send_modify(|number| *number += 1);
            }
            Ok(result)
        });
        let failed = |_| io::Error::other("the change panicked");
        changed.await.map_err(failed)?
    }
}
