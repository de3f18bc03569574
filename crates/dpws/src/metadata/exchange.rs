//! The messages that carry metadata: WS-Transfer Get and MEX GetMetadata.

use chappe_soap::{AddressingVersion, EndpointReference, Envelope};
use chappe_xml::{Element, Name, Str};

use super::{GET_ACTION, GET_METADATA_ACTION, GET_RESPONSE_ACTION, Metadata};
use crate::dialect::METADATA_EXCHANGE;
use crate::exchange::{dialect_of, reply, request};

/// Asks the device `to` for its metadata.
#[must_use]
pub fn transfer_get(
    version: AddressingVersion,
    to: &EndpointReference,
    message_id: impl Into<Str>,
) -> Envelope {
    request(version, to, GET_ACTION, message_id)
}

/// Answers a Get, in the dialect of the question.
#[must_use]
pub fn transfer_get_response(
    asked: &Envelope,
    metadata: &Metadata,
    message_id: impl Into<Str>,
) -> Envelope {
    let body = metadata.to_element(dialect_of(asked.addressing.version));
    reply(asked, GET_RESPONSE_ACTION, message_id).with_body(body)
}

/// What a GetMetadata asks for; all when it says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GetMetadata {
    /// Only sections of this dialect (a URI).
    pub dialect: Option<String>,
    /// Only sections of this identifier (a URI).
    pub identifier: Option<String>,
}

impl GetMetadata {
    /// Reads the element; `None` when it is another.
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

    /// As an element.
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

    /// The sections of `metadata` that are asked for.
    #[must_use]
    pub fn select(&self, metadata: &Metadata) -> Metadata {
        let mut selected = metadata.clone();
        if let Some(asked) = self.dialect.as_deref() {
            let asked = asked.trim_end_matches('/');
            let is = |local: &str| {
                crate::Dialect::ALL
                    .iter()
                    .any(|dialect| asked == format!("{}/{local}", dialect.dpws()))
            };
            selected.this_model = selected.this_model.filter(|_| is("ThisModel"));
            selected.this_device = selected.this_device.filter(|_| is("ThisDevice"));
            selected.relationship = selected.relationship.filter(|_| is("Relationship"));
            selected.wsdl.retain(|_| super::read::is_wsdl(asked));
            selected
                .other
                .retain(|section| section.dialect.trim_end_matches('/') == asked);
        }
        if let Some(asked) = &self.identifier {
            selected
                .other
                .retain(|section| section.identifier.as_ref() == Some(asked));
        }
        selected
    }
}

/// Asks the service `to` for its metadata, among them where its WSDL is.
#[must_use]
pub fn get_metadata(
    version: AddressingVersion,
    to: &EndpointReference,
    asked: &GetMetadata,
    message_id: impl Into<Str>,
) -> Envelope {
    request(version, to, GET_METADATA_ACTION, message_id).with_body(asked.to_element())
}
