//! Device descriptions: model, device, host and hosted services, WSDL.
//!
//! [`Metadata`] converts from and to XML in both dialects; [`transfer_get`] and [`GetMetadata`]
//! request it. Reading is tolerant: a device's violation of the profile is reported as
//! [`Deviation`] instead of an error, so that the device remains usable.
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

/// The dialect of WSDL in metadata sections; also accepted without the trailing slash.
pub const WSDL_DIALECT: &str = "http://schemas.xmlsoap.org/wsdl/";
/// The action of a WS-Transfer Get.
pub const GET_ACTION: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get";
/// The action of the answer to Get.
pub const GET_RESPONSE_ACTION: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer/GetResponse";
/// The action of a GetMetadata request.
pub const GET_METADATA_ACTION: &str =
    "http://schemas.xmlsoap.org/ws/2004/09/mex/GetMetadata/Request";
/// The action of the answer to GetMetadata.
pub const GET_METADATA_RESPONSE_ACTION: &str =
    "http://schemas.xmlsoap.org/ws/2004/09/mex/GetMetadata/Response";

/// The metadata of a device or hosted service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Properties of the model.
    pub this_model: Option<ThisModel>,
    /// Properties of the individual device.
    pub this_device: Option<ThisDevice>,
    /// The device and its services.
    pub relationship: Option<Relationship>,
    /// The WSDL documents or their locations.
    pub wsdl: Vec<WsdlSection>,
    /// Sections of other dialects.
    pub other: Vec<OtherSection>,
}

/// Text in one language.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LocalizedString {
    /// The text.
    pub text: String,
    /// The language (`xml:lang`, RFC 4646), if given.
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

/// Selects the text in `language`, else the text without language, else the first.
#[must_use]
pub fn localized<'a>(texts: &'a [LocalizedString], language: &str) -> Option<&'a str> {
    let has_language = |text: &&LocalizedString| {
        let tag = text.language.as_deref().unwrap_or_default();
        let primary = tag.split('-').next().unwrap_or_default();
        !tag.is_empty() && primary.eq_ignore_ascii_case(language)
    };
    let deviations = texts.iter().find(has_language);
    let deviations = deviations.or_else(|| texts.iter().find(|text| text.language.is_none()));
    deviations
        .or_else(|| texts.first())
        .map(|text| text.text.as_str())
}

/// Properties common to all devices of a model (DPWS 1.1, section 4.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThisModel {
    /// The manufacturer; at least one entry.
    pub manufacturer: Vec<LocalizedString>,
    /// The manufacturer's web site.
    pub manufacturer_url: Option<String>,
    /// The model's name; at least one entry.
    pub model_name: Vec<LocalizedString>,
    /// The model's number.
    pub model_number: Option<String>,
    /// A page about the model.
    pub model_url: Option<String>,
    /// The device's page for people.
    pub presentation_url: Option<String>,
    /// Elements of other namespaces.
    pub extensions: Vec<Element>,
}

/// Properties of an individual device (DPWS 1.1, section 4.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThisDevice {
    /// The device's name for its users; at least one entry.
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
    /// The stable endpoint, usually `urn:uuid:…`.
    pub endpoint: EndpointReference,
    /// The types that it implements.
    pub types: Vec<Name>,
}

/// A service of the device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hosted {
    /// The addresses of the service, one for each transport.
    pub endpoints: Vec<EndpointReference>,
    /// Its port types.
    pub types: Vec<Name>,
    /// The identifier, unique in the device (a URI).
    pub service_id: String,
}

/// WSDL in metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WsdlSection {
    /// A location for HTTP GET.
    Location(String),
    /// An endpoint for GetMetadata or Get.
    Reference(EndpointReference),
    /// The document.
    Inline(Element),
}

/// A section of another dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherSection {
    /// The dialect (a URI).
    pub dialect: String,
    /// The identifier (a URI), to distinguish several sections.
    pub identifier: Option<String>,
    /// The content, if it is an inline element.
    pub content: Option<Element>,
}

