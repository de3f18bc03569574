//! Compiled grammars: a schema as tables.
//!
//! A [`Schema`] is immutable and can be shared between threads. It holds the initial names of the
//! string tables (7.3.1), the normalized element and type grammars with their event codes (8.5.4),
//! and the datatypes. Undeclared productions (8.5.4.4) are not stored: they follow from the shape
//! of a state and the options of the stream.

#[cfg_attr(
    not(feature = "std"),
    allow(dead_code, reason = "what only the schema compiler needs")
)]
mod builder;
mod bytes;
mod check;
#[cfg_attr(
    not(feature = "std"),
    allow(dead_code, reason = "what only the schema compiler needs")
)]
pub(crate) mod model;
#[cfg(feature = "std")]
pub(crate) mod xsd;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

pub(crate) use builder::{Builder, ElementDeclaration};
pub use bytes::CompiledError;

use crate::bits::width;
use crate::value::DateTimeKind;

/// Marks a missing entry in a table of indexes.
pub(crate) const NONE: u32 = u32::MAX;

/// Indexes of the initial namespaces of every stream (D.1), and of the XML Schema namespace, which
/// only streams with a schema have (D.2).
pub(crate) const URI_EMPTY: u32 = 0;
pub(crate) const URI_XML: u32 = 1;
pub(crate) const URI_XSI: u32 = 2;
pub(crate) const URI_XSD: u32 = 3;

pub(crate) const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";
pub(crate) const XSI_NAMESPACE: &str = "http://www.w3.org/2001/XMLSchema-instance";
pub(crate) const XSD_NAMESPACE: &str = "http://www.w3.org/2001/XMLSchema";

/// A range of [`Schema::text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) length: u32,
}

/// A namespace; its names are stored contiguously in the order of their compact identifiers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Uri {
    pub(crate) text: Span,
    pub(crate) first_name: u32,
    pub(crate) names: u32,
}

/// An expanded name and its declarations.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named {
    pub(crate) uri: u32,
    pub(crate) local: Span,
    /// The global element declaration.
    pub(crate) element: u32,
    /// The datatype of the global attribute declaration.
    pub(crate) attribute: u32,
    /// The type definition.
    pub(crate) type_: u32,
}

/// An element declaration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Element {
    pub(crate) name: u32,
    pub(crate) nillable: bool,
    /// The type of the element.
    pub(crate) type_: Type,
}

/// A type definition and its two grammars (8.5.4.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Type {
    /// The first state of *Type*.
    pub(crate) start: u32,
    /// The first state of *TypeEmpty*.
    pub(crate) empty: u32,
    /// The type has named subtypes or is a union, so that strict grammars allow xsi:type
    /// (8.5.4.4.2).
    pub(crate) castable: bool,
}

/// A non-terminal with its productions in the order of their event codes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Number of productions for named attributes, which come first.
    pub(crate) attributes: u32,
    pub(crate) shape: Shape,
    /// The state after an undeclared child: *content2* from the start tag, otherwise the state
    /// itself.
    pub(crate) content: u32,
    /// Bits of the first part of an event code: without and with a second part.
    pub(crate) widths: [u8; 2],
}

impl State {
    /// The bits of event codes with `count` first parts.
    pub(crate) fn widths(count: u32) -> [u8; 2] {
        // At most 33.
        [count.into(), u64::from(count) + 1].map(|count| width(count) as u8)
    }
}

/// Flag in [`Production::next`]: the rest is the index of a [`Repeat`] and not of a state.
pub(crate) const COUNTED: u32 = 1 << 31;

/// The successor of a production inside a counted particle, whose states stand for many consecutive
/// copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Repeat {
    /// The next state, while more copies follow.
    pub(crate) next_copy: u32,
    /// Number of copies after which `after_last` follows, if the production starts a new copy; zero
    /// within a copy.
    pub(crate) copies: u32,
    /// The state after the last copy but one.
    pub(crate) after_last: u32,
}

