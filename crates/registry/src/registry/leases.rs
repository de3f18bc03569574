//! Leases of the registry: renewal, and the removal of what was not renewed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Again, Inner, Publication, Registry, Writer};
use crate::error::Error;
use crate::lease_clock::{Granted, LeaseClock};
use crate::record::{Record, Step};
use crate::state::State;

/// Entities removed at a time; reason: each is a change in flight.
const EXPIRED_AT_ONCE: usize = 1_024;

/// What [`Registry::expire`] did.
#[derive(Debug)]
pub struct Expiry {
    /// The keys of the entities whose leases are over, with the removals in flight.
    pub removals: Vec<(String, Publication)>,
    /// When to call it again at the latest, unless a lease is granted before.
    pub next: Option<Duration>,
}

impl Registry {
    /// Renews the lease of the entity `key`: it starts again, with its length. The record of it has the
    /// size of the key. The caller decides who may renew it.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoLease`], [`Error::Busy`], or the journal's error.
    pub fn renew(&self, key: &str) -> Result<Publication, Error> {
        match self.inner.lease_ahead(&self.inner.writer(), key) {
            None => return Err(Error::Unknown(key.to_owned())),
            Some(None) => return Err(Error::NoLease(key.to_owned())),
            Some(Some(_)) => {}
        }
        self.renew_all(vec![key.to_owned()])
    }

    /// Renews the leases of several entities by one record. Keys that have no lease are ignored.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the first key if none of them has a lease, [`Error::Busy`], or the journal's
    /// error.
    pub fn renew_all(&self, keys: Vec<String>) -> Result<Publication, Error> {
        let first = keys.first().cloned().unwrap_or_default();
        let again = self.inner.journal.is_shared().then(|| keys.clone());
        let check = |inner: &Arc<Inner>, writer: &Writer, record: &Record| {
            let Record::Renew(keys) = record else {
                return Ok(());
            };
            let mut leases = keys.iter().map(|key| inner.lease_ahead(writer, key));
            match leases.any(|lease| matches!(lease, Some(Some(_)))) {
                true => Ok(()),
                false => Err(Error::Unknown(first.clone())),
            }
        };
        let mut publication = self.append(Record::Renew(keys), check)?;
        publication.set_again(again.map(Again::Renew));
        Ok(publication)
    }

    /// Removes the entities whose leases are over. `now` is the time on a monotonic clock of the caller,
    /// from any origin; a wall clock must not be used. Several nodes on one journal may call it: each
    /// entity is removed once.
    ///
    /// A lease starts when this is called first after its grant, so that it is called often: the
    /// calls cost little while no lease is over.
    ///
    /// # Errors
    /// The journal's error. Changes that were refused for lack of room are tried again by the next call.
    pub fn expire(&self, now: Duration) -> Result<Expiry, Error> {
        self.inner.apply_dropped();
        let (over, tick) = {
            let mut writer = self.inner.writer();
            if self.inner.journal.last() > writer.assigned {
                self.inner.catch_up(&mut writer)?;
            }
            let read = writer.applied;
            writer.leases.look(now, read);
            (
                writer.leases.over(EXPIRED_AT_ONCE),
                writer.leases.due_tick(),
            )
        };
        if let Some((since, ms)) = tick {
            // Nobody waits for it: it is applied with the next change.
            drop(self.append(Record::Tick { since, ms }, |_, _, _| Ok(()))?);
        }
        let mut removals = Vec::new();
        for (key, position) in over {
            let record = Record::Expire {
                key: key.clone(),
                granted: position,
            };
            let check = |inner: &Arc<Inner>, writer: &Writer, _: &Record| {
                is_over(inner, writer, &key, position)
            };
            match self.append(record, check) {
                Ok(publication) => removals.push((key, publication)),
                Err(Error::NoLease(_)) => {}
                Err(error) if error.is_transient() => break,
                Err(error) => return Err(error),
            }
        }
        let next = self.inner.writer().leases.until_next();
        Ok(Expiry { removals, next })
    }

    /// The time until the lease of the entity `key` is over, by the last call of [`Registry::expire`] at this
    /// registry; `None` if it has no lease.
    #[must_use]
    pub fn lease_remaining(&self, key: &str) -> Option<Duration> {
        self.inner.writer().leases.remaining(key)
    }

