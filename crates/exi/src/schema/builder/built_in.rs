//! The built-in types of XML Schema.

use crate::schema::Representation;
use crate::value::DateTimeKind;

/// Built-in types of XML Schema in the order of table D-5, with their base types.
pub(super) const BUILT_IN: &[(&str, &str)] = &[
    ("ENTITIES", "list ENTITY"),
    ("ENTITY", "NCName"),
    ("ID", "NCName"),
    ("IDREF", "NCName"),
    ("IDREFS", "list IDREF"),
    ("NCName", "Name"),
    ("NMTOKEN", "token"),
    ("NMTOKENS", "list NMTOKEN"),
    ("NOTATION", "anySimpleType"),
    ("Name", "token"),
    ("QName", "anySimpleType"),
    ("anySimpleType", ""),
    ("anyType", ""),
    ("anyURI", "anySimpleType"),
    ("base64Binary", "anySimpleType"),
    ("boolean", "anySimpleType"),
    ("byte", "short"),
    ("date", "anySimpleType"),
    ("dateTime", "anySimpleType"),
    ("decimal", "anySimpleType"),
    ("double", "anySimpleType"),
    ("duration", "anySimpleType"),
    ("float", "anySimpleType"),
    ("gDay", "anySimpleType"),
    ("gMonth", "anySimpleType"),
    ("gMonthDay", "anySimpleType"),
    ("gYear", "anySimpleType"),
    ("gYearMonth", "anySimpleType"),
    ("hexBinary", "anySimpleType"),
    ("int", "long"),
    ("integer", "decimal"),
    ("language", "token"),
    ("long", "integer"),
    ("negativeInteger", "nonPositiveInteger"),
    ("nonNegativeInteger", "integer"),
    ("nonPositiveInteger", "integer"),
    ("normalizedString", "string"),
    ("positiveInteger", "nonNegativeInteger"),
    ("short", "int"),
    ("string", "anySimpleType"),
    ("time", "anySimpleType"),
    ("token", "normalizedString"),
    ("unsignedByte", "unsignedShort"),
    ("unsignedInt", "unsignedLong"),
    ("unsignedLong", "nonNegativeInteger"),
    ("unsignedShort", "unsignedInt"),
];

/// The representation of a built-in type (table 7-1).
pub(super) fn built_in_representation(name: &str) -> Representation {
    use DateTimeKind as Kind;
    match name {
        "base64Binary" => Representation::Base64,
        "hexBinary" => Representation::Hex,
        "boolean" => Representation::Boolean,
        "dateTime" => Representation::DateTime(Kind::DateTime),
        "time" => Representation::DateTime(Kind::Time),
        "date" => Representation::DateTime(Kind::Date),
        "gYearMonth" => Representation::DateTime(Kind::GYearMonth),
        "gYear" => Representation::DateTime(Kind::GYear),
        "gMonthDay" => Representation::DateTime(Kind::GMonthDay),
        "gDay" => Representation::DateTime(Kind::GDay),
        "gMonth" => Representation::DateTime(Kind::GMonth),
        "decimal" => Representation::Decimal,
        "float" | "double" => Representation::Float,
        "integer" | "long" | "int" | "short" | "nonPositiveInteger" | "negativeInteger" => {
            Representation::Integer
        }
        "byte" => Representation::Bounded {
            least: -128,
            count: 256,
        },
        "nonNegativeInteger" | "positiveInteger" | "unsignedLong" | "unsignedInt"
        | "unsignedShort" => Representation::Unsigned,
        "unsignedByte" => Representation::Bounded {
            least: 0,
            count: 256,
        },
        _ => Representation::String,
    }
}
