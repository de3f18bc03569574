//! The output and the dead letters of a virtual sensor, appended after its inputs, and its progress.

use chappe_log::{Appended, Error};
use chappe_stream::{StoreError, StreamElement};

use super::running::Running;
use crate::catalogue::CatalogueError;
use crate::sensors::facts::entities;

/// Unacknowledged batches of the output; with more, the sensor waits for the first.
const OFFERED_MAX: usize = 16;

impl Running {
    /// Appends a batch of the output after its inputs.
    pub(super) async fn offer(&mut self, mut outputs: Vec<StreamElement>) {
        self.settle();
        while self.offered.len() >= OFFERED_MAX
            && let Some(first) = self.offered.front_mut()
        {
            // `settle` handles the result.
            let _ = first.await;
            self.settle();
        }
        while !outputs.is_empty() && !self.must_rebind {
            let appended = self.output.append_derived(self.rollbacks_seen, &outputs);
            match appended.await {
                Ok(appended) => {
                    self.last_position = outputs.last().and_then(|output| output.origin);
                    self.offered.push_back(appended);
                    break;
                }
                Err(StoreError::Element { index, error }) if index < outputs.len() => {
                    outputs.remove(index);
                    self.lost(1, "does not fit", &error.to_string());
                }
                Err(StoreError::Log(Error::Full { .. } | Error::Retracted { .. })) => {
                    self.must_rebind = true;
                }
                Err(StoreError::Log(Error::Removed { .. })) => {
                    if let Err(error) = self.redefine().await {
                        self.lost(outputs.len() as u64, "no stream", &error.to_string());
                        break;
                    }
                }
                Err(error) => {
                    self.lost(outputs.len() as u64, "not stored", &error.to_string());
                    break;
                }
            }
        }
        self.store_progress();
    }

    /// Appends dead letters after the inputs.
    pub(super) async fn store_letters(&mut self, letters: Vec<StreamElement>) {
        let Some(entry) = self.dead_letters.clone().filter(|_| !letters.is_empty()) else {
            return;
        };
        match entry.append_derived(self.rollbacks_seen, &letters).await {
            Ok(_) => {}
            Err(StoreError::Log(Error::Full { .. } | Error::Retracted { .. })) => {
                self.must_rebind = true;
            }
            Err(error) => self.drop("dead_letter_not_stored", error.to_string()),
        }
    }

    /// Defines the output's stream again after an unexpected removal; further outputs go to the new
    /// stream. Outputs lost by the removal are counted when they are settled.
    async fn redefine(&mut self) -> Result<(), CatalogueError> {
        self.output = self.app.catalogue.redefine(&self.output).await?;
        let retention = self.descriptor.output.retention;
        let log = self.output.log.clone();
        let set = tokio::task::spawn_blocking(move || log.set_retention(retention)).await;
        set.unwrap_or_else(|_| Err(Error::Closed.into()))?;
        self.app
            .registrar
            .publish(entities(&self.descriptor, &self.output.name))
            .await;
        Ok(())
    }

    /// Handles the results of finished appends.
    pub(super) fn settle(&mut self) {
        while let Some(outcome) = self.offered.front().and_then(Appended::try_result) {
            let count = self.offered.pop_front().map_or(0, |batch| batch.count);
            match outcome {
                Ok(()) => {}
                Err(Error::Full { .. }) => self.must_rebind = true,
                Err(error) => self.lost(count.into(), "not acknowledged", &error.to_string()),
            }
        }
    }

    /// Runs once a second, so that progress without outputs is stored as well.
    pub(super) fn flush_progress(&mut self) {
        self.settle();
        self.record_held();
        self.store_progress();
        self.show_progress();
    }

    /// Stores the progress, unless the outputs carry it.
    pub(super) fn store_progress(&mut self) {
        let Some(machine) = self.machine.as_ref().filter(|_| !self.must_rebind) else {
            return;
        };
        let evaluated = || machine.progress();
        self.progress
            .note(evaluated().map(|(name, at)| (&**name, at)));
        let is_carried = evaluated().all(|(_, at)| Some(at) == self.last_position);
        if !is_carried || self.progress.has_new_held() {
            let stored = self.progress.flush(self.rollbacks_seen);
            self.on_progress_stored(stored);
        }
    }

    pub(super) fn on_progress_stored(&mut self, stored: Result<(), Error>) {
        match stored {
            Ok(()) => {}
            Err(Error::Full { .. } | Error::Retracted { .. }) => self.must_rebind = true,
            Err(error) => tracing::debug!(sensor = self.name, %error, "cannot store progress"),
        }
    }

    fn lost(&self, count: u64, reason: &'static str, detail: &str) {
        let observability = &self.app.observability;
        observability.record_loss(&self.output.name, count, reason, detail);
    }
}
