//! Elements and fields of streams in answers, with their structure for the OpenAPI document.

use chappe_stream::Field;
pub(crate) use chappe_stream::view::{ElementView, ExactElementView, ValueView};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::shapes;

/// A field of a stream, as JSON.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = StreamField)]
pub(crate) struct FieldView {
    name: String,
    /// Its type.
    #[serde(rename = "type")]
    #[schema(value_type = shapes::FieldType)]
    field_type: String,
    /// A UCUM code.
    unit: Option<String>,
    /// A URI.
    observed_property: Option<String>,
    description: Option<String>,
}

impl FieldView {
    pub(crate) fn of(field: &Field) -> Self {
        let type_name = serde_json::to_value(field.field_type).unwrap_or_default();
        Self {
            name: field.name.clone(),
            field_type: type_name.as_str().unwrap_or_default().to_owned(),
            unit: field.unit.clone(),
            observed_property: field.observed_property.clone(),
            description: field.description.clone(),
        }
    }
}

/// The structure of an element, for the OpenAPI document.
#[derive(ToSchema)]
#[schema(as = Element)]
#[allow(dead_code, reason = "documentation only; ElementView writes elements")]
pub(crate) struct ElementShape {
    /// The stream's name (live data only).
    stream: Option<String>,
    /// The lineage of its number, 16 hexadecimal digits.
    epoch: String,
    /// Its number in the stream.
    number: u64,
    /// Time of the event by the source's clock (RFC 3339).
    source_time: String,
    /// Time of arrival at this node (RFC 3339).
    receive_time: String,
    /// The instance that the element describes, for streams with keys.
    key: Option<String>,
    /// How far it may be trusted.
    quality: shapes::ElementQuality,
    /// One member per field: a number, string, boolean or null; base64 for bytes;
    /// `{start, period_s, values}` for samples.
    values: serde_json::Map<String, serde_json::Value>,
    /// `epoch:number` at the node of origin, for elements received over a link; for elements that a
    /// client numbered, its producer and number.
    origin: Option<String>,
}
