//! Memory follows the journal: at the start, after changes of other writers, and from another node's snapshot.

use std::sync::{Arc, PoisonError, mpsc};

use super::leases::{LeaseChanges, note_leases};
use super::{Inner, Writer};
use crate::error::Error;
use crate::journal::JournalError;
use crate::lease_clock::LeaseClock;
use crate::record::Record;
use crate::state::State;

/// Records read from the journal at a time.
const READ_BATCH: usize = 256;
/// Records decoded at a time while others are applied; reason: a few batches are in memory then.
const READ_AHEAD_BATCH: usize = 64;
impl Inner {
    /// Reads the records that memory lacks from the journal, and forgets changes in flight that it has
    /// refused.
    pub(super) fn catch_up(&self, writer: &mut Writer) -> Result<(), Error> {
        loop {
            let conflicts = self.journal.conflicts();
            let followed = self.follow(writer);
            writer.ahead = None;
            writer.pending.drop_through(writer.applied);
            if conflicts != writer.conflicts {
                // Those that were stored nevertheless are followed.
                writer.pending.clear();
                writer.conflicts = conflicts;
            }
            writer.assigned = writer.applied.max(writer.pending.last().unwrap_or(0));
            followed?;
            if self.journal.conflicts() == conflicts {
                return Ok(());
            }
        }
    }

    fn follow(&self, writer: &mut Writer) -> Result<(), Error> {
        if writer.is_opening {
            self.follow_ahead(writer);
        }
        loop {
            let records = match self.read_records(writer.applied + 1, READ_BATCH) {
                Err(JournalError::Trimmed { snapshot, .. }) => {
                    self.read_snapshot(writer, snapshot)?;
                    continue;
                }
                records => records?,
            };
            if records.is_empty() {
                return Ok(());
            }
            for (position, record) in records {
                self.apply(writer, position, record);
            }
        }
    }

    /// Applies records while another thread reads and decodes those after them, up to the first that cannot be
    /// read: [`Inner::follow`] continues there.
    fn follow_ahead(&self, writer: &mut Writer) {
        let (sender, read) = mpsc::sync_channel(1);
        let first = writer.applied + 1;
        std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name("chappe-journal".to_owned());
            let reader = reader.spawn_scoped(scope, move || {
                let mut from = first;
                while let Ok(records) = self.read_records(from, READ_AHEAD_BATCH) {
                    from += records.len() as u64;
                    if records.is_empty() || sender.send(records).is_err() {
                        break;
                    }
                }
            });
            // Without the thread, the sender is dropped: nothing is read ahead.
            if reader.is_ok() {
                for (position, record) in read.into_iter().flatten() {
                    self.apply(writer, position, record);
                }
            }
        });
    }

    /// The records of the journal from position `from`, at most `max`.
    fn read_records(&self, from: u64, max: usize) -> Result<Vec<(u64, Record)>, JournalError> {
        let records = self.journal.follow(from, max)?.into_iter();
        let decoded = (from..).zip(records).map(|(expected, (position, bytes))| {
            let record = match position == expected {
                true => Record::decode(&bytes),
                false => Err(format!("records from {expected} on are missing")),
            };
            match record {
                Ok(record) => Ok((position, record)),
                Err(reason) => Err(JournalError::Unreadable { position, reason }),
            }
        });
        decoded.collect()
    }

    /// Reads everything again, from the snapshot of another node that has replaced the records not yet
    /// read. Subscribers read the state again.
    fn read_snapshot(&self, writer: &mut Writer, snapshot: u64) -> Result<(), Error> {
        let mut state = State::loading();
        let mut leases = LeaseClock::default();
        let mut read = snapshot.saturating_sub(1);
        loop {
            let records = self.read_records(read + 1, READ_BATCH)?;
            if records.is_empty() {
                break;
            }
            for (position, record) in records {
                let changes = LeaseChanges::of(&record, &state);
                record.apply_to(&mut state, position);
                note_leases(&mut leases, &state, changes, position);
                read = position;
            }
        }
        if read < snapshot {
            let reason = format!("the snapshot at position {snapshot} cannot be read");
            return Err(JournalError::Away(reason).into());
        }
        state.finish_loading();
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
        leases.continue_from(std::mem::take(&mut writer.leases));
        writer.leases = leases;
        writer.applied = read;
        writer.snapshot = snapshot;
        writer.since_snapshot = (read + 1).saturating_sub(snapshot);
        self.feed.start_after(read);
        self.feed.wake();
        Ok(())
    }

    /// Reads what another writer has appended.
    pub(super) fn moved(&self, writer: &mut Writer, last: u64) -> Result<(), Error> {
        writer.pending.truncate_after(last);
        self.catch_up(writer)
    }
}
