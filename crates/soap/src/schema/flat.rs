//! Flat types, and why a type is none.

use std::time::Duration;

use chappe_xml::Name;

/// A global element whose content is fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatType {
    /// The element.
    pub name: Name,
    /// The fields: elements in document order, then attributes; or text, then attributes.
    pub fields: Vec<FlatField>,
    /// For a person to read.
    pub doc: Option<String>,
}

/// One field of a flat type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatField {
    /// The element or attribute; of [`FieldPlace::Text`] the element that holds the text.
    pub name: Name,
    /// Where the value stands.
    pub place: FieldPlace,
    /// The built-in type that the field's type restricts.
    pub data_type: XsdType,
    /// The value is a whitespace separated list of that type.
    pub list: bool,
    /// The element or attribute may be missing.
    pub optional: bool,
    /// The element may stand several times.
    pub repeated: bool,
    /// The permitted values; empty when all of the type are.
    pub enumeration: Vec<String>,
    /// For a person to read.
    pub doc: Option<String>,
    /// What the field means: URIs of `sawsdl:modelReference`.
    pub model_reference: Vec<String>,
    /// The unit, a UCUM code.
    pub unit: Option<String>,
    /// Of a list: its values are samples of a waveform, evenly spaced by this.
    pub sample_period: Option<Duration>,
}

impl FlatField {
    /// A required element of this type.
    #[must_use]
    pub fn new(name: Name, data_type: XsdType) -> Self {
        Self {
            name,
            place: FieldPlace::Element,
            data_type,
            list: false,
            optional: false,
            repeated: false,
            enumeration: Vec::new(),
            doc: None,
            model_reference: Vec::new(),
            unit: None,
            sample_period: None,
        }
    }

    /// With a unit, a UCUM code.
    #[must_use]
    pub fn with_unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = Some(unit.into());
        self
    }

    /// With one more URI of what the field means.
    #[must_use]
    pub fn with_model_reference(mut self, uri: impl Into<String>) -> Self {
        self.model_reference.push(uri.into());
        self
    }

    /// As a list of samples, evenly spaced by `period`.
    #[must_use]
    pub fn with_sample_period(mut self, period: Duration) -> Self {
        self.list = true;
        self.sample_period = Some(period);
        self
    }
}

/// Where the value of a field stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldPlace {
    /// In a child element.
    Element,
    /// In an attribute.
    Attribute,
    /// In the element itself.
    Text,
}

/// The built-in types of XML Schema part 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // Each is the built-in type of its name.
pub enum XsdType {
    AnySimpleType,
    AnyUri,
    Base64Binary,
    Boolean,
    Byte,
    Date,
    DateTime,
    Decimal,
    Double,
    Duration,
    Float,
    GDay,
    GMonth,
    GMonthDay,
    GYear,
    GYearMonth,
    HexBinary,
    Id,
    IdRef,
    Int,
    Integer,
    Language,
    Long,
    NcName,
    NegativeInteger,
    NmToken,
    NonNegativeInteger,
    NonPositiveInteger,
    NormalizedString,
    PositiveInteger,
    QName,
    Short,
    String,
    Time,
    Token,
    UnsignedByte,
    UnsignedInt,
    UnsignedLong,
    UnsignedShort,
}

/// What kind of value a built-in type holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueFamily {
    /// True or false.
    Boolean,
    /// A whole number. `xs:integer` and `xs:unsignedLong` may exceed 64 bits.
    Integer,
    /// A number.
    Number,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// A length of time, see [`parse_duration`](super::parse_duration).
    Duration,
    /// A point in time, see [`parse_date_time`](super::parse_date_time).
    DateTime,
}