/// The properties of a state that determine its undeclared productions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Shape {
    /// The state is the entry of its grammar, *Element i,0*.
    pub(crate) entry: bool,
    /// The state is at or before *content*, where attributes are allowed.
    pub(crate) start_tag: bool,
    /// The schema allows the element to end here.
    pub(crate) end: bool,
}

/// A terminal symbol with its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminal {
    /// AT(qname), with the datatype of its value.
    Attribute { name: u32, datatype: u32 },
    /// AT(uri:*).
    AttributeIn(u32),
    /// AT(*).
    AttributeAny,
    /// SE(qname), with the declaration; [`NONE`] selects the relaxed element fragment grammar
    /// (8.5.3).
    Element { name: u32, element: u32 },
    /// SE(uri:*).
    ElementIn(u32),
    /// SE(*).
    ElementAny,
    /// EE.
    End,
    /// CH of a datatype.
    Characters(u32),
    /// CH as a string.
    Untyped,
}

/// A terminal and its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Production {
    pub(crate) terminal: Terminal,
    pub(crate) next: u32,
}

/// The representation of a value (7.1, 7.2).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Representation {
    String,
    /// A string of a restricted character set, given by its index.
    Restricted(u32),
    Boolean,
    /// A boolean with a pattern facet, which has four values (7.1.2).
    PatternBoolean,
    Integer,
    Unsigned,
    /// An n-bit offset from the least value, with `count` possible values.
    Bounded {
        least: i128,
        count: u32,
    },
    Decimal,
    Float,
    DateTime(DateTimeKind),
    Base64,
    Hex,
    /// A list of values of another datatype.
    List(u32),
    /// An enumeration: the lexical forms of its values and their base datatype.
    Enumeration {
        values: Box<[String]>,
        base: u32,
    },
}

/// The white space facet (XML Schema Part 2, 4.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum WhiteSpace {
    #[default]
    Preserve,
    /// Every white space character becomes a space.
    Replace,
    /// Words are separated by single spaces.
    Collapse,
}

/// A simple type: its representation and its ancestry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Datatype {
    pub(crate) representation: Representation,
    /// The name of its definition.
    pub(crate) name: u32,
    /// The datatype that it restricts.
    pub(crate) base: u32,
    pub(crate) white_space: WhiteSpace,
}

/// A compiled schema. It is immutable and can be shared between threads. It holds the initial names
/// of the string tables (7.3.1), the normalized grammars (8.5.4) and the datatypes.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The schemaId in stream headers.
    pub(crate) id: String,
    /// False if there is no schema and all grammars are built-in ones (8.4).
    pub(crate) informed: bool,
    pub(crate) text: String,
    pub(crate) uris: Vec<Uri>,
    pub(crate) names: Vec<Named>,
    /// A hash table with open addressing by [`hash`]: indexes of `names`, or [`NONE`].
    pub(crate) index: Vec<u32>,
    pub(crate) elements: Vec<Element>,
    /// Global element declarations, sorted by local name, then namespace (8.5.1).
    pub(crate) global_elements: Vec<u32>,
    /// The index of each element declaration in `global_elements`.
    pub(crate) global_codes: Vec<u32>,
    /// All element names in the same order, each with its declaration if there is only one (8.5.2).
    pub(crate) fragment_elements: Vec<(u32, u32)>,
    pub(crate) types: Vec<Type>,
    /// The relaxed element fragment grammar (8.5.3).
    pub(crate) element_fragment: Type,
    pub(crate) states: Vec<State>,
    pub(crate) repeats: Vec<Repeat>,
    pub(crate) productions: Vec<Production>,
    pub(crate) datatypes: Vec<Datatype>,
    pub(crate) character_sets: Vec<Box<[char]>>,
    /// The datatype xs:boolean.
    pub(crate) boolean: u32,
}

