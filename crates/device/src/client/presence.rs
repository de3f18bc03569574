//! Whether a device is still at its previous address: it is asked there for its metadata.
//!
//! A connection alone is not sufficient: a device that restarts under another endpoint address often listens
//! at the port of its predecessor. The metadata name the endpoint that answers.

use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::metadata::transfer_get;
use chappe_identity::{Contact, Scheme};
use chappe_soap::EndpointReference;
use chappe_transport::http;

use super::liveness::{ProbeResult, contact_of, forget, probe_address};
use super::metadata::{GET, request_metadata};
use super::{Description, DeviceClient, Shared};
use crate::Error;

/// The address and dialect in which a device answered.
#[derive(Debug, Clone)]
pub struct Presence {
    /// The address.
    pub contact: Contact,
    /// The dialect.
    pub dialect: Dialect,
}

impl Description {
    /// The address and dialect in which the device answered.
    #[must_use]
    pub fn presence(&self) -> Presence {
        Presence {
            contact: self.contact.clone(),
            dialect: self.dialect,
        }
    }
}

/// Attempts at one address. Reason: a packet or two may be lost.
const ATTEMPTS_MAX: u32 = 3;
/// The time limit for the metadata. Reason: a device that takes longer is busy, and counts as present.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);

impl DeviceClient {
    /// Whether the device of `endpoint` still answers, at the address where it is known or at
    /// `address`, where it answered last. A device counts as absent only if no connection is accepted
    /// there, or if the answer says that this endpoint is not there. An absent device is forgotten; if
    /// it was known, [`Seen::Gone`](super::Seen::Gone) follows.
    ///
    /// Dialect and network interface are those of `successor`.
    pub async fn is_present(&self, endpoint: &str, address: &str, successor: &Presence) -> bool {
        let shared = &*self.shared;
        let known = contact_of(shared, endpoint);
        let zone = match successor.contact.address {
            std::net::SocketAddr::V6(address) => address.scope_id(),
            std::net::SocketAddr::V4(_) => 0,
        };
        let Ok(mut last) = Contact::parse(address, zone) else {
            return true;
        };
        last.proof.endpoint = Some(endpoint.to_owned());
        let mut contacts = vec![last];
        contacts.extend(known.clone().filter(|known| *known != contacts[0]));
        for contact in &contacts {
            if answers(shared, endpoint, contact, successor.dialect).await {
                return true;
            }
        }
        if contact_of(shared, endpoint) != known {
            // It has announced itself meanwhile.
            return true;
        }
        let reason = "it no longer answers, and a successor has appeared";
        forget(shared, endpoint, reason).await;
        false
    }
}

/// Whether this endpoint answers there; undecidable results count as an answer.
async fn answers(shared: &Shared, endpoint: &str, contact: &Contact, dialect: Dialect) -> bool {
    if contact.scheme == Scheme::Https && !shared.options.trusts() {
        return true;
    }
    let mut silent = 0;
    for _ in 0..ATTEMPTS_MAX {
        match probe_address(contact.address).await {
            ProbeResult::Refused => return false,
            ProbeResult::Unknown => return true,
            ProbeResult::Silent => silent += 1,
            ProbeResult::Listens => match is_there(shared, endpoint, contact, dialect).await {
                Some(is_there) => return is_there,
                None => continue,
            },
        }
    }
    silent < ATTEMPTS_MAX
}

/// Whether the metadata at this address belong to this endpoint; `None` if that remains unknown.
async fn is_there(
    shared: &Shared,
    endpoint: &str,
    contact: &Contact,
    dialect: Dialect,
) -> Option<bool> {
    let to = EndpointReference::new(endpoint.to_owned());
    let version = dialect.addressing();
    let request = transfer_get(version, &to, shared.message_id());
    let signer = shared.table().signer(endpoint);
    let asked = request_metadata(shared, contact, &request, GET, signer.as_ref());
    match tokio::time::timeout(ANSWER_DEADLINE, asked).await.ok()? {
        Ok(answer) => {
            let host = answer.metadata.relationship.and_then(|one| one.host);
            Some(host.is_none_or(|host| *host.endpoint.address == *endpoint))
        }
        Err(Error::Http(http::Error::Fault { fault, .. })) => {
            let unreachable = version.name("DestinationUnreachable");
            (fault.subcode == Some(unreachable)).then_some(false)
        }
        Err(Error::Http(http::Error::Status { status, .. })) => {
            let is_absent = matches!(status.as_u16(), 404 | 410);
            is_absent.then_some(false)
        }
        Err(_) => None,
    }
}
