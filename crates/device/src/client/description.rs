//! The description of a device: its metadata, services and schemas.

use std::collections::{HashMap, HashSet};

use chappe_dpws::Dialect;
use chappe_dpws::exi::ServiceSchema;
use chappe_dpws::metadata::{ThisDevice, ThisModel, localized};
use chappe_identity::{CertificateName, Contact};
use chappe_soap::EndpointReference;
use chappe_soap::schema::Schemas;
use chappe_soap::wsdl::Wsdl;
use chappe_xml::Name;

use super::Found;
use super::documents::Documents;
use super::turns::Turn;
use crate::Error;

/// The description of a device.
#[derive(Debug, Clone)]
pub struct Description {
    /// The result of discovery.
    pub found: Found,
    /// The endpoint that its metadata state.
    pub stated_endpoint: Option<String>,
    /// The address at which the device answered.
    pub contact: Contact,
    /// Its dialect.
    pub dialect: Dialect,
    /// The characteristics of the model.
    pub model: ThisModel,
    /// The characteristics of this device.
    pub device: ThisDevice,
    /// Its types, from its metadata.
    pub types: Vec<Name>,
    /// Its services.
    pub services: Vec<HostedService>,
    /// Irregular or missing parts; none of them prevents its use.
    pub notes: Vec<Note>,
    /// The certificate that signed its answer, by subject and issuer; `None` if it is not signed.
    pub signer: Option<CertificateName>,
    pub(super) turn: Option<Turn>,
}

impl Description {
    /// Its friendly name: in English if there is one, else in the first language.
    #[must_use]
    pub fn name(&self) -> &str {
        localized(&self.device.friendly_name, "en").unwrap_or(&self.found.endpoint)
    }

    /// Its endpoint: that by which it was found, or the stated one if only its address was known.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        let found = &self.found;
        let is_address = found.xaddrs.contains(&found.endpoint);
        let stated = self.stated_endpoint.as_deref().filter(|_| is_address);
        stated.unwrap_or(&found.endpoint)
    }

    /// The service with this identifier.
    #[must_use]
    pub fn service(&self, id: &str) -> Option<&HostedService> {
        self.services.iter().find(|service| service.id == id)
    }

    /// The service that sends this event or has the operation with this action.
    #[must_use]
    pub fn service_of(&self, action: &str) -> Option<&HostedService> {
        let knows = |service: &&HostedService| service.wsdl.operation_of(action).is_some();
        self.services.iter().find(knows)
    }
}

/// A service of a device.
#[derive(Debug, Clone)]
pub struct HostedService {
    /// Its identifier in the device (a URI).
    pub id: String,
    /// Its port types.
    pub types: Vec<Name>,
    /// Its endpoint, to which messages are addressed.
    pub endpoint: EndpointReference,
    /// Its network address.
    pub contact: Contact,
    /// Its dialect.
    pub dialect: Dialect,
    /// Its WSDL with imports, without the schemas inside; empty if there is none.
    pub wsdl: Wsdl,
    /// Its schemas with imports.
    pub schemas: Schemas,
    /// The documents as received.
    pub documents: Vec<Document>,
    /// The schema of its messages as EXI, made of the documents.
    pub exi_schema: ServiceSchema,
    /// The reason why its metadata or its WSDL could not be read, if another attempt may succeed.
    pub unread: Option<Note>,
    /// The certificate that has to sign its answers and events, because it signed the device's description.
    pub signer: Option<CertificateName>,
}

impl HostedService {
    /// A copy without the documents, sufficient to call it by action.
    #[must_use]
    pub fn without_documents(&self) -> Self {
        Self {
            id: self.id.clone(),
            types: self.types.clone(),
            endpoint: self.endpoint.clone(),
            contact: self.contact.clone(),
            dialect: self.dialect,
            wsdl: Wsdl::default(),
            schemas: Schemas::default(),
            documents: Vec::new(),
            exi_schema: self.exi_schema.clone(),
            unread: None,
            signer: self.signer.clone(),
        }
    }

    /// A service that no device hosts, such as one of another stack, from its address and its WSDL with
    /// the imported documents. It is called like one of a device.
    ///
    /// # Errors
    /// The address is not one of HTTP, or a document cannot be used.
    pub fn from_documents(address: &str, documents: Vec<Document>) -> Result<Self, Error> {
        let contact = Contact::parse(address, 0);
        let contact = contact.map_err(|refusal| Error::Misuse(format!("{address}: {refusal}")))?;
        let mut read = Documents::of_service();
        for document in documents {
            read.given(&document);
        }
        if let Some(note) = read.notes.first() {
            return Err(Error::Misuse(format!("{}: {}", note.reason, note.detail)));
        }
        let port_types = read.wsdl.port_types.iter();
        Ok(Self {
            id: address.to_owned(),
            types: port_types.map(|port_type| port_type.name.clone()).collect(),
            endpoint: EndpointReference::new(address.to_owned()),
            contact,
            dialect: Dialect::V2009,
            wsdl: read.wsdl,
            schemas: read.schemas,
            exi_schema: exi_schema_of(&read.read),
            documents: read.read,
            unread: None,
            signer: None,
        })
    }

    /// The locations of documents that its documents import, and that are not among them.
    #[must_use]
    pub fn missing_documents(&self) -> Vec<String> {
        let imports = self
            .wsdl
            .imports
            .iter()
            .map(|import| import.location.clone());
        let schemas = self.schemas.missing().into_iter();
        let schemas = schemas.map(|reference| reference.location);
        let known = |location: &String| {
            let mut documents = self.documents.iter();
            documents.any(|document| document.location.ends_with(location.as_str()))
        };
        let locations = imports.chain(schemas).flatten();
        locations.filter(|location| !known(location)).collect()
    }

    /// The actions of its events, from its WSDL.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let mut known = HashSet::new();
        let events = self.wsdl.events().map(|(action, _)| action);
        events
            .filter(|action| known.insert(*action))
            .map(str::to_owned)
            .collect()
    }

    /// The element in events of each action.
    #[must_use]
    pub fn event_elements(&self) -> HashMap<String, Name> {
        let events = self.wsdl.events();
        events
            .filter_map(|(action, element)| Some((action.to_owned(), element?.clone())))
            .collect()
    }
}

/// The schema of messages as EXI that these documents make.
pub(super) fn exi_schema_of(documents: &[Document]) -> ServiceSchema {
    ServiceSchema::new(documents.iter().map(|document| &*document.text))
}

/// A document of a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its location; for an inline document the location of the service.
    pub location: String,
    /// Its text.
    pub text: String,
}

/// An irregular or missing part of a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// A constant short text.
    pub reason: &'static str,
    /// The details.
    pub detail: String,
    /// A remedy, if one is known.
    pub hint: Option<String>,
}
