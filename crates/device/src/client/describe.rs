//! Reading a device's description: Get, GetMetadata of each service, WSDL, schemas.
//!
//! Source: DPWS 1.1, sections 4 and 5. Every address that is followed has been judged by the policy
//! against the host it came from.

use std::net::{IpAddr, SocketAddr};

use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::Command;
use chappe_dpws::metadata::{
    Deviation, GetMetadata, Hosted, Metadata, WsdlSection, get_metadata, transfer_get,
};
use chappe_identity::{Contact, Refusal};
use chappe_soap::schema::Schemas;
use chappe_soap::wsdl::Wsdl;
use chappe_soap::{EndpointReference, Envelope};
use chappe_transport::Hop;
use chappe_xml::{Element, Limits};

use super::{Description, DeviceClient, Document, Found, HostedService, Note, Shared};
use crate::Error;

/// Transport addresses of one device that are tried.
const XADDRS_MAX: usize = 16;
/// Services of one device that are read.
const SERVICES_MAX: usize = 64;
/// Documents of one service that are fetched.
const DOCUMENTS_MAX: usize = 32;

impl DeviceClient {
    /// Reads what a device is: tries its addresses, nearest to the sender first, and asks each
    /// service for its WSDL.
    ///
    /// # Errors
    /// When none of its addresses may be contacted, or answers. The reason is noted as a drop too.
    pub async fn describe(&self, found: &Found) -> Result<Description, Error> {
        let shared = &self.shared;
        let described = describe(shared, found).await;
        match &described {
            Ok(description) => {
                if let Some(entry) = shared.table().get_mut(&found.endpoint) {
                    entry.contact = Some(description.contact.clone());
                    entry.missed = 0;
                }
                let endpoint = found.endpoint.clone().into();
                shared.order(Command::Confirm { endpoint }).await?;
            }
            Err(error) => shared.note(Hop::Metadata, &found.endpoint, error),
        }
        described
    }
}

