//! The devices known to a client, bounded in total and by host.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;

use chappe_identity::{CertificateName, Contact, Host, Quota, Room, Shares};

use super::Found;

/// The largest number of devices; the same as in the machine.
pub(super) const TABLE_MAX: usize = 4_096;
/// The limits of one host; only half of its devices may be undescribed. A gateway that announces a thousand
/// devices fits, and a flooding host leaves half of the table.
const QUOTA: Quota = Quota {
    total: TABLE_MAX,
    of_host: TABLE_MAX / 2,
    strangers_of_host: TABLE_MAX / 4,
};
/// Evicted described devices that are remembered by endpoint and host. Reason: as many as strangers can evict;
/// the oldest is forgotten first.
const DISPLACED_MAX: usize = TABLE_MAX / 4;

/// A known device.
pub(super) struct Entry {
    pub(super) found: Found,
    /// The address at which it was described; `None` until then, and after an announcement without it.
    pub(super) contact: Option<Contact>,
    /// Consecutive probes without an answer.
    pub(super) missed: u32,
    /// The certificate that signed its first description, as long as the device is known: announcements, which
    /// nobody signs, do not change it.
    pub(super) signer: Option<CertificateName>,
}

/// The result of adding a device.
pub(super) enum Remembered {
    Added,
    /// It replaces this described device.
    Replaced(String),
    /// There is no room: a constant short text, and the limit that was reached.
    Rejected(&'static str, String),
}

/// The table, readable as a map.
pub(super) struct Table {
    entries: HashMap<String, Entry>,
    shares: Shares<String>,
    /// Evicted endpoints, which no other host may claim while the device may still exist.
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
    /// Adds or updates a device; its description is to be read again, and until then it counts as reached at its
    /// address if that is still announced. In a full table a device of the host with the most devices is evicted, so
    /// that a flooding host cannot keep others out. A device that was described once stays confirmed.
    pub(super) fn remember(&mut self, found: &Found) -> Remembered {
        let host = found.host();
        let mut remembered = Remembered::Added;
        if !self.entries.contains_key(&found.endpoint) {
            let endpoint = &found.endpoint;
            let displaced = self.displaced.iter().position(|(of, _)| of == endpoint);
            if let Some(at) = displaced {
                let of = self.displaced[at].1;
                if of != host {
                    let detail = format!("an evicted device of {of} has this endpoint");
                    return Remembered::Rejected("endpoint of another address", detail);
                }
            }
            match self.shares.room(host) {
                Room::Free => {}
                Room::Replacing(other) => {
                    if self.displace(&other) {
                        remembered = Remembered::Replaced(other);
                    }
                }
                Room::HostFull => {
                    let detail = format!("{host} has {} already", QUOTA.of_host);
                    return Remembered::Rejected("too many devices of one address", detail);
                }
                Room::TableFull => {
                    let detail = format!("there are {TABLE_MAX} already");
                    return Remembered::Rejected("too many devices", detail);
                }
            }
            self.displaced.retain(|(of, _)| *of != found.endpoint);
        }
        let before = self.entries.get(&found.endpoint);
        let contact = before.and_then(|entry| entry.contact.clone());
        let entry = Entry {
            found: found.clone(),
            contact: contact.filter(|contact| found.names(contact)),
            missed: 0,
            signer: self.signer(&found.endpoint),
        };
        if !self.shares.is_confirmed(&found.endpoint) {
            self.shares.set(&found.endpoint, host, false);
        }
        self.entries.insert(found.endpoint.clone(), entry);
        remembered
    }

    /// Like [`Self::remember`], for a device that has left its host: its new one must have room for it, as for a
    /// new device. It keeps its signer.
    pub(super) fn relocate(&mut self, found: &Found) -> Remembered {
        let signer = self.remove(&found.endpoint).and_then(|entry| entry.signer);
        let remembered = self.remember(found);
        self.set_signer(&found.endpoint, signer);
        remembered
    }

    /// Evicts a device. Returns whether it was described.
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

    /// Whether a device was described, even if it has to be described again.
    pub(super) fn is_described(&self, endpoint: &str) -> bool {
        self.shares.is_confirmed(endpoint)
    }

