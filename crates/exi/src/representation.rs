//! Changes to a schema's representations: lexical values (table 7-2) and datatype representation
//! maps (7.4).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::Cause;
use crate::options::{Options, Representation as Entry};
use crate::schema::{NONE, Representation, Schema, URI_XSD};
use crate::value::DateTimeKind;

/// Namespace of the options document and of the built-in representations.
pub(crate) const EXI_NAMESPACE: &str = "http://www.w3.org/2009/exi";

/// Datatypes that have a default representation (table 7-1).
const DEFAULTS: [&str; 17] = [
    "base64Binary",
    "hexBinary",
    "boolean",
    "dateTime",
    "time",
    "date",
    "gYearMonth",
    "gYear",
    "gMonthDay",
    "gDay",
    "gMonth",
    "decimal",
    "float",
    "double",
    "integer",
    "string",
    "anySimpleType",
];

const BASE64: u32 = 0;
const HEX: u32 = 1;
const BOOLEAN: u32 = 2;
const DATE_TIME: u32 = 3;
const DECIMAL: u32 = 4;
const FLOAT: u32 = 5;
const INTEGER: u32 = 6;

/// The character sets of table 7-2, which come first in every schema.
pub(crate) fn lexical_sets() -> Vec<Box<[char]>> {
    let digits = "0123456789";
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    [
        [digits, letters, "+/="].concat(),
        [digits, "ABCDEFabcdef"].concat(),
        "01aeflrstu".into(),
        [digits, "+-.:TZ"].concat(),
        [digits, "+-."].concat(),
        [digits, "+-.EFINae"].concat(),
        [digits, "+-"].concat(),
    ]
    .iter()
    .map(|characters: &String| {
        let mut set: Vec<char> = characters.chars().chain("\t\n\r ".chars()).collect();
        set.sort_unstable();
        set.into()
    })
    .collect()
}

/// Computes the representations under these options; none if they are the schema's own.
pub(crate) fn replaced(
    schema: &Schema,
    options: &Options,
) -> Result<Option<Box<[Representation]>>, Cause> {
    if !schema.informed {
        return Ok(None);
    }
    if options.preserve.lexical_values {
        // Clause 5.4 gives the map no effect here. Three implementations, however, read table 7-2
        // so that a type mapped to a string has no restricted character set, and so do the
        // canonical streams of the test suite.
        let all = 0..schema.datatypes.len() as u32;
        let all = all.map(|at| {
            let mapped = mapped_representation(schema, at, &options.datatype_representation_map)?;
            Ok(lexical_representation(schema, &mapped))
        });
        return all.collect::<Result<_, Cause>>().map(Some);
    }
    if options.datatype_representation_map.is_empty() {
        return Ok(None);
    }
    let all = 0..schema.datatypes.len() as u32;
    let all = all.map(|at| mapped_representation(schema, at, &options.datatype_representation_map));
    all.collect::<Result<_, Cause>>().map(Some)
}

/// The representation as a string restricted to the characters of the lexical form.
fn lexical_representation(schema: &Schema, representation: &Representation) -> Representation {
    let of = |datatype: u32| &schema.datatypes[datatype as usize].representation;
    let set = match representation {
        Representation::Base64 => BASE64,
        Representation::Hex => HEX,
        Representation::Boolean | Representation::PatternBoolean => BOOLEAN,
        Representation::DateTime(_) => DATE_TIME,
        Representation::Decimal => DECIMAL,
        Representation::Float => FLOAT,
        Representation::Integer | Representation::Unsigned | Representation::Bounded { .. } => {
            INTEGER
        }
        Representation::String | Representation::Restricted(_) => return Representation::String,
        // List items and the base of an enumeration are datatypes of their own.
        Representation::List(item) => return lexical_representation(schema, of(*item)),
        Representation::Enumeration { base, .. } => {
            return lexical_representation(schema, of(*base));
        }
    };
    Representation::Restricted(set)
}

/// The representation that the map assigns to a datatype or to its closest mapped ancestor.
fn mapped_representation(
    schema: &Schema,
    datatype: u32,
    map: &[Entry],
) -> Result<Representation, Cause> {
    let own = &schema.datatypes[datatype as usize].representation;
    let enumerated = |at: u32| {
        matches!(
            schema.datatypes[at as usize].representation,
            Representation::Enumeration { .. }
        )
    };
    let mut at = datatype;
    while at != NONE {
        let known = &schema.datatypes[at as usize];
        let entry = (known.name != NONE).then(|| {
            let named = &schema.names[known.name as usize];
            let (uri, local) = (schema.uri(named.uri), schema.span(named.local));
            map.iter()
                .find(|entry| entry.datatype.namespace == uri && entry.datatype.local == local)
        });
        if let Some(entry) = entry.flatten() {
            if enumerated(datatype) && !enumerated(at) {
                return Ok(own.clone());
            }
            return exi_representation(own, entry);
        }
        // A datatype with a default representation takes precedence over its own ancestors.
        let named = schema.names.get(known.name as usize);
        let of_xsd = named.filter(|named| named.uri == URI_XSD);
        if of_xsd.is_some_and(|named| DEFAULTS.contains(&schema.span(named.local))) {
            break;
        }
        at = known.base;
    }
    Ok(own.clone())
}

fn exi_representation(own: &Representation, entry: &Entry) -> Result<Representation, Cause> {
    use DateTimeKind as Kind;
    let unknown = Cause::Option {
        option: "datatypeRepresentationMap",
        why: "only the built-in EXI representations are supported",
    };
    if entry.representation.namespace != EXI_NAMESPACE {
        return Err(unknown);
    }
    Ok(match entry.representation.local.as_str() {
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
        "double" => Representation::Float,
        "integer" => match own {
            Representation::Unsigned | Representation::Bounded { .. } => own.clone(),
            _ => Representation::Integer,
        },
        "string" => match own {
            Representation::Restricted(_) => own.clone(),
            _ => Representation::String,
        },
        _ => return Err(unknown),
    })
}