/// Hashes a name, using at most sixteen octets of the local part.
fn hash(uri: u32, local: &str) -> u32 {
    let bytes = local.as_bytes();
    let (front, back) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(front), Some(back)) => (u64::from_le_bytes(*front), u64::from_le_bytes(*back)),
        _ => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(front), Some(back)) => {
                let halves = [u32::from_le_bytes(*front), u32::from_le_bytes(*back)];
                (halves[0].into(), halves[1].into())
            }
            _ => {
                let octets = bytes
                    .iter()
                    .fold(0, |all, octet| all << 8 | u64::from(*octet));
                (octets, 0)
            }
        },
    };
    let length = local.len() as u64;
    let mixed = (front ^ u64::from(uri) << 40 ^ length << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ back.rotate_left(23)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 32) as u32 ^ mixed as u32
}

impl Schema {
    /// No schema: all grammars are the built-in ones of 8.4.
    #[must_use]
    pub fn none() -> Self {
        Builder::new(false).finish("")
    }

    /// The types of XML Schema without any declarations, which an empty schemaId selects.
    #[must_use]
    pub fn built_in_types() -> Self {
        Builder::new(true).finish("")
    }

    /// The schemaId in stream headers.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sets the schemaId.
    #[must_use]
    pub fn with_id(mut self, id: &str) -> Self {
        self.id = id.into();
        self
    }

    /// The name xsi:nil, the first of its namespace.
    pub(crate) fn xsi_nil(&self) -> u32 {
        self.uris[URI_XSI as usize].first_name
    }

    /// The name xsi:type, the second of its namespace.
    pub(crate) fn xsi_type(&self) -> u32 {
        self.xsi_nil() + 1
    }

    pub(crate) fn span(&self, span: Span) -> &str {
        let start = span.start as usize;
        &self.text[start..start + span.length as usize]
    }

    pub(crate) fn uri(&self, uri: u32) -> &str {
        self.span(self.uris[uri as usize].text)
    }

    /// Returns true if a name equals the known name.
    #[inline]
    pub(crate) fn is(&self, known: u32, name: &crate::Name<'_>) -> bool {
        let named = &self.names[known as usize];
        let same = |span: Span, text: &str| {
            let start = span.start as usize;
            let end = start + span.length as usize;
            span.length as usize == text.len()
                && self.text.as_bytes()[start..end] == *text.as_bytes()
        };
        same(named.local, name.local) && same(self.uris[named.uri as usize].text, name.namespace)
    }

    pub(crate) fn local(&self, name: u32) -> &str {
        self.span(self.names[name as usize].local)
    }

    /// Looks up a name of the initial string tables.
    pub(crate) fn find(&self, uri: u32, local: &str) -> Option<u32> {
        let mask = self.index.len() - 1;
        let mut at = hash(uri, local) as usize & mask;
        loop {
            let name = self.index[at];
            if name == NONE {
                return None;
            }
            let named = &self.names[name as usize];
            if named.uri == uri && self.span(named.local) == local {
                return Some(name);
            }
            at = (at + 1) & mask;
        }
    }

    /// Builds the index of the names.
    fn index_names(&mut self) {
        let size = (self.names.len() * 2).next_power_of_two();
        self.index = alloc::vec![NONE; size];
        for (at, named) in self.names.iter().enumerate() {
            let mut place = hash(named.uri, self.span(named.local)) as usize & (size - 1);
            while self.index[place] != NONE {
                place = (place + 1) & (size - 1);
            }
            self.index[place] = at as u32;
        }
    }

    /// The event code of a global element (8.5.1).
    pub(crate) fn global_code(&self, element: u32) -> usize {
        let code = self.global_codes.get(element as usize);
        code.map_or(NONE, |code| *code) as usize
    }

    pub(crate) fn productions(&self, state: u32) -> &[Production] {
        let state = &self.states[state as usize];
        let first = state.first as usize;
        &self.productions[first..first + state.count as usize]
    }
}
