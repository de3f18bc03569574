//! What a virtual sensor says: stored behind what it was made of, and how far it is.

use chappe_log::{Appended, Error};
use chappe_stream::{StoreError, StreamElement};

use super::run::{Running, entities};
use crate::catalogue::CatalogueError;

/// Batches of the output on their way to the disk; with more, the sensor waits for the first.
const OFFERED_MAX: usize = 16;

impl Running {
    /// Stores a batch of the output behind what it was made of.
    pub(super) async fn offer(&mut self, mut outputs: Vec<StreamElement>) {
        self.settle();
        while self.offered.len() >= OFFERED_MAX
            && let Some(first) = self.offered.front_mut()
        {
            // What became of it is looked at below.
            let _ = first.await;
            self.settle();
        }
        while !outputs.is_empty() && !self.anew {
            let appended = self.output.append_derived(self.taken_back, &outputs).await;
            match appended {
                Ok(appended) => {
                    self.said = outputs.last().and_then(|output| output.origin);
                    self.offered.push_back(appended);
                    break;
                }
                Err(StoreError::Element { index, error }) if index < outputs.len() => {
                    outputs.remove(index);
                    self.lost(1, "does not fit", &error.to_string());
                }
                Err(StoreError::Log(Error::Full { .. } | Error::Retracted { .. })) => {
                    self.anew = true;
                }
                Err(StoreError::Log(Error::Removed { .. })) => {
                    if let Err(error) = self.define_again().await {
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
        self.tell_progress();
    }

    /// The stream of the output was removed, which does not happen while a sensor has it: what comes is
    /// stored in the next one. Outputs that the removal overtook are counted when they are settled.
    async fn define_again(&mut self) -> Result<(), CatalogueError> {
        self.output = self.app.catalogue.define_again(&self.output).await?;
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

    /// Notes what has become of the batches of the output.
    pub(super) fn settle(&mut self) {
        while let Some(outcome) = self.offered.front().and_then(Appended::try_result) {
            let count = self.offered.pop_front().map_or(0, |batch| batch.count);
            match outcome {
                Ok(()) => {}
                Err(Error::Full { .. }) => self.anew = true,
                Err(error) => self.lost(count.into(), "not acknowledged", &error.to_string()),
            }
        }
    }

    /// Once a second: what brings forth nothing is told of too.
    pub(super) fn look_after(&mut self) {
        self.settle();
        self.tell_progress();
    }

    /// Stores how far it is, unless the outputs say it.
    pub(super) fn tell_progress(&mut self) {
        let Some(machine) = self.machine.as_ref().filter(|_| !self.anew) else {
            return;
        };
        let evaluated = || machine.progress();
        self.progress
            .note(evaluated().map(|(name, at)| (&**name, at)));
        if !evaluated().all(|(_, at)| Some(at) == self.said) {
            let told = self.progress.tell(self.taken_back);
            self.told(told);
        }
    }

    pub(super) fn told(&mut self, told: Result<(), Error>) {
        match told {
            Ok(()) => {}
            Err(Error::Full { .. } | Error::Retracted { .. }) => self.anew = true,
            Err(error) => tracing::debug!(sensor = self.name, %error, "progress not stored"),
        }
    }

    fn lost(&self, count: u64, reason: &'static str, detail: &str) {
        let observability = &self.app.observability;
        observability.lost(&self.output.name, count, reason, detail);
    }
}
