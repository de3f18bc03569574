//! What a client remembers of target services, within bounds.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use chappe_identity::{Host, Quota, Room, Shares};
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
    /// Whether the application has reached it; then it gives way only when its host has most entries.
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
pub(super) enum Full {
    /// All have an equal right to their places.
    Table,
    /// Its host has as many as a host may have.
    Host,
}

/// The bounded table: hosts share it, and the host with the most entries gives way first.
#[derive(Debug, Clone)]
pub(super) struct Table {
    entries: HashMap<Str, Known>,
    shares: Shares<Str>,
    evicted: u64,
}

/// Bytes that a description occupies, roughly, with the table's own.
pub(super) fn size(target: &Target) -> usize {
    let lists = [&target.scopes, &target.xaddrs];
    let uris: usize = lists.into_iter().flatten().map(|uri| uri.len() + 24).sum();
    let types = target.types.iter();
    let types: usize = types
        .map(|name| name.namespace.len() + name.local.len() + 48)
        .sum();
    512 + 2 * target.endpoint.address.len() + uris + types
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

    /// Adds or replaces an entry, evicting others at need.
    pub(super) fn insert(&mut self, mut known: Known) -> Result<(), Full> {
        let endpoint = known.target.endpoint.address.clone();
        let before = self.remove(&endpoint);
        if let Some(before) = &before {
            known.sequences.clone_from(&before.sequences);
            known.confirmed |= before.confirmed;
        }
        if let Err(full) = self.make_room(&known) {
            // What is refused must not cost what was known: it fitted before.
            if let Some(before) = before {
                self.put(endpoint, before);
            }
            return Err(full);
        }
        self.put(endpoint, known);
        Ok(())
    }

    /// Evicts the entry that gives way to `known`, if one must.
    fn make_room(&mut self, known: &Known) -> Result<(), Full> {
        match self.shares.room(Host::of(known.from.ip())) {
            Room::Free => {}
            Room::Of(other) => {
                self.remove(&other);
                self.evicted += 1;
            }
            Room::HostFull => return Err(Full::Host),
            Room::TableFull => return Err(Full::Table),
        }
        Ok(())
    }

    fn put(&mut self, endpoint: Str, known: Known) {
        let host = Host::of(known.from.ip());
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
            self.shares.set(endpoint, Host::of(known.from.ip()), true);
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let (len, listed) = (self.len(), self.shares.len());
        if len != listed {
            return Err(format!("{len} target services, {listed} listed"));
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
    fn the_greediest_source_gives_way() {
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
        assert!(table.get("a").is_none(), "beyond the source's share");
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
    fn what_is_refused_costs_nothing_that_was_known() {
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
        let kept = table.get("c").expect("it was known");
        assert!(kept.confirmed && kept.from == "192.0.2.2:1".parse().expect("an address"));
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
