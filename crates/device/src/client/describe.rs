//! Reading a device's description: Get, then its services.
//!
//! Source: DPWS 1.1, sections 4 and 5. The policy checks every address before it is contacted, against
//! the host that named it.

use std::net::IpAddr;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::Command;
use chappe_dpws::metadata::{Metadata, transfer_get};
use chappe_identity::{CertificateName, Contact, Refusal, Scheme};
use chappe_soap::EndpointReference;
use chappe_transport::Hop;
use tokio::time::timeout;

use super::documents::NOTES_MAX;
use super::metadata::{GET, MetadataAnswer, deviation_note, request_metadata};
use super::secured::Announcer;
use super::services::Reader;
use super::{Description, DeviceClient, Found, Note, Shared};
use crate::Error;

/// The largest number of transport addresses of one device that are tried.
const XADDRS_MAX: usize = 16;
/// The largest number of host names among them. Reason: a device has one or two, and each may take as long as
/// its resolution.
const NAMES_MAX: usize = 4;
/// The largest number of services of one device that are read.
const SERVICES_MAX: usize = 64;

impl DeviceClient {
    /// Reads the description of a device: tries its addresses, nearest to the sender first, and asks
    /// each service for its WSDL.
    ///
    /// # Errors
    /// None of its addresses may be contacted or answers. The reason is also recorded as a drop.
    pub async fn describe(&self, found: &Found) -> Result<Description, Error> {
        let shared = &self.shared;
        let described = describe(shared, found).await;
        match &described {
            Ok(description) => {
                let contact = &description.contact;
                shared.table().set_contact(&found.endpoint, contact);
                let signer = description.signer.clone();
                shared.table().set_signer(&found.endpoint, signer);
                let endpoint = found.endpoint.clone().into();
                shared.command(Command::Confirm { endpoint }).await?;
            }
            Err(error) => shared.note(Hop::Metadata, &found.endpoint, error),
        }
        described
    }
}

/// The device has [`ClientOptions::description_deadline`](super::ClientOptions::description_deadline) to
/// answer Get, once it has a turn to be asked, and the same time again to describe its services, once it
/// has a turn for that.
async fn describe(shared: &Shared, found: &Found) -> Result<Description, Error> {
    let deadline = shared.options.description_deadline;
    let slow = |_| Error::Slow(deadline);
    let asking = shared.turns.ask(found.from.ip()).await;
    let answered = timeout(deadline, ask_addresses(shared, found)).await;
    drop(asking);
    let answered = answered.map_err(slow)??;
    let turn = shared.turns.wait(answered.contact.address.ip()).await;
    let described = timeout(deadline, describe_services(shared, found, answered)).await;
    let mut description = described.map_err(slow)??;
    description.turn = turn;
    Ok(description)
}

/// The answer of a device to Get.
struct GetAnswer {
    contact: Contact,
    metadata: Metadata,
    dialect: Dialect,
    notes: Vec<Note>,
    signer: Option<CertificateName>,
}

async fn ask_addresses(shared: &Shared, found: &Found) -> Result<GetAnswer, Error> {
    let mut notes = Vec::new();
    let mut failure = None;
    for contact in contacts(shared, found, &mut notes).await? {
        match get(shared, found, &contact, &mut notes).await {
            Ok((metadata, dialect, signer)) => {
                if contact.scheme == Scheme::Https {
                    shared.known.add(&contact);
                }
                return Ok(GetAnswer {
                    contact,
                    metadata,
                    dialect,
                    notes,
                    signer,
                });
            }
            Err(error) => {
                notes.push(Note {
                    reason: "address does not answer",
                    detail: error.to_string(),
                    hint: error.hint(),
                });
                failure = Some(error);
            }
        }
    }
    let error = failure.unwrap_or(Error::NoAddress);
    if found.is_dpws() || found.types.is_empty() {
        return Err(error);
    }
    Err(Error::NotDpws(Box::new(error)))
}