/// A device's violation of the profile, and how the reader treats it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deviation {
    /// A field reaches or exceeds [`MAX_FIELD_SIZE`] characters.
    FieldTooLong {
        /// The element.
        field: &'static str,
        /// Its length in characters.
        length: usize,
    },
    /// A URI reaches or exceeds [`MAX_URI_SIZE`] octets.
    UriTooLong {
        /// The element.
        field: &'static str,
        /// Its length in octets.
        length: usize,
    },
    /// A required element is missing or empty.
    Missing(&'static str),
    /// An element is repeated that must occur once; the first counts.
    Repeated(&'static str),
    /// The prefix of a type is undeclared; the type is ignored.
    UnboundType(String),
    /// Too many elements; the rest is ignored.
    TooMany(&'static str),
    /// An element is invalid and ignored.
    Unreadable(String),
    /// The sections use the namespaces of both dialects.
    MixedDialects,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FieldTooLong { field, length } => {
                write!(
                    f,
                    "{field} has {length} characters; the limit is {}",
                    MAX_FIELD_SIZE - 1
                )
            }
            Self::UriTooLong { field, length } => {
                write!(
                    f,
                    "{field} has {length} octets; the limit is {}",
                    MAX_URI_SIZE - 1
                )
            }
            Self::Missing(field) => write!(f, "{field} is missing"),
            Self::Repeated(field) => write!(f, "{field} occurs more than once"),
            Self::UnboundType(text) => write!(f, "the prefix of type {text:?} is undeclared"),
            Self::TooMany(field) => write!(f, "too many {field} elements"),
            Self::Unreadable(element) => write!(f, "{element} is invalid"),
            Self::MixedDialects => f.write_str("the sections mix both DPWS dialects"),
        }
    }
}

impl Metadata {
    /// Violations of the profile in these metadata.
    #[must_use]
    pub fn deviations(&self) -> Vec<Deviation> {
        let mut deviations = Vec::new();
        if let Some(model) = &self.this_model {
            texts(&mut deviations, "Manufacturer", &model.manufacturer);
            texts(&mut deviations, "ModelName", &model.model_name);
            field(
                &mut deviations,
                "ModelNumber",
                model.model_number.as_deref(),
            );
            uri(
                &mut deviations,
                "ManufacturerUrl",
                model.manufacturer_url.as_deref(),
            );
            uri(&mut deviations, "ModelUrl", model.model_url.as_deref());
            uri(
                &mut deviations,
                "PresentationUrl",
                model.presentation_url.as_deref(),
            );
        }
        if let Some(device) = &self.this_device {
            texts(&mut deviations, "FriendlyName", &device.friendly_name);
            field(
                &mut deviations,
                "FirmwareVersion",
                device.firmware_version.as_deref(),
            );
            field(
                &mut deviations,
                "SerialNumber",
                device.serial_number.as_deref(),
            );
        }
        if let Some(relationship) = &self.relationship {
            match &relationship.host {
                Some(host) => uri(&mut deviations, "Host", Some(&host.endpoint.address)),
                None => deviations.push(Deviation::Missing("Host")),
            }
            for hosted in &relationship.hosted {
                if hosted.endpoints.is_empty() {
                    deviations.push(Deviation::Missing("EndpointReference"));
                }
                if hosted.types.is_empty() {
                    deviations.push(Deviation::Missing("Types"));
                }
                if hosted.service_id.is_empty() {
                    deviations.push(Deviation::Missing("ServiceId"));
                }
                uri(&mut deviations, "ServiceId", Some(&hosted.service_id));
                for endpoint in &hosted.endpoints {
                    uri(
                        &mut deviations,
                        "EndpointReference",
                        Some(&endpoint.address),
                    );
                }
            }
        }
        deviations
    }
}

fn texts(deviations: &mut Vec<Deviation>, name: &'static str, texts: &[LocalizedString]) {
    if texts.iter().all(|text| text.text.is_empty()) {
        deviations.push(Deviation::Missing(name));
    }
    for text in texts {
        field(deviations, name, Some(&text.text));
    }
}

fn field(deviations: &mut Vec<Deviation>, field: &'static str, text: Option<&str>) {
    let length = text.map_or(0, |text| text.chars().count());
    if length >= MAX_FIELD_SIZE {
        deviations.push(Deviation::FieldTooLong { field, length });
    }
}

fn uri(deviations: &mut Vec<Deviation>, field: &'static str, text: Option<&str>) {
    let length = text.map_or(0, str::len);
    if length >= MAX_URI_SIZE {
        deviations.push(Deviation::UriTooLong { field, length });
    }
}
