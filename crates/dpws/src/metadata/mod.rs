//! What a device says of itself: model, device, host and hosted services, WSDL.
//!
//! [`Metadata`] is read and written in both dialects; [`transfer_get`] and [`GetMetadata`] ask for
//! it. Reading is tolerant: what a device does wrong is a [`Deviation`], not an error, so that the
//! device is usable and the deviation can be shown.
//!
//! Sources: DPWS 1.1 (OASIS, 1 July 2009), sections 4.1 to 4.4 and appendix B; WS-MetadataExchange
//! (September 2004) as the profile uses it; WS-Transfer (September 2004), Get.

mod exchange;
mod read;
mod write;

use std::fmt;

use chappe_soap::EndpointReference;
use chappe_xml::{Element, Name};

use crate::profile::{MAX_FIELD_SIZE, MAX_URI_SIZE};

pub use exchange::{GetMetadata, get_metadata, transfer_get, transfer_get_response};

/// The dialect of WSDL in metadata sections; also read without the last slash, as some write it.
pub const WSDL_DIALECT: &str = "http://schemas.xmlsoap.org/wsdl/";
/// The action of a WS-Transfer Get.
pub const GET_ACTION: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get";
/// The action of its answer.
pub const GET_RESPONSE_ACTION: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer/GetResponse";
/// The action of a GetMetadata request.
pub const GET_METADATA_ACTION: &str =
    "http://schemas.xmlsoap.org/ws/2004/09/mex/GetMetadata/Request";
/// The action of its answer.
pub const GET_METADATA_RESPONSE_ACTION: &str =
    "http://schemas.xmlsoap.org/ws/2004/09/mex/GetMetadata/Response";

/// All that a device or a hosted service says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// What all devices of the model have in common.
    pub this_model: Option<ThisModel>,
    /// What this device has alone.
    pub this_device: Option<ThisDevice>,
    /// The device and its services.
    pub relationship: Option<Relationship>,
    /// Where the WSDL is, or itself.
    pub wsdl: Vec<WsdlSection>,
    /// Sections of other dialects.
    pub other: Vec<OtherSection>,
}

/// Text in one language.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LocalizedString {
    /// The text.
    pub text: String,
    /// The language (`xml:lang`, RFC 4646), if said.
    pub language: Option<String>,
}

impl From<&str> for LocalizedString {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            language: None,
        }
    }
}

/// The text for a reader of `language`: that language, else without language, else the first.
#[must_use]
pub fn localized<'a>(texts: &'a [LocalizedString], language: &str) -> Option<&'a str> {
    let speaks = |text: &&LocalizedString| {
        let own = text.language.as_deref().unwrap_or_default();
        let primary = own.split('-').next().unwrap_or_default();
        !own.is_empty() && primary.eq_ignore_ascii_case(language)
    };
    let found = texts.iter().find(speaks);
    let found = found.or_else(|| texts.iter().find(|text| text.language.is_none()));
    found
        .or_else(|| texts.first())
        .map(|text| text.text.as_str())
}

/// What all devices of a model have in common (DPWS 1.1, section 4.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThisModel {
    /// Who makes it; at least one.
    pub manufacturer: Vec<LocalizedString>,
    /// Its web site.
    pub manufacturer_url: Option<String>,
    /// What it is called; at least one.
    pub model_name: Vec<LocalizedString>,
    /// The model's number.
    pub model_number: Option<String>,
    /// A page about the model.
    pub model_url: Option<String>,
    /// A page for people, of the device.
    pub presentation_url: Option<String>,
    /// Elements of other namespaces.
    pub extensions: Vec<Element>,
}

/// What a device has alone (DPWS 1.1, section 4.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThisDevice {
    /// What its users call it; at least one.
    pub friendly_name: Vec<LocalizedString>,
    /// The version of its software.
    pub firmware_version: Option<String>,
    /// Its serial number.
    pub serial_number: Option<String>,
    /// Elements of other namespaces.
    pub extensions: Vec<Element>,
}

/// A device and its services (DPWS 1.1, section 4.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relationship {
    /// The device.
    pub host: Option<Host>,
    /// The services.
    pub hosted: Vec<Hosted>,
}

/// The device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// The stable endpoint, as a rule `urn:uuid:…`.
    pub endpoint: EndpointReference,
    /// What it implements.
    pub types: Vec<Name>,
}

/// A service of the device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hosted {
    /// Where it is reached; one for each way.
    pub endpoints: Vec<EndpointReference>,
    /// Its port types.
    pub types: Vec<Name>,
    /// Unique in the device (a URI).
    pub service_id: String,
}

/// WSDL in metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WsdlSection {
    /// To be fetched by HTTP GET.
    Location(String),
    /// To be asked of an endpoint by GetMetadata or Get.
    Reference(EndpointReference),
    /// Here.
    Inline(Element),
}

