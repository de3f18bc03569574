//! Flat types, and the reasons why a type is not flat.

use std::time::Duration;

use chappe_xml::Name;

/// A global element whose content is a list of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatType {
    /// The element.
    pub name: Name,
    /// The fields: elements in document order, then attributes; or text, then attributes.
    pub fields: Vec<FlatField>,
    /// Documentation for people.
    pub doc: Option<String>,
}

/// One field of a flat type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatField {
    /// The element or attribute; for [`FieldPlace::Text`] the element that contains the text.
    pub name: Name,
    /// The position of the value.
    pub place: FieldPlace,
    /// The built-in type that the field's type restricts.
    pub data_type: XsdType,
    /// Whether the value is a whitespace-separated list of that type.
    pub list: bool,
    /// Whether the element or attribute is optional.
    pub optional: bool,
    /// Whether the element can be repeated.
    pub repeated: bool,
    /// The permitted values; empty permits all values of the type.
    pub enumeration: Vec<String>,
    /// Documentation for people.
    pub doc: Option<String>,
    /// The meaning of the field: URIs of `sawsdl:modelReference`.
    pub model_reference: Vec<String>,
    /// The unit, a UCUM code.
    pub unit: Option<String>,
    /// The sample period, if the value is a list of waveform samples.
    pub sample_period: Option<Duration>,
}

impl FlatField {
    /// Creates a required element of this type.
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

    /// Sets the unit, a UCUM code.
    #[must_use]
    pub fn with_unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = Some(unit.into());
        self
    }

    /// Adds a URI for the meaning of the field.
    #[must_use]
    pub fn with_model_reference(mut self, uri: impl Into<String>) -> Self {
        self.model_reference.push(uri.into());
        self
    }

    /// Makes the field a list of samples with this period.
    #[must_use]
    pub fn with_sample_period(mut self, period: Duration) -> Self {
        self.list = true;
        self.sample_period = Some(period);
        self
    }
}

/// The position of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldPlace {
    /// In a child element.
    Element,
    /// In an attribute.
    Attribute,
    /// In the text of the element itself.
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

/// The kind of value of a built-in type.
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
    /// A duration, see [`parse_duration`](super::parse_duration).
    Duration,
    /// A point in time, see [`parse_date_time`](super::parse_date_time).
    DateTime,
}

impl XsdType {
    /// All types with their local names and families.
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

    /// All types.
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

    /// The kind of value.
    #[must_use]
    pub fn family(self) -> ValueFamily {
        self.entry().1
    }
}

/// An element is not flat.
///
/// Its events need path rules; the reason tells their author where to look.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{element} is not flat: {reason}{} ({file})", position(at))]
pub struct NotFlat {
    /// The requested global element.
    pub element: Name,
    /// The schema document that contains the obstacle.
    pub file: String,
    /// The path of the obstacle below the global element, separated by `/`; empty for the element
    /// itself.
    pub at: String,
    /// The obstacle.
    pub reason: NotFlatReason,
}

fn position(at: &str) -> String {
    if at.is_empty() {
        return String::new();
    }
    format!(" at {at}")
}

/// The reason why a type is not flat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotFlatReason {
    /// No available schema declares the element.
    #[error("no available schema declares it")]
    UnknownElement,
    /// No available schema defines a type.
    #[error("no available schema defines type {0}")]
    UnknownType(Name),
    /// The prefix of a type is undeclared.
    #[error("the prefix of type {0} is undeclared")]
    UnboundPrefix(String),
    /// A child element has its own children or attributes.
    #[error("a child element has children or attributes")]
    Nested,
    /// A choice, a group or a nested sequence.
    #[error("the content model uses {0}")]
    ContentModel(&'static str),
    /// Text is mixed with elements.
    #[error("text and elements are mixed")]
    Mixed,
    /// The content is a wildcard.
    #[error("any content is allowed")]
    Anything,
    /// The simple type is a union.
    #[error("its simple type is a union")]
    Union,
    /// A complex type is derived other than by extension.
    #[error("its complex type is derived by restriction")]
    Restriction,
    /// The element or type is abstract, a placeholder for others.
    #[error("it is abstract")]
    Abstract,
    /// Definitions are circular or nested too deeply.
    #[error("its types are circular or derived in more than {0} steps")]
    Depth(usize),
    /// The schemas of the device exceed the budget of work.
    #[error("the device's schemas are too large or refer to each other too often")]
    Work,
    /// Too many fields.
    #[error("it has more than {0} fields")]
    Width(usize),
}
