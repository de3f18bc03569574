//! The devices that a client knows, bounded in all and by host.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::Deref;

use chappe_identity::{Contact, Host, Quota, Room, Shares};

use super::Found;

/// Devices remembered; as many as the machine below remembers.
pub(super) const TABLE_MAX: usize = 4_096;
/// Devices of one host, of which half not described: a gateway that announces a thousand devices at
/// once fits, and one that floods leaves half the table.
const QUOTA: Quota = Quota {
    total: TABLE_MAX,
    of_host: TABLE_MAX / 2,
    strangers_of_host: TABLE_MAX / 4,
};
/// Described devices that made room and are remembered by endpoint and host. Reason: as many as
/// strangers may displace; the oldest is forgotten first.
const DISPLACED_MAX: usize = TABLE_MAX / 4;

/// A device as the client knows it.
pub(super) struct Entry {
    pub(super) found: Found,
    /// Where it was reached; `None` until it is described.
    pub(super) contact: Option<Contact>,
    /// Looks in a row at which it did not answer.
    pub(super) missed: u32,
}

/// What became of a device that was to be remembered.
pub(super) enum Remembered {
    Yes,
    /// It has the place of this described device.
    InsteadOf(String),
    /// It has no place: a few words that are always the same, and what is full.
    No(&'static str, String),
}

/// The table: read as a map, changed by what is known of a device.
pub(super) struct Table {
    entries: HashMap<String, Entry>,
    shares: Shares<String>,
    /// No other host gets the endpoint of a device that may still be there.
    displaced: VecDeque<(String, Host)>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            shares: Shares::new(QUOTA),
            displaced: VecDeque::new(),
        }
    }
}

