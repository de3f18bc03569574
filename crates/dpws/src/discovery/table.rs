//! What a client remembers of target services, within bounds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use chappe_xml::Str;

use super::Target;
use super::message::AppSequence;
use crate::Dialect;

/// Sequences followed for one target service: it may be heard by several addresses, each with a
/// sequence that a stranger cannot push forward.
const SEQUENCES_MAX: usize = 4;

/// What is known of a target service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// What it says of itself.
    pub target: Target,
    /// How it speaks.
    pub dialect: Dialect,
    /// Who said so.
    pub from: SocketAddr,
    /// By which interface.
    pub interface: u32,
    /// Whether the application has reached it; then it is never evicted.
    pub confirmed: bool,
    order: u64,
    bytes: usize,
    sequences: Vec<(IpAddr, AppSequence)>,
}

impl Known {
    pub(super) fn new(target: Target, dialect: Dialect, from: SocketAddr, interface: u32) -> Self {
        Self {
            bytes: size(&target),
            target,
            dialect,
            from,
            interface,
            confirmed: false,
            order: 0,
            sequences: Vec::new(),
        }
    }

    /// Follows a sequence; says whether the message is no older than those before it.
    ///
    /// Equal numbers are not ordered: some devices number all their messages 1, and repeats are
    /// known by their identifier.
    ///
    /// With `fresh`, which a message is that answers an open question, an older instance is taken
    /// for a restart with a wrong clock instead of an old message.
    pub(super) fn follow(&mut self, from: IpAddr, sequence: &AppSequence, fresh: bool) -> bool {
        let place = self.sequences.iter().position(|(source, known)| {
            *source == from && known.sequence_id == sequence.sequence_id
        });
        let Some(place) = place else {
            if self.sequences.len() == SEQUENCES_MAX {
                self.sequences.remove(0);
            }
            self.sequences.push((from, sequence.clone()));
            return true;
        };
        let known = &mut self.sequences[place].1;
        let newer = match sequence.instance_id.cmp(&known.instance_id) {
            std::cmp::Ordering::Equal => sequence.message_number >= known.message_number,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Less => fresh,
        };
        if newer {
            known.clone_from(sequence);
        }
        newer
    }
}

/// Why a target service cannot be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// The bounded table. Confirmed entries are never evicted; of the others, each source address has
/// a share, and the source with the most gives way first.
#[derive(Debug, Clone)]
pub(super) struct Table {
    entries: HashMap<Str, Known>,
    /// Unconfirmed entries of each source, oldest first.
    sources: HashMap<IpAddr, BTreeMap<u64, Str>>,
    /// Sources by how many unconfirmed entries they have.
    by_share: BTreeSet<(usize, IpAddr)>,
    bytes: usize,
    orders: u64,
    evicted: u64,
    capacity: usize,
    bytes_max: usize,
    share: usize,
}

/// Bytes that a description occupies, roughly, with the table's own.
fn size(target: &Target) -> usize {
    let lists = [&target.scopes, &target.xaddrs];
    let uris: usize = lists.into_iter().flatten().map(|uri| uri.len() + 24).sum();
    let types = target.types.iter();
    let types: usize = types
        .map(|name| name.namespace.len() + name.local.len() + 48)
        .sum();
    512 + 2 * target.endpoint.address.len() + uris + types
}

impl Table {
    pub(super) fn new(capacity: usize, bytes_max: usize, share: usize) -> Self {
        Self {
            entries: HashMap::new(),
            sources: HashMap::new(),
            by_share: BTreeSet::new(),
            bytes: 0,
            orders: 0,
            evicted: 0,
            capacity,
            bytes_max,
            share: share.max(1),
        }
    }

    pub(super) fn get(&self, endpoint: &str) -> Option<&Known> {
        self.entries.get(endpoint)
    }

