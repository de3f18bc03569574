//! Reading the services of a device: GetMetadata of each, WSDL, schemas.
//!
//! Source: DPWS 1.1, section 5. The policy checks every address before it is contacted, against the host that
//! named it.

use std::collections::VecDeque;

use chappe_dpws::Dialect;
use chappe_dpws::metadata::{
    GetMetadata, Hosted, Metadata, WsdlSection, get_metadata, transfer_get,
};
use chappe_identity::{CertificateName, Contact};
use chappe_soap::{EndpointReference, wsdl};

use super::description::exi_schema_of;
use super::documents::{Documents, Kind};
use super::metadata::{GET, MetadataAnswer, deviation_note, request_metadata};
use super::secured::Announcer;
use super::{HostedService, Note, Shared};
use crate::Error;

/// The largest number of documents of one service that are fetched.
const DOCUMENTS_MAX: usize = 32;
/// The largest number of metadata references of one service that are followed, each once. Default 8: one
/// is what the specification needs, and a reference may lead to another.
const REFERENCES_MAX: usize = 8;

/// Reads services and their documents, within the limits.
pub(super) struct Reader<'a> {
    pub(super) shared: &'a Shared,
    /// The device itself: the addresses that it names are checked against its own.
    pub(super) device: Announcer<'a>,
    pub(super) notes: Vec<Note>,
    pub(super) bytes_left: usize,
    pub(super) signer: Option<CertificateName>,
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
    pub(super) async fn reachable(
        &mut self,
        hosted: &Hosted,
    ) -> Option<(EndpointReference, Contact)> {
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

    pub(super) async fn service(
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
}