    /// The number of leases.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.inner.writer().leases.len()
    }
}

/// Refuses the removal of what was renewed, replaced or removed meanwhile.
fn is_over(inner: &Inner, writer: &Writer, key: &str, position: u64) -> Result<(), Error> {
    let is_granted = inner.snapshot_of_memory().granted_at(key) == Some(position);
    let is_changing = writer.pending.changes(key) || writer.pending.renews(key);
    match is_granted && !is_changing {
        true => Ok(()),
        false => Err(Error::NoLease(key.to_owned())),
    }
}

impl Inner {
    /// The lease of `key` once all pending changes are applied: `None` without an entity, `Some(None)`
    /// without a lease.
    fn lease_ahead(&self, writer: &Writer, key: &str) -> Option<Option<u32>> {
        match writer.pending.effect_on(key) {
            Some(effect) => effect.map(|entity| entity.lease_s),
            None => self.snapshot_of_memory().lease_of(key),
        }
    }

    /// The records that follow those of kept entities in a snapshot: when their leases were granted, and
    /// how old they are.
    pub(super) fn leased<'a>(
        &self,
        writer: &Writer,
        state: &State,
        kept: impl Iterator<Item = &'a str>,
    ) -> Vec<Record> {
        let renewed: HashMap<&str, u64> = writer.pending.renewals().collect();
        let leased = kept.filter_map(|key| {
            let granted = state.granted_at(key)?;
            let granted = renewed.get(key).copied().unwrap_or(granted);
            Some(Record::Leased {
                key: key.to_owned(),
                granted,
                aged_ms: writer.leases.age_ms(key, granted),
            })
        });
        leased.collect()
    }
}

/// Tells the clock of leases what the record at `position` did; `state` is after it.
pub(super) fn note_leases(
    leases: &mut LeaseClock,
    state: &State,
    changes: LeaseChanges,
    position: u64,
) {
    for key in changes.keys {
        leases.forget(&key);
        if let Some(granted) = granted(state, &key) {
            leases.grant(granted);
        }
    }
    if let Some((key, aged_ms)) = changes.aged
        && let Some(granted) = granted(state, &key)
    {
        leases.state_age(granted, aged_ms, position);
    }
    if let Some((since, ms)) = changes.tick {
        leases.tick(position, since, ms);
    }
}

fn granted(state: &State, key: &str) -> Option<Granted> {
    Some(Granted {
        key: key.to_owned(),
        position: state.granted_at(key)?,
        length_ms: u64::from(state.lease_of(key)??) * 1_000,
    })
}

/// What a record does to leases.
#[derive(Default)]
pub(super) struct LeaseChanges {
    /// The entities whose leases begin, begin again, or end.
    keys: Vec<String>,
    aged: Option<(String, u64)>,
    tick: Option<(u64, u64)>,
}

impl LeaseChanges {
    pub(super) fn of(record: &Record, state: &State) -> Self {
        let mut changes = Self::default();
        let mut published = |key: &str, lease_s: Option<u32>| {
            if lease_s.is_some() || state.granted_at(key).is_some() {
                changes.keys.push(key.to_owned());
            }
        };
        match record {
            Record::Publish(entity) => published(&entity.key, entity.lease_s),
            // Another node's snapshot of an entity in memory changes nothing.
            Record::Keep(entity) if state.granted_at(&entity.key).is_some() => {}
            Record::Keep(entity) => published(&entity.key, entity.lease_s),
            Record::Remove(key) | Record::Expire { key, .. } => published(key, None),
            Record::Renew(keys) => keys.iter().for_each(|key| published(key, None)),
            Record::Batch(steps) => {
                for step in steps {
                    match step {
                        Step::Publish(entity) => published(&entity.key, entity.lease_s),
                        Step::Remove(key) => published(key, None),
                    }
                }
            }
            Record::Leased { key, granted, .. } if state.granted_at(key) == Some(*granted) => {}
            Record::Leased { key, aged_ms, .. } => changes.aged = Some((key.clone(), *aged_ms)),
            Record::Tick { since, ms } => changes.tick = Some((*since, *ms)),
        }
        changes
    }
}
