//! Metadata requests and answers: WS-Transfer Get and MEX GetMetadata.

use chappe_soap::{AddressingVersion, EndpointReference, Envelope};
use chappe_xml::{Element, Name, Str};

use super::{GET_ACTION, GET_METADATA_ACTION, GET_RESPONSE_ACTION, Metadata};
use crate::dialect::METADATA_EXCHANGE;
use crate::exchange::{dialect_of, reply, request};

/// Creates a request for the metadata of device `to`.
#[must_use]
pub fn transfer_get(
    version: AddressingVersion,
    to: &EndpointReference,
    message_id: impl Into<Str>,
) -> Envelope {
    request(version, to, GET_ACTION, message_id)
}

/// Creates the answer to a Get, in the request's dialect.
#[must_use]
pub fn transfer_get_response(
    requested: &Envelope,
    metadata: &Metadata,
    message_id: impl Into<Str>,
) -> Envelope {
    let body = metadata.to_element(dialect_of(requested.addressing.version));
    reply(requested, GET_RESPONSE_ACTION, message_id).with_body(body)
}

/// The selection of a GetMetadata request; empty selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GetMetadata {
    /// Only sections of this dialect (a URI).
    pub dialect: Option<String>,
    /// Only sections of this identifier (a URI).
    pub identifier: Option<String>,
}

impl GetMetadata {
    /// Parses the element; `None` for another element.
    #[must_use]
    pub fn from_element(element: &Element) -> Option<Self> {
        if !element.name.is(METADATA_EXCHANGE, "GetMetadata") {
            return None;
        }
        let text = |local| {
            let child = element.child(&Name::new(METADATA_EXCHANGE, local));
            let text = child.map(|child| child.text().trim().to_owned());
            text.filter(|text| !text.is_empty())
        };
        Some(Self {
            dialect: text("Dialect"),
            identifier: text("Identifier"),
        })
    }

    /// Converts to an element.
    #[must_use]
    pub fn to_element(&self) -> Element {
        let mex = |local| Element::new(Name::new(METADATA_EXCHANGE, local));
        let text = |local, text: &Option<String>| {
            text.as_ref().map(|text| mex(local).with_text(text.clone()))
        };
        mex("GetMetadata")
            .with_namespace("mex", METADATA_EXCHANGE)
            .with_children(text("Dialect", &self.dialect))
            .with_children(text("Identifier", &self.identifier))
    }

    /// The selected sections of `metadata`.
    #[must_use]
    pub fn select(&self, metadata: &Metadata) -> Metadata {
        let mut selected = metadata.clone();
        if let Some(requested) = self.dialect.as_deref() {
            let requested = requested.trim_end_matches('/');
            let selects = |local: &str| {
                crate::Dialect::ALL
                    .iter()
                    .any(|dialect| requested == format!("{}/{local}", dialect.dpws()))
            };
            selected.this_model = selected.this_model.filter(|_| selects("ThisModel"));
            selected.this_device = selected.this_device.filter(|_| selects("ThisDevice"));
            selected.relationship = selected.relationship.filter(|_| selects("Relationship"));
            selected.wsdl.retain(|_| super::read::is_wsdl(requested));
            selected
                .other
                .retain(|section| section.dialect.trim_end_matches('/') == requested);
        }
        if let Some(requested) = &self.identifier {
            selected
                .other
                .retain(|section| section.identifier.as_ref() == Some(requested));
        }
        selected
    }
}

/// Creates a request for the metadata of service `to`, which include the location of its WSDL.
#[must_use]
pub fn get_metadata(
    version: AddressingVersion,
    to: &EndpointReference,
    requested: &GetMetadata,
    message_id: impl Into<Str>,
) -> Envelope {
    request(version, to, GET_METADATA_ACTION, message_id).with_body(requested.to_element())
}
