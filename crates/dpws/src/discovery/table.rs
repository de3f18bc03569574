//! The client's bounded table of target services.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use chappe_identity::{Host, Quota, Room, Shares};
use chappe_xml::{Name, Str};

use super::Target;
use super::message::AppSequence;
use crate::Dialect;

/// Sequences stored for one target service. It may send from several addresses, and each has its
/// own sequence, so that a forged address cannot advance another's.
const SEQUENCES_MAX: usize = 4;

/// The table's entry for a target service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its description.
    pub target: Target,
    /// The dialect of its messages.
    pub dialect: Dialect,
    /// The sender of the description.
    pub from: SocketAddr,
    /// The receiving interface.
    pub interface: u32,
    /// Whether the application has reached it. A confirmed entry is evicted only while its host has
    /// the most entries.
    pub confirmed: bool,
    sequences: Vec<(IpAddr, AppSequence)>,
}

impl Known {
    pub(super) fn new(target: Target, dialect: Dialect, from: SocketAddr, interface: u32) -> Self {
        Self {
            target,
            dialect,
            from,
            interface,
            confirmed: false,
            sequences: Vec::new(),
        }
    }

    /// Records a sequence number. False if the message is older than an earlier one.
    ///
    /// Equal numbers are not ordered: some devices give all messages the number 1, and duplicates
    /// are detected by their identifier.
    ///
    /// With `answers_request`, an older instance counts as a restart with a wrong clock instead of
    /// an old message.
    pub(super) fn follow(
        &mut self,
        from: IpAddr,
        sequence: &AppSequence,
        answers_request: bool,
    ) -> bool {
        let index = self.sequences.iter().position(|(source, known)| {
            *source == from && known.sequence_id == sequence.sequence_id
        });
        let Some(index) = index else {
            if self.sequences.len() == SEQUENCES_MAX {
                self.sequences.remove(0);
            }
            self.sequences.push((from, sequence.clone()));
            return true;
        };
        let known = &mut self.sequences[index].1;
        let is_current = match sequence.instance_id.cmp(&known.instance_id) {
            std::cmp::Ordering::Equal => sequence.message_number >= known.message_number,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Less => answers_request,
        };
        if is_current {
            known.clone_from(sequence);
        }
        is_current
    }
}

/// The reason why the table rejects a target service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// All entries are confirmed and no host has more than its share.
    Table,
    /// The host has reached its limit.
    Host,
}

/// The bounded table. Hosts share it, and the host with the most entries loses one first.
#[derive(Debug, Clone)]
pub(super) struct Table {
    entries: HashMap<Str, Known>,
    shares: Shares<Str>,
    evicted: u64,
}

/// Approximate memory of a description and its table entry, in bytes.
pub(super) fn approximate_size(target: &Target) -> usize {
    let lists = [&target.scopes, &target.xaddrs];
    let uris: usize = lists.into_iter().flatten().map(|uri| uri.len() + 24).sum();
    let types = target.types.iter();
    let types: usize = types
        .map(|name| name.namespace.len() + name.local.len() + 48)
        .sum();
    512 + 2 * target.endpoint.address.len() + uris + types
}

/// Whether `received` contradicts `known`. Absent fields contradict nothing, and neither do names of the
/// profile in the other dialect.
pub(super) fn differs(known: &Target, received: &Target) -> bool {
    let uris = |known: &[Str], received: &[Str]| {
        let sorted = |list: &[Str]| list.iter().cloned().collect::<BTreeSet<_>>();
        !received.is_empty() && sorted(known) != sorted(received)
    };
    let types = |list: &[Name]| {
        let translated = list.iter().map(|name| Dialect::V2009.translate(name));
        translated.collect::<BTreeSet<_>>()
    };
    (received.metadata_version != 0 && known.metadata_version != received.metadata_version)
        || (!received.types.is_empty() && types(&known.types) != types(&received.types))
        || uris(&known.scopes, &received.scopes)
        || uris(&known.xaddrs, &received.xaddrs)
}

/// Fills the absent fields of `target` from `known`.
pub(super) fn fill_absent_fields(target: &mut Target, known: &Target) {
    if target.types.is_empty() {
        target.types.clone_from(&known.types);
    }
    if target.scopes.is_empty() {
        target.scopes.clone_from(&known.scopes);
    }
    if target.xaddrs.is_empty() {
        target.xaddrs.clone_from(&known.xaddrs);
    }
    if target.metadata_version == 0 {
        target.metadata_version = known.metadata_version;
    }
}

impl Table {
    pub(super) fn new(quota: Quota) -> Self {
        Self {
            entries: HashMap::new(),
            shares: Shares::new(quota),
            evicted: 0,
        }
    }

    pub(super) fn get(&self, endpoint: &str) -> Option<&Known> {
        self.entries.get(endpoint)
    }

