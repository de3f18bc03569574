//! XML Schema 1.0: the flat subset, message types that map to the columns of a table; and the model of
//! all types, from which messages ([`Model::compose`]) and code are written.
//!
//! A flat type is a sequence of elements of simple type, attributes of simple type, or text;
//! optional elements with only wildcards are ignored. [`Schemas::flat`] returns a global element's
//! fields, or why it is [`NotFlat`]. Fields carry their meaning: documentation, SAWSDL model
//! references, units and sample periods.
//!
//! Source: XML Schema parts 1 and 2 (W3C, second edition); SAWSDL (W3C, 2007) for
//! `sawsdl:modelReference`. It does not validate documents, and ignores patterns, digits,
//! identity constraints, substitution groups and redefinitions.

mod compose;
mod declaration;
mod flat;
mod flatten;
mod generate;
mod model;
mod parse;
mod set;
mod time;
mod values;
mod work;

pub use compose::{Argument, ComposeError, ComposeReason};
pub use declaration::{Facets, Occurs};
pub use flat::{FieldPlace, FlatField, FlatType, NotFlat, NotFlatReason, ValueFamily, XsdType};
pub use generate::to_schema;
pub use model::{
    AttributeModel, ComplexType, ElementModel, Model, Part, SimpleType, TypeContent, TypeId,
    TypeModel,
};
pub use set::{SchemaError, SchemaReference, Schemas};
pub use time::{format_date_time, format_duration, parse_date_time, parse_duration};
pub use work::Work;

/// The namespace of XML Schema.
pub const NAMESPACE: &str = "http://www.w3.org/2001/XMLSchema";
/// The namespace of SAWSDL, whose `modelReference` defines the meaning of a field.
pub const SAWSDL: &str = "http://www.w3.org/ns/sawsdl";
/// The namespace of the annotations `unit` (a UCUM code) and `samplePeriod` (an `xs:duration`).
pub const ANNOTATIONS: &str = "https://chappe.example/ns";

/// The text is not a valid value of an XML Schema type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {expected}")]
pub struct LexicalError {
    /// The XML Schema type.
    pub expected: &'static str,
    /// The text, truncated.
    pub text: String,
}

impl LexicalError {
    pub(crate) fn new(expected: &'static str, text: &str) -> Self {
        Self {
            expected,
            text: text.chars().take(64).collect(),
        }
    }
}
