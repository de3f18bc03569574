//! WSDL 1.1 documents in the registry, and their parts.
//!
//! A document is an entity of kind [`Document`](crate::EntityKind::Document) that holds its bytes exactly. Its
//! parts (services, ports, bindings, port types, operations, messages, elements, types) are IRIs
//! ([`identifier`]) with statements in one vocabulary ([`crate::vocabulary::wsdl`], docs/reference/wsdl.md), so SPARQL and
//! metadata reach them. Port types and bindings become tModels, services and ports become businessServices
//! and bindingTemplates ([`mapping`](self)), all in one batch with the document.
//!
//! Sources: "WSDL 1.1 Element Identifiers" (W3C note, 20 July 2007); "Using WSDL in a UDDI Registry", version
//! 2.0 (OASIS technical note); "Semantic Annotations for WSDL and XML Schema" (W3C Recommendation, 28 August
//! 2007), of which only `modelReference`.
//!
//! Documents are added by a [`Publisher`] and found by an [`Inquiry`]; [`message`] has the SOAP messages. This
//! module fetches nothing: imported documents are given by the caller.
//!
//! ```
//! use chappe_registry::uddi::Publisher;
//! use chappe_registry::wsdl::{FindInterface, NewDocument};
//! use chappe_registry::{Access, MemoryJournal, Principal, Registry};
//!
//! let registry = Registry::open(MemoryJournal::new())?;
//! let mut bits = 0_u128;
//! let mut random = || { bits += 1; bits };
//! let bytes = br#"<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" xmlns:t="urn:clock"
//!     targetNamespace="urn:clock"><message name="Get"/><portType name="Clock"><operation name="Read">
//!     <input message="t:Get"/></operation></portType></definitions>"#;
//! let document = NewDocument::new("http://192.0.2.1/clock?wsdl", *bytes).prepare()?;
//! let mut ada = Publisher::new(&registry, "ada", Access::Public, 0, &mut random);
//! ada.put_documents(&[document], None)?.wait()?;
//! let ask = FindInterface { operation: Some("Read".into()), ..FindInterface::default() };
//! let found = registry.uddi(&Principal::Anonymous).find_interfaces(&ask)?;
//! assert_eq!(found.items[0].iri, "urn:clock#wsdl11.portType(Clock)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytes;
mod find;
mod graph;
pub mod identifier;
mod mapping;
pub mod message;
mod offer;
mod parts;
mod read;
mod store;

use crate::uddi::{Error, ErrorCode, ServiceKey, TModelKey};
#[cfg(doc)]
use crate::uddi::{Inquiry, Publisher};

pub use find::{
    Direction, Exchange, FindInterface, FindOperation, FindServices, Interface, MessagePart,
    Operation, OperationMessage,
};
pub use mapping::{
    HTTP_PROTOCOL, HTTP_TRANSPORT, PORT_TYPE_REFERENCE, PROTOCOL, SOAP_PROTOCOL, TRANSPORT,
    WSDL_TYPES, XML_LOCAL_NAME, XML_NAMESPACE,
};
pub use offer::Offer;
pub use read::{Document, resolve};

/// Maximum size of a document; reason: the largest known description of a device has about 1 MiB, and a batch
/// of changes has at most 4 MiB as a record.
pub const MAX_DOCUMENT_BYTES: usize = 2 << 20;
/// Maximum number of documents in one request, the imported ones included.
pub const MAX_DOCUMENTS: usize = 64;
/// The media type of a document for which none is given.
pub const MEDIA_TYPE: &str = "text/xml";

/// A document to add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewDocument {
    /// The key of its entity, an absolute IRI; absent: the location, else a new `urn:uuid:`.
    pub key: Option<String>,
    /// Where it is, an absolute URL.
    pub location: Option<String>,
    /// Its media type; absent: [`MEDIA_TYPE`].
    pub media_type: Option<String>,
    /// Its bytes, in any encoding.
    pub bytes: Vec<u8>,
}

impl NewDocument {
    /// A document at this URL.
    pub fn new(location: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            location: Some(location.into()),
            bytes: bytes.into(),
            ..Self::default()
        }
    }

    /// Reads the document, before it is added.
    ///
    /// # Errors
    /// `E_messageTooLarge` above [`MAX_DOCUMENT_BYTES`]; `E_valueNotAllowed` if it is not XML, has a document type,
    /// is neither WSDL 1.1 nor an XML schema, or a part of it has no IRI.
    pub fn prepare(self) -> Result<Prepared, Error> {
        let parts = parts::Parts::read(&self.bytes)?;
        Ok(Prepared { new: self, parts })
    }
}

/// A document that was read.
#[derive(Clone, Debug)]
pub struct Prepared {
    new: NewDocument,
    parts: parts::Parts,
}

impl Prepared {
    /// The locations of the documents that it imports or includes, as they stand in it.
    #[must_use]
    pub fn imports(&self) -> &[String] {
        &self.parts.imports
    }

    /// Its location.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.new.location.as_deref()
    }

    /// The key that was asked for.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.new.key.as_deref()
    }

    /// The size of the document in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.new.bytes.len()
    }
}

/// A document that was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedDocument {
    /// The key of its entity.
    pub key: String,
    /// The tModels of its port types and bindings.
    pub tmodels: Vec<TModelKey>,
    /// The services that were saved with it.
    pub services: Vec<ServiceKey>,
}

pub(crate) fn invalid(detail: impl Into<String>) -> Error {
    Error::new(ErrorCode::ValueNotAllowed, detail)
}

pub(crate) fn too_large(detail: impl Into<String>) -> Error {
    Error::new(ErrorCode::MessageTooLarge, detail)
}

pub(crate) fn unknown(key: &str) -> Error {
    let shown: String = key.chars().take(200).collect();
    let detail = format!("there is no document {shown:?}");
    Error::new(ErrorCode::InvalidKeyPassed, detail)
}
