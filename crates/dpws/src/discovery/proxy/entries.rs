//! The target services that a proxy offers, by source, with their ends.

use std::collections::HashMap;
use std::net::IpAddr;

use chappe_identity::Quota;
use chappe_machine::{Instant, Timers};
use chappe_xml::Str;

use super::super::Target;
use super::super::message::{AppSequence, Probe};
use super::super::table::{Full, Known, Table};
use super::Origin;
use crate::Dialect;

/// An entry in addition to its description.
#[derive(Debug, Clone)]
struct Lease {
    /// The authenticated sender that registered it.
    sender: Option<Str>,
    /// The dialects of its messages.
    dialects: Vec<Dialect>,
}

/// What a sender may do with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// No such entry.
    Unknown,
    /// Another source has it.
    Other,
    /// It is the sender's, but its message only hints: it could be forged, and the application has reached
    /// the target service.
    Hint,
    /// It is the sender's.
    Own,
}

/// The entries. Each ends after its lifetime, unless the application has confirmed it.
#[derive(Debug, Clone)]
pub(super) struct Entries {
    table: Table,
    leases: HashMap<Str, Lease>,
    ends: Timers<Str>,
}

impl Entries {
    pub(super) fn new(quota: Quota) -> Self {
        Self {
            table: Table::new(quota),
            leases: HashMap::new(),
            ends: Timers::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn target(&self, endpoint: &str) -> Option<&Target> {
        self.table.get(endpoint).map(|known| &known.target)
    }

    pub(super) fn dialects(&self, endpoint: &str) -> Vec<Dialect> {
        let lease = self.leases.get(endpoint);
        lease
            .map(|lease| lease.dialects.clone())
            .unwrap_or_default()
    }

    /// The authenticated sender of an entry that was registered from this host.
    pub(super) fn sender_on_host(&self, endpoint: &str, host: IpAddr) -> Option<Str> {
        let known = self.table.get(endpoint)?;
        let is_there = known.from.ip() == host;
        let lease = self.leases.get(endpoint).filter(|_| is_there)?;
        lease.sender.clone()
    }

    /// How a sender stands to an entry. An authenticated sender takes an entry over that nobody confirmed.
    pub(super) fn standing(&self, endpoint: &str, origin: &Origin<'_>) -> Standing {
        let (Some(known), Some(lease)) = (self.table.get(endpoint), self.leases.get(endpoint))
        else {
            return Standing::Unknown;
        };
        let is_same_host = known.from.ip() == origin.from.ip();
        let is_own = match (&lease.sender, &origin.sender) {
            (Some(holder), sender) => Some(holder) == sender.as_ref(),
            (None, Some(_)) => is_same_host || !known.confirmed,
            (None, None) => is_same_host,
        };
        match is_own {
            false => Standing::Other,
            true if origin.is_proven() || !known.confirmed => Standing::Own,
            true => Standing::Hint,
        }
    }

    /// Whether the entry may end by a Bye of its own sender.
    pub(super) fn may_leave(&self, endpoint: &str, origin: &Origin<'_>) -> bool {
        let is_confirmed = self
            .table
            .get(endpoint)
            .is_some_and(|known| known.confirmed);
        origin.sender.is_some() || origin.is_proven() && !is_confirmed
    }

    pub(super) fn follow(
        &mut self,
        endpoint: &str,
        origin: &Origin<'_>,
        sequence: &AppSequence,
    ) -> bool {
        self.table
            .follow(endpoint, origin.from.ip(), sequence, false)
    }

    /// Sets the end of an entry that the application has not confirmed.
    pub(super) fn renew(&mut self, endpoint: &Str, dialect: Dialect, end: Instant) {
        let Some(lease) = self.leases.get_mut(endpoint) else {
            return;
        };
        if !lease.dialects.contains(&dialect) {
            lease.dialects.push(dialect);
        }
        let known = self.table.get(endpoint);
        if known.is_some_and(|known| !known.confirmed) {
            self.ends.set(endpoint.clone(), end);
        }
    }

    /// Adds or replaces an entry; returns an evicted one with its dialects.
    pub(super) fn insert(
        &mut self,
        known: Known,
        sender: Option<Str>,
        end: Instant,
    ) -> Result<Option<(Str, Vec<Dialect>)>, Full> {
        let (endpoint, dialect) = (known.target.endpoint.address.clone(), known.dialect);
        let evicted = self.table.insert_evicting(known)?;
        let evicted = evicted.map(|other| {
            self.ends.cancel(&other);
            let lease = self.leases.remove(&other);
            (other, lease.map(|one| one.dialects).unwrap_or_default())
        });
        let dialects = self.dialects(&endpoint);
        let lease = Lease { sender, dialects };
        self.leases.insert(endpoint.clone(), lease);
        self.ends.cancel(&endpoint);
        self.renew(&endpoint, dialect, end);
        Ok(evicted)
    }

    /// Removes an entry; returns the dialects in which it was offered.
    pub(super) fn remove(&mut self, endpoint: &Str) -> Option<Vec<Dialect>> {
        self.table.remove(endpoint)?;
        self.ends.cancel(endpoint);
        let lease = self.leases.remove(endpoint);
        Some(lease.map(|lease| lease.dialects).unwrap_or_default())
    }

    /// Removes an entry whose end has come.
    pub(super) fn pop_ended(&mut self, now: Instant) -> Option<(Str, Vec<Dialect>)> {
        let endpoint = self.ends.pop(now)?;
        let dialects = self.remove(&endpoint).unwrap_or_default();
        Some((endpoint, dialects))
    }

    pub(super) fn next_end(&self) -> Option<Instant> {
        self.ends.next()
    }

    /// The target services of a dialect that match, by endpoint; `None` if the match rule is unknown.
    pub(super) fn matches(&self, dialect: Dialect, probe: &Probe) -> Option<Vec<&Target>> {
        let mut matching = Vec::new();
        for known in self.table.values() {
            let target = &known.target;
            let endpoint = &*target.endpoint.address;
            if probe.matches(dialect, &target.types, &target.scopes)?
                && self
                    .leases
                    .get(endpoint)
                    .is_some_and(|lease| lease.dialects.contains(&dialect))
            {
                matching.push(target);
            }
        }
        // Nothing at all is matched by an unknown rule either.
        probe.matches(dialect, &[], &[])?;
        matching.sort_by(|a, b| a.endpoint.address.cmp(&b.endpoint.address));
        Some(matching)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.table.check()?;
        let unconfirmed = self.table.values().filter(|known| !known.confirmed);
        let (unconfirmed, ends) = (unconfirmed.count(), self.ends.len());
        if self.leases.len() != self.table.len() || ends != unconfirmed {
            return Err(format!(
                "{} entries, {} leases; {unconfirmed} unconfirmed, {ends} with an end",
                self.table.len(),
                self.leases.len()
            ));
        }
        Ok(())
    }
}
