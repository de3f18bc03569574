//! Reading a device's description: Get, GetMetadata of each service, WSDL, schemas.
//!
//! Source: DPWS 1.1, sections 4 and 5. The policy checks every address before it is contacted, against
//! the host that named it.

use std::collections::VecDeque;
use std::net::IpAddr;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::Command;
use chappe_dpws::metadata::{
    Deviation, GetMetadata, Hosted, Metadata, WsdlSection, get_metadata, transfer_get,
};
use chappe_identity::{CertificateName, Contact, Refusal, Scheme};
use chappe_soap::{EndpointReference, Envelope, wsdl};
use chappe_transport::Hop;
use tokio::time::timeout;

use super::description::exi_schema_of;
use super::documents::{Documents, Kind, NOTES_MAX};
use super::secured::Announcer;
use super::{Description, DeviceClient, Found, HostedService, Note, Shared};
use crate::Error;

/// The largest number of transport addresses of one device that are tried.
const XADDRS_MAX: usize = 16;
/// The largest number of services of one device that are read.
const SERVICES_MAX: usize = 64;
/// The largest number of documents of one service that are fetched.
const DOCUMENTS_MAX: usize = 32;
/// The largest number of metadata references of one service that are followed, each once. Default 8: one
/// is what the specification needs, and a reference may lead to another.
const REFERENCES_MAX: usize = 8;
/// The operation that may be sent to all known devices at the same time.
pub(super) const GET: &str = "Get";
/// The largest answer to it. Default 256 KiB: the metadata of 64 services take 40.
pub(super) const GET_BYTES: usize = 256 << 10;

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
    let types = relationship.host.map(|host| host.types).unwrap_or_default();
    Ok(Description {
        found: found.clone(),
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
    for xaddr in found.xaddrs.iter().take(XADDRS_MAX) {
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

fn deviation_note(deviation: &Deviation) -> Note {
    Note {
        reason: "odd metadata",
        detail: deviation.to_string(),
        hint: None,
    }
}

/// An answer with metadata.
pub(super) struct MetadataAnswer {
    pub(super) metadata: Metadata,
    pub(super) dialect: Dialect,
    pub(super) deviations: Vec<Deviation>,
    /// The certificate that signed it.
    pub(super) signer: Option<CertificateName>,
}

/// Requests metadata and reads the answer. If earlier answers are signed by `signer`, this one has to be.
pub(super) async fn request_metadata(
    shared: &Shared,
    contact: &Contact,
    request: &Envelope,
    operation: &'static str,
    signer: Option<&CertificateName>,
) -> Result<MetadataAnswer, Error> {
    let http = match operation {
        GET => &shared.small,
        _ => &shared.http,
    };
    let answer = shared.ask(http, contact, request, signer).await?;
    let (envelope, signer) = (answer.envelope, answer.signer);
    // The tree may have 64 MiB: it is read and freed there.
    let reading = http.parsers().run(move || {
        let body = envelope.and_then(|envelope| envelope.body.into_iter().next());
        body.as_ref().and_then(Metadata::from_element)
    });
    let read = reading.await?.ok_or_else(|| Error::Answer {
        operation,
        what: "it has no mex:Metadata".to_owned(),
    });
    let (metadata, dialect, deviations) = read?;
    Ok(MetadataAnswer {
        metadata,
        dialect,
        deviations,
        signer,
    })
}

/// Reads services and their documents, within the limits.
struct Reader<'a> {
    shared: &'a Shared,
    /// The device itself: the addresses that it names are checked against its own.
    device: Announcer<'a>,
    notes: Vec<Note>,
    bytes_left: usize,
    signer: Option<CertificateName>,
}

impl Reader<'_> {
    fn note(&mut self, reason: &'static str, detail: String, hint: Option<String>) {
        self.notes.push(Note {
            reason,
            detail,
            hint,
        });
    }

    /// The first endpoint of a service that may be contacted.
    async fn reachable(&mut self, hosted: &Hosted) -> Option<(EndpointReference, Contact)> {
        for endpoint in &hosted.endpoints {
            match self.shared.contact(&endpoint.address, self.device).await {
                Ok(contact) => return Some((endpoint.clone(), contact)),
                Err(refusal) => {
                    let detail = format!("{}: {refusal}", hosted.service_id);
                    self.note("service address refused", detail, refusal.hint());
                }
            }
        }
        if hosted.endpoints.is_empty() {
            let detail = hosted.service_id.clone();
            self.note("service without address", detail, None);
        }
        None
    }

    async fn service(
        &mut self,
        hosted: &Hosted,
        endpoint: EndpointReference,
        contact: Contact,
        dialect: Dialect,
    ) -> Result<HostedService, Error> {
        let mut documents = Documents {
            bytes_left: self.bytes_left,
            ..Documents::default()
        };
        let request = get_metadata(
            dialect.addressing(),
            &endpoint,
            &GetMetadata::default(),
            self.shared.message_id(),
        );
        let signer = self.signer.clone();
        let asking = request_metadata(
            self.shared,
            &contact,
            &request,
            "GetMetadata",
            signer.as_ref(),
        );
        match asking.await {
            Ok(MetadataAnswer {
                metadata,
                deviations,
                ..
            }) => {
                self.notes.extend(deviations.iter().map(deviation_note));
                documents = self
                    .sections(hosted, documents, &contact, metadata.wsdl, dialect)
                    .await?;
                documents = self.imports(hosted, documents).await?;
            }
            Err(error) => {
                let detail = format!("{}: {error}", hosted.service_id);
                self.note("service has no metadata", detail, error.hint());
                if !is_final(&error) {
                    documents.unread = self.notes.last().cloned();
                }
            }
        }
        self.bytes_left = documents.bytes_left;
        self.notes.append(&mut documents.notes);
        let service = HostedService {
            id: hosted.service_id.clone(),
            types: hosted.types.clone(),
            endpoint,
            contact,
            dialect,
            wsdl: documents.wsdl,
            schemas: documents.schemas,
            exi_schema: exi_schema_of(&documents.read),
            documents: documents.read,
            unread: documents.unread,
            signer,
        };
        if service.documents.is_empty() {
            let hint = "its events are stored as XML; path rules can map them to fields";
            let detail = service.id.clone();
            self.note("service without WSDL", detail, Some(hint.to_owned()));
        }
        Ok(service)
    }

    /// Reads sections with WSDL, and those to which references lead.
    async fn sections(
        &mut self,
        hosted: &Hosted,
        mut documents: Documents,
        contact: &Contact,
        sections: Vec<WsdlSection>,
        dialect: Dialect,
    ) -> Result<Documents, Error> {
        // Each section with the location to which it is relative.
        let mut open = VecDeque::new();
        let add = |open: &mut VecDeque<_>, base: &Contact, sections: Vec<WsdlSection>| {
            open.extend(
                sections
                    .into_iter()
                    .map(|section| (base.to_string(), section)),
            );
        };
        add(&mut open, contact, sections);
        let mut references = Vec::new();
        while let Some((base, section)) = open.pop_front() {
            match section {
                WsdlSection::Inline(element) => {
                    let parsed = self.shared.http.parsers().run(move || {
                        documents.inline(&base, &element);
                        documents
                    });
                    documents = parsed.await?;
                }
                WsdlSection::Location(location) => {
                    documents = self.fetch(Kind::Wsdl, documents, &base, &location).await?;
                }
                WsdlSection::Reference(reference) if references.contains(&reference) => {}
                WsdlSection::Reference(_) if references.len() == REFERENCES_MAX => {
                    let detail = format!("{} has more than {REFERENCES_MAX}", hosted.service_id);
                    documents.note("too many metadata references", detail, None);
                }
                WsdlSection::Reference(reference) => {
                    match self.referenced(&reference, dialect).await {
                        Ok((contact, sections)) => add(&mut open, &contact, sections),
                        Err(error) => {
                            let detail =
                                format!("{} at {}: {error}", hosted.service_id, reference.address);
                            let hint = error.hint();
                            documents.note("metadata reference not read", detail, hint.as_deref());
                            documents.unread_if_wsdl(Kind::Wsdl);
                        }
                    }
                    references.push(reference);
                }
            }
        }
        Ok(documents)
    }

    /// The metadata to which a reference leads, by Get (WS-MetadataExchange 2004/09, MetadataReference):
    /// a WSDL, or metadata with sections.
    async fn referenced(
        &self,
        reference: &EndpointReference,
        dialect: Dialect,
    ) -> Result<(Contact, Vec<WsdlSection>), Error> {
        let address = &reference.address;
        let checked = self.shared.contact(address, self.device).await;
        let contact = checked.map_err(|refusal| Error::Refused {
            address: address.to_string(),
            refusal,
        })?;
        let request = transfer_get(dialect.addressing(), reference, self.shared.message_id());
        let signer = self.signer.as_ref();
        let http = &self.shared.http;
        let answer = self.shared.ask(http, &contact, &request, signer).await?;
        let envelope = answer.envelope;
        let reading = http.parsers().run(move || {
            let body = envelope.and_then(|envelope| envelope.body.into_iter().next())?;
            if body.name.is(wsdl::NAMESPACE, "definitions") {
                return Some(vec![WsdlSection::Inline(body)]);
            }
            let (metadata, ..) = Metadata::from_element(&body)?;
            Some(metadata.wsdl)
        });
        let read = reading.await?.ok_or_else(|| Error::Answer {
            operation: GET,
            what: "it has neither a WSDL nor mex:Metadata".to_owned(),
        });
        Ok((contact, read?))
    }

    /// Fetches the imports of WSDL and schemas, each location once.
    async fn imports(
        &mut self,
        hosted: &Hosted,
        mut documents: Documents,
    ) -> Result<Documents, Error> {
        let base = match documents.read.first() {
            Some(document) => document.location.clone(),
            None => return Ok(documents),
        };
        let mut asked: Vec<String> = Vec::new();
        while asked.len() < DOCUMENTS_MAX {
            let Some((kind, location)) = documents.next_import(&asked) else {
                return Ok(documents);
            };
            asked.push(location.clone());
            documents = self.fetch(kind, documents, &base, &location).await?;
        }
        let detail = format!("{} has more than {DOCUMENTS_MAX}", hosted.service_id);
        documents.note("too many documents", detail, None);
        Ok(documents)
    }

    /// Fetches a document, if the policy allows it, and adds it.
    async fn fetch(
        &mut self,
        kind: Kind,
        mut documents: Documents,
        base: &str,
        location: &str,
    ) -> Result<Documents, Error> {
        let location = join(base, location);
        let reason = "document not read";
        let contact = match self.shared.contact(&location, self.device).await {
            Ok(contact) => contact,
            Err(refusal) => {
                let hint = refusal.hint();
                documents.note(reason, format!("{location}: {refusal}"), hint.as_deref());
                return Ok(documents);
            }
        };
        let answer = match self.shared.http.get(&contact).await {
            Ok(answer) => answer,
            Err(error) => {
                let hint = error.hint();
                documents.note(reason, format!("{location}: {error}"), hint.as_deref());
                documents.unread_if_wsdl(kind);
                return Ok(documents);
            }
        };
        let bytes = self.shared.options.http.body_bytes;
        let parsed = self.shared.http.parsers().run(move || {
            documents.text(kind, &location, &answer.body, bytes);
            documents
        });
        Ok(parsed.await?)
    }
}

/// Whether a service answered that it has no metadata, so that another request is useless.
fn is_final(error: &Error) -> bool {
    use chappe_transport::http::Error as Http;
    match error {
        Error::Http(Http::Fault { fault, .. }) => {
            let subcode = fault.subcode.as_ref();
            subcode.is_some_and(|code| &*code.local == "ActionNotSupported")
        }
        Error::Http(Http::Status { status, .. }) => matches!(status.as_u16(), 404 | 405 | 501),
        _ => false,
    }
}

/// A location relative to a document (RFC 3986, section 5, without dot segments: peers that need
/// them serve absolute locations).
fn join(base: &str, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let path_at = base.find("://").map_or(0, |scheme| {
        let authority = scheme + 3;
        base[authority..]
            .find('/')
            .map_or(base.len(), |slash| authority + slash)
    });
    let (authority, path) = base.split_at(path_at);
    if location.starts_with('/') {
        return format!("{authority}{location}");
    }
    let path = path.split('?').next().unwrap_or_default();
    if location.starts_with('?') {
        return format!("{authority}{path}{location}");
    }
    let directory = path.rfind('/').map_or("/", |slash| &path[..=slash]);
    let location = location.trim_start_matches("./");
    format!("{authority}{directory}{location}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_relative_to_their_document() {
        let base = "http://192.0.2.1:80/a/b?wsdl";
        for (location, joined) in [
            ("http://192.0.2.2/x", "http://192.0.2.2/x"),
            ("/x.xsd", "http://192.0.2.1:80/x.xsd"),
            ("x.xsd", "http://192.0.2.1:80/a/x.xsd"),
            ("./x.xsd", "http://192.0.2.1:80/a/x.xsd"),
            ("?xsd=1", "http://192.0.2.1:80/a/b?xsd=1"),
        ] {
            assert_eq!(join(base, location), joined);
        }
        assert_eq!(join("http://192.0.2.1:80", "x"), "http://192.0.2.1:80/x");
    }

    #[test]
    fn the_sender_is_nearest() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let sender = ip("192.0.2.7");
        assert_eq!(distance(sender, sender), 0);
        assert!(distance(ip("192.0.2.99"), sender) < distance(ip("10.0.0.1"), sender));
        assert!(distance(ip("10.0.0.1"), sender) < distance(ip("fe80::1"), sender));
    }
}