    /// Whether a described device is known at another address than this announcement of it: at another host, or at an
    /// address that the announcement lacks.
    pub(super) fn is_elsewhere(&self, found: &Found) -> bool {
        let Some(entry) = self.entries.get(&found.endpoint) else {
            return false;
        };
        let reached = entry.contact.as_ref().map(|contact| contact.address.ip());
        let known = [Some(entry.found.from.ip()), reached];
        let is_of_other = !known.contains(&Some(found.from.ip()));
        self.is_described(&found.endpoint) && is_of_other || self.is_reached_elsewhere(found)
    }

    /// Whether a described device was reached at an address that this announcement of it lacks.
    pub(super) fn is_reached_elsewhere(&self, found: &Found) -> bool {
        let entry = self.entries.get(&found.endpoint);
        let reached = entry.and_then(|entry| entry.contact.as_ref());
        reached.is_some_and(|contact| !found.names(contact))
    }

    /// Sets the address of a described device, which from now on is charged to that host.
    pub(super) fn set_contact(&mut self, endpoint: &str, contact: &Contact) {
        if let Some(entry) = self.entries.get_mut(endpoint) {
            entry.contact = Some(contact.clone());
            entry.missed = 0;
            let host = Host::from_address(contact.address.ip());
            self.shares.set(&endpoint.to_owned(), host, true);
        }
    }

    /// The certificate that has to sign the answers of a device.
    pub(super) fn signer(&self, endpoint: &str) -> Option<CertificateName> {
        self.entries.get(endpoint)?.signer.clone()
    }

    /// Sets the certificate that has to sign further answers of a described device, unless it has one.
    pub(super) fn set_signer(&mut self, endpoint: &str, signer: Option<CertificateName>) {
        if let Some(entry) = self.entries.get_mut(endpoint) {
            entry.signer = entry.signer.take().or(signer);
        }
    }

    /// Updates the number of missed probes; `None` if the device is unknown.
    pub(super) fn update_missed(
        &mut self,
        endpoint: &str,
        count: impl FnOnce(u32) -> u32,
    ) -> Option<u32> {
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
            xaddrs: vec![format!("http://{from}/")],
            metadata_version: 1,
            from: format!("{from}:3702").parse().unwrap(),
            way: super::super::Way::Discovery,
        }
    }

    fn described(table: &mut Table, endpoint: &str, from: &str) -> bool {
        let remembered = table.remember(&found(endpoint, from));
        let contact = Contact::parse(&format!("http://{from}/"), 0).unwrap();
        table.set_contact(endpoint, &contact);
        !matches!(remembered, Remembered::Rejected(..))
    }

    #[test]
    fn a_flood_of_announcements_evicts_no_described_device() {
        let mut table = Table::default();
        assert!(described(&mut table, "urn:real", "192.0.2.7"));
        for forged in 0..2 * TABLE_MAX {
            let from = format!("10.0.{}.{}", forged / 32 % 256, forged % 32);
            let forged = found(&format!("urn:forged:{forged}"), &from);
            assert!(matches!(table.remember(&forged), Remembered::Added));
            assert!(table.contains_key(&forged.endpoint));
        }
        assert_eq!(table.len(), TABLE_MAX);
        assert!(table.contains_key("urn:real"));
    }

    #[test]
    fn forged_changes_do_not_evict_a_device() {
        let mut table = Table::default();
        assert!(described(&mut table, "urn:real", "192.0.2.7"));
        // An unauthenticated announcement only causes the description to be read again.
        table.remember(&found("urn:real", "192.0.2.7"));
        for forged in 0..2 * TABLE_MAX {
            table.remember(&found(&format!("urn:forged:{forged}"), "192.0.2.7"));
        }
        assert!(table.contains_key("urn:real"));
    }

