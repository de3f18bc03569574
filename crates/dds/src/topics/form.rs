//! What elements become on a topic: samples of Chappe's own type for their schema, or of a type of others.

use std::sync::Arc;

use chappe_stream::{StreamElement, StreamSchema};

use crate::types::{MapRules, SampleMap, Structure};
use crate::{DdsError, ElementType, Payload, Qos};

/// A type of others, and how fields become its members.
pub(super) struct ForeignType {
    pub(super) of: Arc<Structure>,
    pub(super) rules: MapRules,
}

/// How elements of one schema become samples.
pub(super) enum Form {
    Own(ElementType),
    Foreign(Box<SampleMap>),
}

impl Form {
    /// The form of a stream with this name and schema.
    pub(super) fn new(
        stream: &str,
        schema: &StreamSchema,
        foreign: Option<&ForeignType>,
    ) -> Result<Self, DdsError> {
        let fault = |why| DdsError::Qos { key: "fields", why };
        match foreign {
            Some(ForeignType { of, rules }) => {
                let map = SampleMap::new(of, schema, rules).map_err(fault)?;
                Ok(Self::Foreign(Box::new(map)))
            }
            None => {
                let of = ElementType::new(stream, schema.clone());
                Ok(Self::Own(of.map_err(|error| fault(error.to_string()))?))
            }
        }
    }

    pub(super) fn schema(&self) -> &StreamSchema {
        match self {
            Self::Own(of) => of.schema(),
            Self::Foreign(map) => map.schema(),
        }
    }

    pub(super) fn type_name(&self) -> String {
        match self {
            Self::Own(of) => of.type_name(),
            Self::Foreign(map) => map.of().name.clone(),
        }
    }

    /// The quality of service of its writer.
    pub(super) fn qos(&self, configured: &Qos) -> Qos {
        match self {
            Self::Own(of) => Qos {
                fields: of.schema().fields.clone(),
                ..configured.clone()
            },
            Self::Foreign(map) => Qos {
                any_encoding: true,
                is_version_2: map.of().is_version_2(),
                is_keyless: !map.of().members.iter().any(|member| member.is_key),
                ..configured.clone()
            },
        }
    }

    /// The sample of an element that follows the one with this number.
    pub(super) fn encode(&self, element: &StreamElement, previous: u64) -> Result<Payload, String> {
        match self {
            Self::Own(of) => of.encode(element, previous).map_err(|it| it.to_string()),
            Self::Foreign(map) => map.encode(element).map_err(|it| it.to_string()),
        }
    }

    /// What a person should know about it.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Foreign(map) if !map.unused().is_empty() => {
                let fields = map.unused().join(", ");
                Some(format!("fields without a member of the type: {fields}"))
            }
            _ => None,
        }
    }
}