async fn describe_services(
    shared: &Shared,
    found: &Found,
    answered: GetAnswer,
) -> Result<Description, Error> {
    let GetAnswer {
        contact,
        metadata,
        dialect,
        notes,
        signer,
    } = answered;
    let relationship = metadata.relationship.unwrap_or_default();
    let mut reader = Reader {
        shared,
        device: Announcer {
            from: contact.address,
            endpoint: &found.endpoint,
            is_secured: contact.scheme == Scheme::Https,
        },
        notes,
        bytes_left: shared.options.description_bytes,
        signer: signer.clone(),
    };
    let mut services = Vec::new();
    for hosted in relationship.hosted.iter().take(SERVICES_MAX) {
        if let Some((endpoint, contact)) = reader.reachable(hosted).await {
            let service = reader.service(hosted, endpoint, contact, dialect).await?;
            services.push(service);
        }
    }
    let host = relationship.host;
    let stated_endpoint = host.as_ref().map(|host| host.endpoint.address.to_string());
    let types = host.map(|host| host.types).unwrap_or_default();
    Ok(Description {
        found: found.clone(),
        stated_endpoint,
        contact,
        dialect,
        model: metadata.this_model.unwrap_or_default(),
        device: metadata.this_device.unwrap_or_default(),
        types: if types.is_empty() {
            found.types.clone()
        } else {
            types
        },
        services,
        notes: {
            reader.notes.truncate(NOTES_MAX);
            reader.notes
        },
        turn: None,
        signer,
    })
}

/// The addresses that may be contacted, nearest to the sender first. Those without TLS are left out if others are
/// there and any certificate is trusted.
async fn contacts(
    shared: &Shared,
    found: &Found,
    notes: &mut Vec<Note>,
) -> Result<Vec<Contact>, Error> {
    let announcer = Announcer {
        from: found.from,
        endpoint: &found.endpoint,
        is_secured: false,
    };
    let mut allowed = Vec::new();
    let mut refused: Option<(String, Refusal)> = None;
    let mut names = 0;
    for xaddr in found.xaddrs.iter().take(XADDRS_MAX) {
        let is_name = Contact::provable_name(xaddr).is_some();
        names += usize::from(is_name);
        if is_name && names > NAMES_MAX {
            notes.push(Note {
                reason: "address refused",
                detail: format!("{xaddr}: more than {NAMES_MAX} host names"),
                hint: None,
            });
            continue;
        }
        match shared.contact(xaddr, announcer).await {
            Ok(contact) => allowed.push(contact),
            Err(refusal) => {
                notes.push(Note {
                    reason: "address refused",
                    detail: format!("{xaddr}: {refusal}"),
                    hint: refusal.hint(),
                });
                refused.get_or_insert((xaddr.clone(), refusal));
            }
        }
    }
    let is_secured = |contact: &Contact| contact.scheme == Scheme::Https;
    if shared.options.trusts() && allowed.iter().any(is_secured) {
        allowed.retain(is_secured);
    }
    let sender = found.from.ip();
    allowed.sort_by_key(|contact| distance(contact.address.ip(), sender));
    match refused {
        _ if !allowed.is_empty() => Ok(allowed),
        Some((address, refusal)) => Err(Error::Refused { address, refusal }),
        None => Err(Error::NoAddress),
    }
}

/// The number of bits from the first difference of two addresses; the maximum across families.
fn distance(one: IpAddr, other: IpAddr) -> u32 {
    match (one.to_canonical(), other.to_canonical()) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            32 - (one.to_bits() ^ other.to_bits()).leading_zeros()
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            128 - (one.to_bits() ^ other.to_bits()).leading_zeros()
        }
        _ => u32::MAX,
    }
}

async fn get(
    shared: &Shared,
    found: &Found,
    contact: &Contact,
    notes: &mut Vec<Note>,
) -> Result<(Metadata, Dialect, Option<CertificateName>), Error> {
    let operation = GET;
    let version = found.dialect.addressing();
    let to = EndpointReference::new(found.endpoint.clone());
    let request = transfer_get(version, &to, shared.message_id());
    let known = shared.table().signer(&found.endpoint);
    let answered = request_metadata(shared, contact, &request, operation, known.as_ref()).await?;
    let MetadataAnswer {
        metadata,
        dialect,
        deviations,
        signer,
    } = answered;
    if metadata.this_model.is_none() && metadata.this_device.is_none() {
        let what = "it has neither ThisModel nor ThisDevice".to_owned();
        return Err(Error::Answer { operation, what });
    }
    notes.extend(deviations.iter().map(deviation_note));
    Ok((metadata, dialect, signer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_nearest() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let sender = ip("192.0.2.7");
        assert_eq!(distance(sender, sender), 0);
        assert!(distance(ip("192.0.2.99"), sender) < distance(ip("10.0.0.1"), sender));
        assert!(distance(ip("10.0.0.1"), sender) < distance(ip("fe80::1"), sender));
    }
}