    #[test]
    fn an_announcement_leaves_a_device_at_the_address_where_it_was_reached() {
        let mut table = Table::default();
        assert!(described(&mut table, "urn:real", "192.0.2.7"));
        let announced = |xaddrs: &[&str]| Found {
            xaddrs: xaddrs.iter().map(|xaddr| (*xaddr).to_owned()).collect(),
            ..found("urn:real", "192.0.2.7")
        };
        let both = announced(&["http://192.0.2.7:9/device", "http://192.0.2.7/device"]);
        assert!(!table.is_elsewhere(&both));
        table.remember(&both);
        assert!(table["urn:real"].contact.is_some());
        for forged in [
            "http://192.0.2.7:9/",
            "https://192.0.2.7/",
            "https://a.example/",
        ] {
            let forged = announced(&[forged]);
            assert!(table.is_elsewhere(&forged), "{forged:?}");
        }
        table.remember(&announced(&["http://192.0.2.7:9/"]));
        assert!(table["urn:real"].contact.is_none(), "it has moved");
        assert!(!table.is_elsewhere(&both), "it was not reached yet");
    }

    #[test]
    fn a_device_keeps_its_signer_until_it_is_gone() {
        let mut table = Table::default();
        let name = |name: &str| {
            let name: CertificateName = format!("CN={name}").parse().unwrap();
            Some(name)
        };
        assert!(described(&mut table, "urn:real", "192.0.2.7"));
        table.set_signer("urn:real", name("device"));
        table.remember(&found("urn:real", "192.0.2.7"));
        assert_eq!(table.signer("urn:real"), name("device"), "announced");
        table.relocate(&found("urn:real", "192.0.2.66"));
        assert_eq!(table.signer("urn:real"), name("device"), "moved");
        // A description that was requested before the first signed one may end after it.
        for later in [None, name("another")] {
            table.set_signer("urn:real", later);
            assert_eq!(table.signer("urn:real"), name("device"), "described");
        }
        table.remove("urn:real");
        table.remember(&found("urn:real", "192.0.2.7"));
        assert_eq!(table.signer("urn:real"), None);
    }

    #[test]
    fn the_endpoint_of_an_evicted_device_stays_with_its_host() {
        let mut table = Table::default();
        for number in 0..2 * TABLE_MAX {
            let from = format!("192.0.2.{}", number % 2);
            described(&mut table, &format!("urn:many:{number}"), &from);
        }
        let remembered = table.remember(&found("urn:alone", "192.0.2.7"));
        let Remembered::Replaced(displaced) = remembered else {
            panic!("the table is not full");
        };
        let hijacked = table.remember(&found(&displaced, "192.0.2.66"));
        assert!(matches!(
            hijacked,
            Remembered::Rejected("endpoint of another address", _)
        ));
        assert!(!table.contains_key(&displaced));
        table.remove("urn:alone");
        let host = table.displaced[0].1.to_string();
        let again = table.remember(&found(&displaced, &host));
        assert!(matches!(again, Remembered::Added));
        assert!(table.displaced.is_empty());
    }

    #[test]
    fn a_described_device_announced_from_another_address_is_elsewhere() {
        let mut table = Table::default();
        table.remember(&found("urn:stranger", "192.0.2.7"));
        assert!(
            !table.is_elsewhere(&found("urn:stranger", "192.0.2.66")),
            "an undescribed device proves nothing"
        );
        assert!(described(&mut table, "urn:real", "192.0.2.7"));
        assert!(table.is_elsewhere(&found("urn:real", "192.0.2.66")));
        assert!(!table.is_elsewhere(&found("urn:real", "192.0.2.7")));
        assert!(!table.is_elsewhere(&found("urn:new", "192.0.2.66")));
    }

    #[test]
    fn hosts_with_many_live_devices_leave_room_for_others() {
        let mut table = Table::default();
        for number in 0..2 * TABLE_MAX {
            let from = format!("192.0.2.{}", number % 2);
            described(&mut table, &format!("urn:flood:{number}"), &from);
        }
        assert_eq!(table.len(), TABLE_MAX);
        let remembered = table.remember(&found("urn:real", "192.0.2.7"));
        assert!(matches!(remembered, Remembered::Replaced(it) if it.starts_with("urn:flood")));
        let refused = table.remember(&found("urn:flood:more", "192.0.2.1"));
        assert!(matches!(refused, Remembered::Rejected(..)));
        assert!(table.contains_key("urn:real"));
    }
}
