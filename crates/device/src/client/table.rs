//! The devices that a client knows, bounded in all and by host.

use std::collections::HashMap;
use std::ops::Deref;

use chappe_identity::{Contact, Host, Quota, Room, Shares};

use super::Found;

/// Devices remembered; as many as the machine below remembers.
pub(super) const TABLE_MAX: usize = 4_096;
/// Devices of one host, of which an eighth not described: a host that simulates a ward fits, and one
/// that floods leaves half the table.
const QUOTA: Quota = Quota {
    total: TABLE_MAX,
    of_host: TABLE_MAX / 2,
    strangers_of_host: TABLE_MAX / 16,
};

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
}

impl Default for Table {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            shares: Shares::new(QUOTA),
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
    /// Remembers a device that is not described yet. In a full table the host with the most devices
    /// gives way, so that neither announcements nor devices of one host keep another's out.
    pub(super) fn remember(&mut self, found: &Found) -> Remembered {
        let host = found.host();
        let mut remembered = Remembered::Yes;
        if !self.entries.contains_key(&found.endpoint) {
            match self.shares.room(host) {
                Room::Free => {}
                Room::Of(other) => {
                    if self.remove(&other).is_some_and(|it| it.contact.is_some()) {
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
        }
        let entry = Entry {
            found: found.clone(),
            contact: None,
            missed: 0,
        };
        self.shares.set(&found.endpoint, host, false);
        self.entries.insert(found.endpoint.clone(), entry);
        remembered
    }

    /// Notes where a device was reached; it counts for that host from now on.
    pub(super) fn described(&mut self, endpoint: &str, contact: &Contact) {
        if let Some(entry) = self.entries.get_mut(endpoint) {
            entry.contact = Some(contact.clone());
            entry.missed = 0;
            let host = Host::of(contact.address.ip());
            self.shares.set(&endpoint.to_owned(), host, true);
        }
    }

    /// Notes that a device is said to be elsewhere, and is to be described again.
    pub(super) fn moved(&mut self, found: &Found) {
        if let Some(entry) = self.entries.get_mut(&found.endpoint) {
            entry.found = found.clone();
            entry.contact = None;
            let host = found.host();
            self.shares.set(&found.endpoint, host, false);
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
