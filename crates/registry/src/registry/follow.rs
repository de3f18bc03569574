//! Memory follows the journal: at the start, after changes of other writers, and from another node's snapshot.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};
use std::thread;

use super::leases::{LeaseChanges, note_leases};
use super::{Inner, Writer};
use crate::error::Error;
use crate::journal::JournalError;
use crate::lease_clock::LeaseClock;
use crate::record::Record;
use crate::state::State;

/// Records read from the journal at a time.
const READ_BATCH: usize = 256;
/// Batches that wait while an earlier one is applied; reason: one keeps both threads busy, and a batch of large
/// entities takes tens of megabytes.
const AHEAD: usize = 1;

/// Records with their positions, in order.
type Records = Vec<(u64, Record)>;

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
        loop {
            let followed = match writer.is_opening {
                true => self.follow_at_opening(writer),
                false => self.follow_from_here(writer),
            };
            match followed {
                Err(JournalError::Trimmed { snapshot, .. }) => {
                    self.read_snapshot(writer, snapshot)?;
                }
                followed => return followed.map_err(Error::from),
            }
        }
    }

    /// Applies the remaining records on this thread.
    fn follow_from_here(&self, writer: &mut Writer) -> Result<(), JournalError> {
        loop {
            let records = self.read_records(writer.applied + 1, READ_BATCH)?;
            if records.is_empty() {
                return Ok(());
            }
            self.apply_all(writer, records);
        }
    }

    /// Applies a whole journal while another thread reads and decodes the next records.
    fn follow_at_opening(&self, writer: &mut Writer) -> Result<(), JournalError> {
        let mut next = writer.applied + 1;
        let (sender, batches) = sync_channel::<Result<Records, JournalError>>(AHEAD);
        let read = move || {
            loop {
                let records = self.read_records(next, READ_BATCH);
                let last = records.as_ref().ok().and_then(|records| records.last());
                let last = last.map(|(position, _)| *position);
                if sender.send(records).is_err() {
                    return;
                }
                match last {
                    Some(last) => next = last + 1,
                    None => return,
                }
            }
        };
        thread::scope(|scope| {
            let reading = thread::Builder::new().name("chappe-registry".to_owned());
            if reading.spawn_scoped(scope, read).is_err() {
                // The system has no thread to spare.
                return self.follow_from_here(writer);
            }
            batches.into_iter().try_for_each(|records| {
                self.apply_all(writer, records?);
                Ok(())
            })
        })
    }

    fn apply_all(&self, writer: &mut Writer, records: Records) {
        for (position, record) in records {
            self.apply(writer, position, &record);
        }
    }

    /// The records of the journal from position `from`, at most `max`.
    fn read_records(&self, from: u64, max: usize) -> Result<Records, JournalError> {
        let records = self.journal.follow(from, max)?.into_iter();
        let decoded = (from..).zip(records).map(|(expected, (position, bytes))| {
            let record = match position == expected {
                true => Record::decode(&bytes),
                false => Err(format!("records from {expected} on are missing").into()),
            };
            let record = record.map_err(|error| error.at(position))?;
            Ok((position, record))
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
                record.apply_to(&mut state, position, None);
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