impl Deref for Table {
    type Target = HashMap<String, Entry>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl Table {
    /// Remembers what a device says of itself, which is to be read again. In a full table the host
    /// with the most devices gives way, so that neither announcements nor devices of one host keep
    /// another's out. A device that was described once stays no stranger.
    pub(super) fn remember(&mut self, found: &Found) -> Remembered {
        let host = found.host();
        let mut remembered = Remembered::Yes;
        if !self.entries.contains_key(&found.endpoint) {
            let endpoint = &found.endpoint;
            let displaced = self.displaced.iter().position(|(of, _)| of == endpoint);
            if let Some(at) = displaced {
                let of = self.displaced[at].1;
                if of != host {
                    let detail = format!("a device of {of} that made room for others has it");
                    return Remembered::No("endpoint of another address", detail);
                }
            }
            match self.shares.room(host) {
                Room::Free => {}
                Room::Replacing(other) => {
                    if self.displace(&other) {
                        remembered = Remembered::InsteadOf(other);
                    }
                }
                Room::HostFull => {
                    let detail = format!("{host} has {} already", QUOTA.of_host);
                    return Remembered::No("too many devices of one address", detail);
                }
                Room::TableFull => {
                    let detail = format!("there are {TABLE_MAX} already");
                    return Remembered::No("too many devices", detail);
                }
            }
            self.displaced.retain(|(of, _)| *of != found.endpoint);
        }
        let entry = Entry {
            found: found.clone(),
            contact: None,
            missed: 0,
        };
        if !self.shares.is_confirmed(&found.endpoint) {
            self.shares.set(&found.endpoint, host, false);
        }
        self.entries.insert(found.endpoint.clone(), entry);
        remembered
    }

    /// Removes a device that makes room; says whether it was described.
    fn displace(&mut self, endpoint: &str) -> bool {
        let described = self
            .shares
            .host(endpoint)
            .filter(|_| self.is_described(endpoint));
        self.remove(endpoint);
        let Some(host) = described else { return false };
        if self.displaced.len() == DISPLACED_MAX {
            self.displaced.pop_front();
        }
        self.displaced.push_back((endpoint.to_owned(), host));
        true
    }

    /// Whether a device was described, although it may have to be described again.
    pub(super) fn is_described(&self, endpoint: &str) -> bool {
        self.shares.is_confirmed(endpoint)
    }

    /// Whether a described device is known at another address than this.
    pub(super) fn is_elsewhere(&self, endpoint: &str, from: IpAddr) -> bool {
        let Some(entry) = self.entries.get(endpoint) else {
            return false;
        };
        let reached = entry.contact.as_ref().map(|contact| contact.address.ip());
        let known = [Some(entry.found.from.ip()), reached];
        self.is_described(endpoint) && !known.contains(&Some(from))
    }

    /// Notes where a device was reached; it counts for that host from now on.
    pub(super) fn described(&mut self, endpoint: &str, contact: &Contact) {
        if let Some(entry) = self.entries.get_mut(endpoint) {
            entry.contact = Some(contact.clone());
            entry.missed = 0;
            let host = Host::from_address(contact.address.ip());
            self.shares.set(&endpoint.to_owned(), host, true);
        }
    }

    /// Notes how often a device did not answer; `None` when it is not known.
    pub(super) fn missed(&mut self, endpoint: &str, count: impl FnOnce(u32) -> u32) -> Option<u32> {
        let entry = self.entries.get_mut(endpoint)?;
        entry.missed = count(entry.missed);
        Some(entry.missed)
    }

    pub(super) fn remove(&mut self, endpoint: &str) -> Option<Entry> {
        let (endpoint, entry) = self.entries.remove_entry(endpoint)?;
        self.shares.forget(&endpoint);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_dpws::Dialect;

    fn found(endpoint: &str, from: &str) -> Found {
        Found {
            endpoint: endpoint.to_owned(),
            dialect: Dialect::V2009,
            types: Vec::new(),
            scopes: Vec::new(),
            xaddrs: Vec::new(),
            metadata_version: 1,
            from: format!("{from}:3702").parse().unwrap(),
            way: super::super::Way::Discovery,
        }
    }

    fn described(table: &mut Table, endpoint: &str, from: &str) -> bool {
        let remembered = table.remember(&found(endpoint, from));
        let contact = Contact::parse(&format!("http://{from}/"), 0).unwrap();
        table.described(endpoint, &contact);
        !matches!(remembered, Remembered::No(..))
    }

    #[test]
    fn announcements_without_end_do_not_grow_the_table_nor_remove_a_described_device() {
        let mut table = Table::default();
        assert!(described(&mut table, "urn:real", "192.0.2.7"));
        for forged in 0..2 * TABLE_MAX {
            let from = format!("10.0.{}.{}", forged / 32 % 256, forged % 32);
            let forged = found(&format!("urn:forged:{forged}"), &from);
            assert!(matches!(table.remember(&forged), Remembered::Yes));
            assert!(table.contains_key(&forged.endpoint));
        }
        assert_eq!(table.len(), TABLE_MAX);
        assert!(table.contains_key("urn:real"));
    }

    #[test]
    fn a_device_that_changes_and_strangers_who_forge_its_address_do_not_displace_it() {
        let mut table = Table::default();
        assert!(described(&mut table, "urn:real", "192.0.2.7"));
        // What anybody may have said is to be read again.
        table.remember(&found("urn:real", "192.0.2.7"));
        for forged in 0..2 * TABLE_MAX {
            table.remember(&found(&format!("urn:forged:{forged}"), "192.0.2.7"));
        }
        assert!(table.contains_key("urn:real"));
    }

    #[test]
    fn the_endpoint_of_a_device_that_made_room_is_given_to_no_other_host() {
        let mut table = Table::default();
        for number in 0..2 * TABLE_MAX {
            let from = format!("192.0.2.{}", number % 2);
            described(&mut table, &format!("urn:many:{number}"), &from);
        }
        let remembered = table.remember(&found("urn:alone", "192.0.2.7"));
        let Remembered::InsteadOf(displaced) = remembered else {
            panic!("the table is not full");
        };
        let hijacked = table.remember(&found(&displaced, "192.0.2.66"));
        assert!(matches!(
            hijacked,
            Remembered::No("endpoint of another address", _)
        ));
        assert!(!table.contains_key(&displaced));
        table.remove("urn:alone");
        let host = table.displaced[0].1.to_string();
        let again = table.remember(&found(&displaced, &host));
        assert!(matches!(again, Remembered::Yes));
        assert!(table.displaced.is_empty());
    }

    #[test]
    fn a_described_device_that_is_announced_from_another_address_is_elsewhere() {
        let mut table = Table::default();
        let [here, there] = ["192.0.2.7", "192.0.2.66"].map(|ip| ip.parse().unwrap());
        table.remember(&found("urn:stranger", "192.0.2.7"));
        assert!(
            !table.is_elsewhere("urn:stranger", there),
            "it proves nothing"
        );
        assert!(described(&mut table, "urn:real", "192.0.2.7"));
        assert!(table.is_elsewhere("urn:real", there));
        assert!(!table.is_elsewhere("urn:real", here));
        assert!(!table.is_elsewhere("urn:new", there));
    }

    #[test]
    fn hosts_whose_devices_all_answer_keep_no_other_out() {
        let mut table = Table::default();
        for number in 0..2 * TABLE_MAX {
            let from = format!("192.0.2.{}", number % 2);
            described(&mut table, &format!("urn:flood:{number}"), &from);
        }
        assert_eq!(table.len(), TABLE_MAX);
        let remembered = table.remember(&found("urn:real", "192.0.2.7"));
        assert!(matches!(remembered, Remembered::InsteadOf(it) if it.starts_with("urn:flood")));
        let refused = table.remember(&found("urn:flood:more", "192.0.2.1"));
        assert!(matches!(refused, Remembered::No(..)));
        assert!(table.contains_key("urn:real"));
    }
}