async fn describe(shared: &Shared, found: &Found) -> Result<Description, Error> {
    let mut notes = Vec::new();
    let mut failure = None;
    let mut answered = None;
    for contact in contacts(shared, found, &mut notes)? {
        match get(shared, found, &contact, &mut notes).await {
            Ok(metadata) => {
                answered = Some((contact, metadata));
                break;
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
    let Some((contact, (metadata, dialect))) = answered else {
        let error = failure.unwrap_or(Error::NoAddress);
        if found.is_dpws() || found.types.is_empty() {
            return Err(error);
        }
        return Err(Error::NotDpws(Box::new(error)));
    };
    let relationship = metadata.relationship.unwrap_or_default();
    let mut reader = Reader {
        shared,
        device: contact.address,
        notes,
        bytes_left: shared.options.description_bytes,
    };
    let mut services = Vec::new();
    for hosted in relationship.hosted.iter().take(SERVICES_MAX) {
        if let Some((endpoint, contact)) = reader.reachable(hosted) {
            let service = reader.service(hosted, endpoint, contact, dialect).await;
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
        notes: reader.notes,
    })
}

/// The addresses that may be contacted, nearest to the sender first.
fn contacts(shared: &Shared, found: &Found, notes: &mut Vec<Note>) -> Result<Vec<Contact>, Error> {
    let mut allowed = Vec::new();
    let mut refused: Option<(String, Refusal)> = None;
    for xaddr in found.xaddrs.iter().take(XADDRS_MAX) {
        match shared.options.policy.check(xaddr, found.from) {
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
    let sender = found.from.ip();
    allowed.sort_by_key(|contact| distance(contact.address.ip(), sender));
    match refused {
        _ if !allowed.is_empty() => Ok(allowed),
        Some((address, refusal)) => Err(Error::Refused { address, refusal }),
        None => Err(Error::NoAddress),
    }
}

/// Bits in which two addresses differ, counted from the first difference; families apart are far.
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
) -> Result<(Metadata, Dialect), Error> {
    let question = "Get";
    let version = found.dialect.addressing();
    let to = EndpointReference::new(found.endpoint.clone());
    let request = transfer_get(version, &to, shared.message_id());
    let (metadata, dialect, deviations) = ask(shared, contact, &request, question).await?;
    if metadata.this_model.is_none() && metadata.this_device.is_none() {
        let what = "neither ThisModel nor ThisDevice in it".to_owned();
        return Err(Error::Answer { question, what });
    }
    notes.extend(deviations.iter().map(odd));
    Ok((metadata, dialect))
}

fn odd(deviation: &Deviation) -> Note {
    Note {
        reason: "odd metadata",
        detail: deviation.to_string(),
        hint: None,
    }
}

/// Asks for metadata and reads the answer.
async fn ask(
    shared: &Shared,
    contact: &Contact,
    request: &Envelope,
    question: &'static str,
) -> Result<(Metadata, Dialect, Vec<Deviation>), Error> {
    let answer = shared.http.post_soap(contact, request).await?;
    let body = answer.and_then(|envelope| envelope.body.into_iter().next());
    let read = body.as_ref().and_then(Metadata::from_element);
    read.ok_or_else(|| Error::Answer {
        question,
        what: "no mex:Metadata in it".to_owned(),
    })
}

/// Reads services and follows their documents, as far as the limits go.
struct Reader<'a> {
    shared: &'a Shared,
    /// The device itself, whose word on addresses is judged.
    device: SocketAddr,
    notes: Vec<Note>,
    bytes_left: usize,
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
    fn reachable(&mut self, hosted: &Hosted) -> Option<(EndpointReference, Contact)> {
        for endpoint in &hosted.endpoints {
            match self
                .shared
                .options
                .policy
                .check(&endpoint.address, self.device)
            {
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
    ) -> HostedService {
        let mut service = HostedService {
            id: hosted.service_id.clone(),
            types: hosted.types.clone(),
            endpoint,
            contact,
            dialect,
            wsdl: Wsdl::default(),
            schemas: Schemas::default(),
            documents: Vec::new(),
        };
        let request = get_metadata(
            dialect.addressing(),
            &service.endpoint,
            &GetMetadata::default(),
            self.shared.message_id(),
        );
        match ask(self.shared, &service.contact, &request, "GetMetadata").await {
            Ok((metadata, _, deviations)) => {
                self.notes.extend(deviations.iter().map(odd));
                for section in metadata.wsdl {
                    self.section(&mut service, section).await;
                }
                self.imports(&mut service).await;
            }
            Err(error) => {
                let detail = format!("{}: {error}", service.id);
                self.note("service tells no metadata", detail, error.hint());
            }
        }
        if service.documents.is_empty() {
            let hint = "its events are kept as XML; path rules can make fields of them";
            let detail = service.id.clone();
            self.note("service without WSDL", detail, Some(hint.to_owned()));
        }
        service
    }

    async fn section(&mut self, service: &mut HostedService, section: WsdlSection) {
        match section {
            WsdlSection::Inline(element) => {
                let location = service.contact.to_string();
                let text = element.to_text();
                self.wsdl(service, &location, &element, text);
            }
            WsdlSection::Location(location) => {
                let base = service.contact.to_string();
                if let Some((location, element, text)) = self.fetch(&base, &location).await {
                    self.wsdl(service, &location, &element, text);
                }
            }
            WsdlSection::Reference(reference) => {
                let detail = format!("{} at {}", service.id, reference.address);
                self.note("WSDL by reference is not read", detail, None);
            }
        }
    }

    /// Takes a WSDL document with the schemas in it.
    fn wsdl(&mut self, service: &mut HostedService, location: &str, root: &Element, text: String) {
        match Wsdl::from_element(root) {
            Ok(wsdl) => {
                for schema in &wsdl.schemas {
                    self.schema(service, location, schema);
                }
                if service.documents.is_empty() {
                    service.wsdl = wsdl;
                } else {
                    service.wsdl.merge(wsdl);
                }
                let location = location.to_owned();
                service.documents.push(Document { location, text });
            }
            Err(error) => self.note("unusable WSDL", format!("{location}: {error}"), None),
        }
    }

    fn schema(&mut self, service: &mut HostedService, location: &str, root: &Element) {
        if let Err(error) = service.schemas.add(location, root) {
            self.note("unusable schema", format!("{location}: {error}"), None);
        }
    }

    /// Follows what WSDL and schemas import, each location once.
    async fn imports(&mut self, service: &mut HostedService) {
        let base = match service.documents.first() {
            Some(document) => document.location.clone(),
            None => return,
        };
        let mut asked: Vec<String> = Vec::new();
        while asked.len() < DOCUMENTS_MAX {
            let wsdl = service.wsdl.imports.iter();
            let wsdl = wsdl.filter_map(|import| Some((true, import.location.clone()?)));
            let schemas = service.schemas.missing().into_iter();
            let schemas = schemas.filter_map(|reference| Some((false, reference.location?)));
            let next = wsdl
                .chain(schemas)
                .find(|(_, location)| !asked.contains(location));
            let Some((is_wsdl, location)) = next else {
                return;
            };
            asked.push(location.clone());
            let Some((at, element, text)) = self.fetch(&base, &location).await else {
                continue;
            };
            if is_wsdl {
                self.wsdl(service, &at, &element, text);
            } else {
                self.schema(service, &at, &element);
                service.documents.push(Document { location: at, text });
            }
        }
        let detail = format!("{} has more than {DOCUMENTS_MAX}", service.id);
        self.note("too many documents", detail, None);
    }

    /// Gets a document, if it may be got and is XML.
    async fn fetch(&mut self, base: &str, location: &str) -> Option<(String, Element, String)> {
        let location = join(base, location);
        let reason = "document not read";
        let contact = match self.shared.options.policy.check(&location, self.device) {
            Ok(contact) => contact,
            Err(refusal) => {
                let detail = format!("{location}: {refusal}");
                self.note(reason, detail, refusal.hint());
                return None;
            }
        };
        let answer = match self.shared.http.get(&contact).await {
            Ok(answer) => answer,
            Err(error) => {
                self.note(reason, format!("{location}: {error}"), error.hint());
                return None;
            }
        };
        let Some(left) = self.bytes_left.checked_sub(answer.body.len()) else {
            let hint = Some("raise the limit of description bytes".to_owned());
            self.note("description too large", location, hint);
            return None;
        };
        self.bytes_left = left;
        let limits = Limits {
            bytes: self.shared.options.http.body_bytes,
            ..Limits::default()
        };
        match Element::parse_within(&answer.body, limits) {
            Ok(element) => {
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                Some((location, element, text))
            }
            Err(error) => {
                self.note(reason, format!("{location}: {error}"), None);
                None
            }
        }
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