    /// For following a sequence, which moves nothing in the table.
    pub(super) fn follow(
        &mut self,
        endpoint: &str,
        from: IpAddr,
        sequence: &AppSequence,
        fresh: bool,
    ) -> bool {
        let known = self.entries.get_mut(endpoint);
        known.is_none_or(|known| known.follow(from, sequence, fresh))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Known> {
        self.entries.values()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Adds or replaces an entry, evicting unconfirmed ones at need.
    pub(super) fn insert(&mut self, mut known: Known) -> Result<(), Full> {
        let endpoint = known.target.endpoint.address.clone();
        let before = self.remove(&endpoint);
        if let Some(before) = &before {
            known.sequences.clone_from(&before.sequences);
            known.confirmed |= before.confirmed;
        }
        if !self.make_room(&known) {
            // What is refused must not cost what was known: it fitted before.
            if let Some(before) = before {
                self.put(endpoint, before);
            }
            return Err(Full);
        }
        self.put(endpoint, known);
        Ok(())
    }

    /// Evicts unconfirmed entries until `known` fits; says whether it does.
    fn make_room(&mut self, known: &Known) -> bool {
        let source = known.from.ip();
        if !known.confirmed && self.share_of(source) >= self.share {
            self.evict_from(source);
        }
        while self.entries.len() >= self.capacity || self.bytes + known.bytes > self.bytes_max {
            let Some((_, greediest)) = self.by_share.last().copied() else {
                return false;
            };
            self.evict_from(greediest);
        }
        true
    }

    fn put(&mut self, endpoint: Str, mut known: Known) {
        self.orders += 1;
        known.order = self.orders;
        self.bytes += known.bytes;
        if !known.confirmed {
            self.list(known.from.ip(), known.order, endpoint.clone());
        }
        self.entries.insert(endpoint, known);
    }

    pub(super) fn remove(&mut self, endpoint: &str) -> Option<Known> {
        let known = self.entries.remove(endpoint)?;
        self.bytes -= known.bytes;
        if !known.confirmed {
            self.unlist(known.from.ip(), known.order);
        }
        Some(known)
    }

    pub(super) fn confirm(&mut self, endpoint: &str) -> bool {
        let Some(known) = self.entries.get_mut(endpoint) else {
            return false;
        };
        if !std::mem::replace(&mut known.confirmed, true) {
            let (source, order) = (known.from.ip(), known.order);
            self.unlist(source, order);
        }
        true
    }

    fn share_of(&self, source: IpAddr) -> usize {
        self.sources.get(&source).map_or(0, BTreeMap::len)
    }

    fn evict_from(&mut self, source: IpAddr) {
        let oldest = self
            .sources
            .get(&source)
            .and_then(|entries| entries.values().next().cloned());
        if let Some(endpoint) = oldest {
            self.remove(&endpoint);
            self.evicted += 1;
        }
    }

    fn list(&mut self, source: IpAddr, order: u64, endpoint: Str) {
        let entries = self.sources.entry(source).or_default();
        self.by_share.remove(&(entries.len(), source));
        entries.insert(order, endpoint);
        self.by_share.insert((entries.len(), source));
    }

    fn unlist(&mut self, source: IpAddr, order: u64) {
        let Some(entries) = self.sources.get_mut(&source) else {
            return;
        };
        self.by_share.remove(&(entries.len(), source));
        entries.remove(&order);
        if entries.is_empty() {
            self.sources.remove(&source);
        } else {
            self.by_share.insert((entries.len(), source));
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let bytes: usize = self.entries.values().map(|known| known.bytes).sum();
        let listed: usize = self.sources.values().map(BTreeMap::len).sum();
        let unconfirmed = self
            .entries
            .values()
            .filter(|known| !known.confirmed)
            .count();
        if self.len() > self.capacity || bytes > self.bytes_max {
            return Err(format!("{} target services of {bytes} bytes", self.len()));
        }
        if bytes != self.bytes || listed != unconfirmed || self.by_share.len() != self.sources.len()
        {
            return Err(format!(
                "{listed} listed, {unconfirmed} unconfirmed, {bytes} bytes"
            ));
        }
        match self.by_share.last() {
            Some((share, source)) if *share > self.share => {
                Err(format!("{share} target services from {source}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_soap::EndpointReference;

    fn known(name: &str, from: &str) -> Known {
        let target = Target {
            endpoint: EndpointReference::new(name.to_owned()),
            ..Target::default()
        };
        Known::new(target, Dialect::V2009, from.parse().expect(from), 1)
    }

    #[test]
    fn the_greediest_source_gives_way_and_confirmed_entries_stay() {
        let mut table = Table::new(4, 1 << 20, 3);
        for name in ["a", "b", "c", "d"] {
            assert_eq!(table.insert(known(name, "192.0.2.1:1")), Ok(()));
            assert_eq!(table.check(), Ok(()));
        }
        assert!(table.get("a").is_none(), "beyond the source's share");
        assert!(table.confirm("b"));
        for name in ["e", "f", "g"] {
            assert_eq!(table.insert(known(name, "192.0.2.2:1")), Ok(()));
            assert_eq!(table.check(), Ok(()));
        }
        assert!(table.get("b").is_some());
        for name in ["c", "d", "e", "f", "g"] {
            table.confirm(name);
        }
        assert_eq!(table.check(), Ok(()));
        assert_eq!(table.len(), 4);
        assert_eq!(table.insert(known("h", "192.0.2.3:1")), Err(Full));
        let mut larger = known("b", "192.0.2.1:1");
        larger.bytes = 2 << 20;
        assert_eq!(table.insert(larger), Err(Full));
        assert!(
            table.get("b").is_some_and(|b| b.confirmed),
            "what was known stays"
        );
        assert_eq!(table.check(), Ok(()));
    }

    #[test]
    fn sequences_are_followed_for_each_source() {
        let mut known = known("a", "192.0.2.1:1");
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().expect(ip));
        let sequence = |instance_id, message_number| AppSequence {
            instance_id,
            sequence_id: None,
            message_number,
        };
        assert!(known.follow(one, &sequence(5, 7), false));
        assert!(known.follow(one, &sequence(5, 7), false), "not ordered");
        assert!(!known.follow(one, &sequence(5, 6), true));
        assert!(
            known.follow(two, &sequence(u32::MAX, u32::MAX), false),
            "a stranger"
        );
        assert!(known.follow(one, &sequence(5, 8), false), "pins nothing");
        assert!(known.follow(one, &sequence(6, 1), false), "a restart");
        assert!(!known.follow(one, &sequence(5, 9), false), "from before it");
        assert!(
            known.follow(one, &sequence(5, 9), true),
            "a restart with a wrong clock"
        );
        let other = AppSequence {
            sequence_id: Some("".into()),
            ..sequence(1, 1)
        };
        assert!(
            known.follow(one, &other, false),
            "an empty identifier is another sequence"
        );
    }
}