/// A section of another dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherSection {
    /// The dialect (a URI).
    pub dialect: String,
    /// Which of several, a URI.
    pub identifier: Option<String>,
    /// The content, if it is an element here.
    pub content: Option<Element>,
}

/// What a device does other than the profile says, and what was made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deviation {
    /// A field has as many characters as, or more than, [`MAX_FIELD_SIZE`].
    FieldTooLong {
        /// The element.
        field: &'static str,
        /// Its length in characters.
        length: usize,
    },
    /// A URI has as many octets as, or more than, [`MAX_URI_SIZE`].
    UriTooLong {
        /// The element.
        field: &'static str,
        /// Its length in octets.
        length: usize,
    },
    /// A required element is missing or empty.
    Missing(&'static str),
    /// An element that may stand once stands more often; the first counts.
    Repeated(&'static str),
    /// A type whose prefix is not bound; it is left out.
    UnboundType(String),
    /// More elements than are kept; the others are left out.
    TooMany(&'static str),
    /// An element lacks what makes it readable; it is left out.
    Unreadable(String),
    /// The sections speak the namespaces of both dialects.
    MixedDialects,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FieldTooLong { field, length } => {
                write!(
                    f,
                    "{field} has {length} characters, not fewer than {MAX_FIELD_SIZE}"
                )
            }
            Self::UriTooLong { field, length } => {
                write!(
                    f,
                    "{field} has {length} octets, not fewer than {MAX_URI_SIZE}"
                )
            }
            Self::Missing(field) => write!(f, "{field} is missing"),
            Self::Repeated(field) => write!(f, "{field} stands more than once"),
            Self::UnboundType(text) => write!(f, "the prefix of type {text:?} is not bound"),
            Self::TooMany(field) => write!(f, "too many {field}"),
            Self::Unreadable(what) => write!(f, "{what} is not readable"),
            Self::MixedDialects => f.write_str("names of both DPWS dialects are mixed"),
        }
    }
}

impl Metadata {
    /// Whatever of the content breaks the profile; for a device's own metadata and a read one's.
    #[must_use]
    pub fn deviations(&self) -> Vec<Deviation> {
        let mut found = Vec::new();
        if let Some(model) = &self.this_model {
            texts(&mut found, "Manufacturer", &model.manufacturer);
            texts(&mut found, "ModelName", &model.model_name);
            field(&mut found, "ModelNumber", model.model_number.as_deref());
            uri(
                &mut found,
                "ManufacturerUrl",
                model.manufacturer_url.as_deref(),
            );
            uri(&mut found, "ModelUrl", model.model_url.as_deref());
            uri(
                &mut found,
                "PresentationUrl",
                model.presentation_url.as_deref(),
            );
        }
        if let Some(device) = &self.this_device {
            texts(&mut found, "FriendlyName", &device.friendly_name);
            field(
                &mut found,
                "FirmwareVersion",
                device.firmware_version.as_deref(),
            );
            field(&mut found, "SerialNumber", device.serial_number.as_deref());
        }
        if let Some(relationship) = &self.relationship {
            match &relationship.host {
                Some(host) => uri(&mut found, "Host", Some(&host.endpoint.address)),
                None => found.push(Deviation::Missing("Host")),
            }
            for hosted in &relationship.hosted {
                if hosted.endpoints.is_empty() {
                    found.push(Deviation::Missing("EndpointReference"));
                }
                if hosted.types.is_empty() {
                    found.push(Deviation::Missing("Types"));
                }
                if hosted.service_id.is_empty() {
                    found.push(Deviation::Missing("ServiceId"));
                }
                uri(&mut found, "ServiceId", Some(&hosted.service_id));
                for endpoint in &hosted.endpoints {
                    uri(&mut found, "EndpointReference", Some(&endpoint.address));
                }
            }
        }
        found
    }
}

fn texts(found: &mut Vec<Deviation>, name: &'static str, texts: &[LocalizedString]) {
    if texts.iter().all(|text| text.text.is_empty()) {
        found.push(Deviation::Missing(name));
    }
    for text in texts {
        field(found, name, Some(&text.text));
    }
}

fn field(found: &mut Vec<Deviation>, field: &'static str, text: Option<&str>) {
    let length = text.map_or(0, |text| text.chars().count());
    if length >= MAX_FIELD_SIZE {
        found.push(Deviation::FieldTooLong { field, length });
    }
}

fn uri(found: &mut Vec<Deviation>, field: &'static str, text: Option<&str>) {
    let length = text.map_or(0, str::len);
    if length >= MAX_URI_SIZE {
        found.push(Deviation::UriTooLong { field, length });
    }
}
