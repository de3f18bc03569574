//! Which addresses of devices are contacted with TLS, and what their certificates have to prove.
//!
//! A device that has an https address is never contacted without TLS, as far as any certificate is trusted. A host
//! name is resolved only for https, where a certificate has to prove it; the policy judges what it means.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_identity::{AddressPolicy, Contact, Refusal, Scheme};
use chappe_transport::http::Security;

use super::{ClientOptions, Shared};

/// Names and devices that are remembered. Reason: more than a network has; then all are forgotten, and devices
/// that are described again are remembered again.
const KNOWN_MAX: usize = 10_000;

/// The one that gives an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Announcer<'a> {
    /// Its address, by which the policy judges.
    pub(super) from: SocketAddr,
    /// The device whose address it is.
    pub(super) endpoint: &'a str,
    /// Whether it was itself contacted with TLS: then only https addresses are accepted from it.
    pub(super) is_secured: bool,
}

/// What is known of devices that were contacted with TLS: for the machines, whose addresses are texts.
#[derive(Default)]
pub(super) struct Known(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    /// The addresses of host names.
    names: HashMap<String, IpAddr>,
    /// The endpoints of devices by their addresses; `None` if only the address is known.
    endpoints: HashMap<SocketAddr, Option<String>>,
}

impl Known {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every change leaves the tables consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a device that has proven who it is, or one of its services.
    pub(super) fn add(&self, contact: &Contact) {
        let mut tables = self.tables();
        if tables.names.len() >= KNOWN_MAX || tables.endpoints.len() >= KNOWN_MAX {
            *tables = Tables::default();
        }
        if let Some(name) = &contact.proof.name {
            let ip = contact.address.ip();
            tables.names.insert(name.clone(), ip);
        }
        let endpoint = contact.proof.endpoint.clone();
        tables.endpoints.insert(contact.address, endpoint);
    }

    /// The address of a name that was resolved before.
    fn resolved(&self, uri: &str) -> Option<IpAddr> {
        let name = Contact::provable_name(uri)?.to_ascii_lowercase();
        self.tables().names.get(&name).copied()
    }

    /// The contact of an address in a message of `peer`, which was contacted before.
    pub(super) fn check(
        &self,
        policy: &AddressPolicy,
        uri: &str,
        peer: SocketAddr,
    ) -> Result<Contact, Refusal> {
        let mut contact = match self.resolved(uri) {
            Some(host) => policy.check_resolved(uri, host, peer)?,
            None => policy.check(uri, peer)?,
        };
        let tables = self.tables();
        match contact.scheme {
            Scheme::Http if tables.endpoints.contains_key(&peer) => Err(Refusal::Plain),
            Scheme::Http => Ok(contact),
            Scheme::Https => {
                contact.proof.endpoint = tables.endpoints.get(&contact.address).cloned().flatten();
                Ok(contact)
            }
        }
    }

    /// The contact of an address that was checked before.
    pub(super) fn contact(&self, uri: &str) -> Result<Contact, Refusal> {
        let trusting = AddressPolicy::default();
        let mut contact = match self.resolved(uri) {
            Some(host) => trusting.check_resolved(uri, host, SocketAddr::new(host, 0))?,
            None => Contact::parse(uri, 0)?,
        };
        if contact.scheme == Scheme::Https {
            let tables = self.tables();
            contact.proof.endpoint = tables.endpoints.get(&contact.address).cloned().flatten();
        }
        Ok(contact)
    }
}

impl ClientOptions {
    /// Whether any certificate is trusted.
    pub(super) fn trusts(&self) -> bool {
        self.tls.as_ref().is_some_and(Security::trusts)
    }
}

impl Shared {
    /// The contact of an address that a device, or its announcement, gives.
    pub(super) async fn contact(
        &self,
        uri: &str,
        announcer: Announcer<'_>,
    ) -> Result<Contact, Refusal> {
        let options = &self.options;
        let policy = &options.policy;
        let mut contact = match Contact::provable_name(uri) {
            Some(name) if options.trusts() => {
                let mut refusal = Refusal::Unresolved(name.to_owned());
                let addresses = self.resolver.resolve(name, announcer.from.ip()).await;
                let mut addresses = addresses.into_iter();
                loop {
                    let Some(host) = addresses.next() else {
                        return Err(refusal);
                    };
                    match policy.check_resolved(uri, host, announcer.from) {
                        Ok(contact) => break contact,
                        Err(other) => refusal = other,
                    }
                }
            }
            _ => policy.check(uri, announcer.from)?,
        };
        match contact.scheme {
            Scheme::Http if announcer.is_secured || !options.plain => Err(Refusal::Plain),
            Scheme::Http => Ok(contact),
            Scheme::Https => {
                // Of a device that is known only by its address the endpoint is unknown.
                if !announcer.endpoint.contains("://") {
                    contact.proof.endpoint = Some(announcer.endpoint.to_owned());
                }
                // An announcement alone must not replace what is known of another device.
                if announcer.is_secured {
                    self.known.add(&contact);
                }
                Ok(contact)
            }
        }
    }
}