    /// Records a sequence number without moving the entry.
    pub(super) fn follow(
        &mut self,
        endpoint: &str,
        from: IpAddr,
        sequence: &AppSequence,
        answers_request: bool,
    ) -> bool {
        let known = self.entries.get_mut(endpoint);
        known.is_none_or(|known| known.follow(from, sequence, answers_request))
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

    /// Adds or replaces an entry; evicts another if necessary.
    pub(super) fn insert(&mut self, known: Known) -> Result<(), Full> {
        self.insert_evicting(known).map(drop)
    }

    /// Like [`Self::insert`], and returns the endpoint of the evicted entry.
    pub(super) fn insert_evicting(&mut self, mut known: Known) -> Result<Option<Str>, Full> {
        let endpoint = known.target.endpoint.address.clone();
        let previous = self.remove(&endpoint);
        if let Some(previous) = &previous {
            known.sequences.clone_from(&previous.sequences);
            known.confirmed |= previous.confirmed;
        }
        let evicted = match self.make_room(&known) {
            Ok(evicted) => evicted,
            Err(full) => {
                // A rejected update keeps the old entry, which still fits.
                if let Some(previous) = previous {
                    self.put(endpoint, previous);
                }
                return Err(full);
            }
        };
        self.put(endpoint, known);
        Ok(evicted)
    }

    /// Evicts an entry for `known` if necessary.
    fn make_room(&mut self, known: &Known) -> Result<Option<Str>, Full> {
        match self.shares.room(Host::from_address(known.from.ip())) {
            Room::Free => Ok(None),
            Room::Replacing(other) => {
                self.remove(&other);
                self.evicted += 1;
                Ok(Some(other))
            }
            Room::HostFull => Err(Full::Host),
            Room::TableFull => Err(Full::Table),
        }
    }

    fn put(&mut self, endpoint: Str, known: Known) {
        let host = Host::from_address(known.from.ip());
        self.shares.set(&endpoint, host, known.confirmed);
        self.entries.insert(endpoint, known);
    }

    pub(super) fn remove(&mut self, endpoint: &str) -> Option<Known> {
        let (endpoint, known) = self.entries.remove_entry(endpoint)?;
        self.shares.forget(&endpoint);
        Some(known)
    }

    pub(super) fn confirm(&mut self, endpoint: &Str) {
        if let Some(known) = self.entries.get_mut(endpoint) {
            known.confirmed = true;
            self.shares
                .set(endpoint, Host::from_address(known.from.ip()), true);
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let (len, listed) = (self.len(), self.shares.len());
        if len != listed {
            return Err(format!("{len} target services, but {listed} shares"));
        }
        self.shares.check()
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
    fn fullest_source_is_evicted_first() {
        let quota = Quota {
            total: 4,
            of_host: 4,
            strangers_of_host: 3,
        };
        let mut table = Table::new(quota);
        for name in ["a", "b", "c", "d"] {
            assert_eq!(table.insert(known(name, "192.0.2.1:1")), Ok(()));
            assert_eq!(table.check(), Ok(()));
        }
        assert!(table.get("a").is_none(), "above the source's share");
        for name in ["b", "c", "d"] {
            table.confirm(&name.into());
        }
        assert_eq!(table.insert(known("e", "192.0.2.1:1")), Ok(()));
        table.confirm(&"e".into());
        assert_eq!(table.insert(known("f", "192.0.2.1:1")), Err(Full::Host));
        for name in ["g", "h"] {
            assert_eq!(table.insert(known(name, "192.0.2.2:1")), Ok(()));
            table.confirm(&name.into());
            assert_eq!(table.check(), Ok(()));
        }
        assert!(
            table.get("b").is_some() && table.get("c").is_some(),
            "two each"
        );
        assert_eq!(
            table.insert(known("i", "192.0.2.3:1")),
            Ok(()),
            "one of three hosts"
        );
        assert_eq!((table.len(), table.evicted()), (4, 4));
    }

    #[test]
    fn rejected_update_keeps_old_entry() {
        let quota = Quota {
            total: 4,
            of_host: 2,
            strangers_of_host: 2,
        };
        let mut table = Table::new(quota);
        for (name, from) in [
            ("a", "192.0.2.1:1"),
            ("b", "192.0.2.1:1"),
            ("c", "192.0.2.2:1"),
        ] {
            assert_eq!(table.insert(known(name, from)), Ok(()));
            table.confirm(&name.into());
        }
        assert_eq!(table.insert(known("c", "192.0.2.1:1")), Err(Full::Host));
        let unchanged = table.get("c").expect("the old entry remains");
        assert!(
            unchanged.confirmed && unchanged.from == "192.0.2.2:1".parse().expect("an address")
        );
        assert_eq!(table.check(), Ok(()));
    }

    #[test]
    fn sequences_are_checked_per_source() {
        let mut known = known("a", "192.0.2.1:1");
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().expect(ip));
        let sequence = |instance_id, message_number| AppSequence {
            instance_id,
            sequence_id: None,
            message_number,
        };
        assert!(known.follow(one, &sequence(5, 7), false));
        assert!(
            known.follow(one, &sequence(5, 7), false),
            "equal numbers are not ordered"
        );
        assert!(!known.follow(one, &sequence(5, 6), true));
        assert!(
            known.follow(two, &sequence(u32::MAX, u32::MAX), false),
            "another address"
        );
        assert!(
            known.follow(one, &sequence(5, 8), false),
            "sequences are independent"
        );
        assert!(known.follow(one, &sequence(6, 1), false), "a restart");
        assert!(
            !known.follow(one, &sequence(5, 9), false),
            "the old instance"
        );
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
