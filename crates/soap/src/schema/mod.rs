//! The flat subset of XML Schema 1.0: what of a message can be fields of a table.
//!
//! A type is flat when its content is a sequence of elements of simple type, attributes of simple
//! type, or text; optional elements that hold only wildcards are left out. [`Schemas::flat`] says
//! so of a global element, or why it is [`NotFlat`]. Meaning comes along: documentation, SAWSDL
//! model references, units and sample periods.
//!
//! Source: XML Schema parts 1 and 2 (W3C, second edition); SAWSDL (W3C, 2007) for
//! `sawsdl:modelReference`. It does not validate: facets other than enumerations, identity
//! constraints, substitution groups and redefinitions are not looked at.

mod flat;
mod flatten;
mod generate;
mod parse;
mod time;
mod work;

pub use flat::{FieldPlace, FlatField, FlatType, NotFlat, NotFlatReason, ValueFamily, XsdType};
pub use generate::to_schema;
pub use parse::{SchemaError, SchemaReference, Schemas};
pub use time::{format_date_time, format_duration, parse_date_time, parse_duration};
pub use work::Work;

/// The namespace of XML Schema.
pub const NAMESPACE: &str = "http://www.w3.org/2001/XMLSchema";
/// The namespace of SAWSDL, whose `modelReference` says what a field means.
pub const SAWSDL: &str = "http://www.w3.org/ns/sawsdl";
/// The namespace of the annotations `unit` (a UCUM code) and `samplePeriod` (an `xs:duration`).
pub const ANNOTATIONS: &str = "https://chappe.example/ns";

/// Text that is not in the lexical space of the wanted type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an {wanted}")]
pub struct LexicalError {
    /// The XML Schema type.
    pub wanted: &'static str,
    /// The offending text, shortened.
    pub text: String,
}

impl LexicalError {
    pub(crate) fn new(wanted: &'static str, text: &str) -> Self {
        Self {
            wanted,
            text: text.chars().take(64).collect(),
        }
    }
}