impl XsdType {
    /// All, with their local names and families.
    const ALL: [(Self, &'static str, ValueFamily); 39] = {
        use ValueFamily as F;
        [
            (Self::AnySimpleType, "anySimpleType", F::Text),
            (Self::AnyUri, "anyURI", F::Text),
            (Self::Base64Binary, "base64Binary", F::Bytes),
            (Self::Boolean, "boolean", F::Boolean),
            (Self::Byte, "byte", F::Integer),
            (Self::Date, "date", F::Text),
            (Self::DateTime, "dateTime", F::DateTime),
            (Self::Decimal, "decimal", F::Number),
            (Self::Double, "double", F::Number),
            (Self::Duration, "duration", F::Duration),
            (Self::Float, "float", F::Number),
            (Self::GDay, "gDay", F::Text),
            (Self::GMonth, "gMonth", F::Text),
            (Self::GMonthDay, "gMonthDay", F::Text),
            (Self::GYear, "gYear", F::Text),
            (Self::GYearMonth, "gYearMonth", F::Text),
            (Self::HexBinary, "hexBinary", F::Bytes),
            (Self::Id, "ID", F::Text),
            (Self::IdRef, "IDREF", F::Text),
            (Self::Int, "int", F::Integer),
            (Self::Integer, "integer", F::Integer),
            (Self::Language, "language", F::Text),
            (Self::Long, "long", F::Integer),
            (Self::NcName, "NCName", F::Text),
            (Self::NegativeInteger, "negativeInteger", F::Integer),
            (Self::NmToken, "NMTOKEN", F::Text),
            (Self::NonNegativeInteger, "nonNegativeInteger", F::Integer),
            (Self::NonPositiveInteger, "nonPositiveInteger", F::Integer),
            (Self::NormalizedString, "normalizedString", F::Text),
            (Self::PositiveInteger, "positiveInteger", F::Integer),
            (Self::QName, "QName", F::Text),
            (Self::Short, "short", F::Integer),
            (Self::String, "string", F::Text),
            (Self::Time, "time", F::Text),
            (Self::Token, "token", F::Text),
            (Self::UnsignedByte, "unsignedByte", F::Integer),
            (Self::UnsignedInt, "unsignedInt", F::Integer),
            (Self::UnsignedLong, "unsignedLong", F::Integer),
            (Self::UnsignedShort, "unsignedShort", F::Integer),
        ]
    };

    /// The type of this local name in the namespace of XML Schema.
    #[must_use]
    pub fn from_local(local: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, name, _)| *name == local);
        found.map(|(data_type, _, _)| *data_type)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().map(|(data_type, _, _)| *data_type)
    }

    fn entry(self) -> (&'static str, ValueFamily) {
        let found = Self::ALL.iter().find(|(known, _, _)| *known == self);
        found.map_or(("string", ValueFamily::Text), |(_, local, family)| {
            (*local, *family)
        })
    }

    /// The local name in the namespace of XML Schema.
    #[must_use]
    pub fn local(self) -> &'static str {
        self.entry().0
    }

    /// What kind of value it holds.
    #[must_use]
    pub fn family(self) -> ValueFamily {
        self.entry().1
    }
}

/// An element whose content is not fields, and why.
///
/// Such an event needs path rules; the reason tells their author where to look.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{element} is not flat: {reason}{} ({file})", place(at))]
pub struct NotFlat {
    /// The global element that was asked for.
    pub element: Name,
    /// The schema document in which the reason stands.
    pub file: String,
    /// The element inside, from the global one on, separated by `/`; empty for itself.
    pub at: String,
    /// Why.
    pub reason: NotFlatReason,
}

fn place(at: &str) -> String {
    if at.is_empty() {
        return String::new();
    }
    format!(" at {at}")
}

/// Why a type is not flat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotFlatReason {
    /// No schema at hand declares the element.
    #[error("no schema at hand declares it")]
    UnknownElement,
    /// No schema at hand defines a type that is used.
    #[error("no schema at hand defines type {0}")]
    UnknownType(Name),
    /// A type is named with a prefix that is not bound.
    #[error("the prefix of type {0} is not bound")]
    UnboundPrefix(String),
    /// A child element has children or attributes of its own.
    #[error("a child element has structure of its own")]
    Nested,
    /// A choice, a group or a nested sequence.
    #[error("the content model uses {0}")]
    ContentModel(&'static str),
    /// Text between elements.
    #[error("text and elements are mixed")]
    Mixed,
    /// The content may be anything.
    #[error("the content may be anything")]
    Anything,
    /// The simple type is a union.
    #[error("a simple type is a union")]
    Union,
    /// A complex type is derived in another way than by extension.
    #[error("a complex type is derived by restriction")]
    Restriction,
    /// The element or type is abstract, so that others stand in its place.
    #[error("it is abstract")]
    Abstract,
    /// Definitions that go round in a circle or are nested beyond the limit.
    #[error("its types are derived through more than {0} steps")]
    Depth(usize),
    /// The schemas of the device take more work than the limit.
    #[error("the schemas of the device are too large, or name each other too often")]
    Work,
    /// More fields than the limit.
    #[error("it has more than {0} fields")]
    Width(usize),
}
