//! Serialization of compiled grammars, so that they can be compiled ahead of time and embedded.
//!
//! The format is specific to this crate: a magic number, the format version, a checksum, then the
//! tables in order, with integers in groups of seven bits. Data that follow from other tables are
//! omitted and recomputed. The bytes are untrusted: every index is checked before it is used.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::check::check;
use super::{
    Datatype, Element, NONE, Named, Production, Repeat, Representation, Schema, Shape, Span, State,
    Terminal, Type, Uri, WhiteSpace,
};
use crate::value::DateTimeKind;

/// The magic number at the start.
const MAGIC: &[u8; 8] = b"EXI\x1agram";
/// The format version. Every change of the tables or of their meaning increments it.
const VERSION: u32 = 3;
/// Length of the magic number, version and checksum.
const HEADER_BYTES: usize = 8 + 4 + 8;

const DATE_TIME_KINDS: [DateTimeKind; 8] = [
    DateTimeKind::GYear,
    DateTimeKind::GYearMonth,
    DateTimeKind::Date,
    DateTimeKind::DateTime,
    DateTimeKind::GMonth,
    DateTimeKind::GMonthDay,
    DateTimeKind::GDay,
    DateTimeKind::Time,
];

/// Errors of loading compiled grammars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompiledError {
    /// The bytes do not start with the magic number.
    #[error("not compiled grammars: the magic number is missing")]
    NotCompiled,
    /// Another version of this library wrote them.
    #[error(
        "the compiled grammars have format version {found}, expected {VERSION}: recompile the schema"
    )]
    Version {
        /// The format version.
        found: u32,
    },
    /// The checksum is wrong, or the tables contradict each other.
    #[error("the compiled grammars are damaged: {0}")]
    Damaged(&'static str),
}

/// A checksum against accidental damage, computed over eight bytes at a time.
fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = bytes.len() as u64;
    let mut mix = |word: u64| {
        sum = (sum ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    };
    let words = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    for word in words {
        mix(<[u8; 8]>::try_from(word).map_or(0, u64::from_le_bytes));
    }
    mix(u64::from_le_bytes(last));
    sum ^ sum >> 32
}

impl Schema {
    /// The compiled grammars as bytes, which [`Schema::from_bytes`] loads in microseconds. A build
    /// script can make them, and the program embed them:
    ///
    /// ```
    /// use chappe_exi::{Schema, XsdSource};
    /// // build.rs: compile, write to OUT_DIR.
    /// let document = br#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
    ///   <xs:element name="temperature" type="xs:double"/>
    /// </xs:schema>"#;
    /// let source = XsdSource { name: "plant.xsd".into(), document: document.to_vec() };
    /// let schema = Schema::from_xsd(vec![source], &mut |_, _| None)?.with_id("plant");
    /// let bytes = schema.to_bytes();
    /// // The program: Schema::from_bytes(include_bytes!(concat!(env!("OUT_DIR"), "/plant.exig"))).
    /// assert_eq!(Schema::from_bytes(&bytes)?, schema);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer(Vec::new());
        writer.schema(self);
        let Writer(tables) = writer;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + tables.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&checksum(&tables).to_le_bytes());
        bytes.extend_from_slice(&tables);
        bytes
    }

    /// Loads compiled grammars.
    ///
    /// # Errors
    /// The bytes are not compiled grammars, have another format version, or are damaged. No input
    /// causes a panic, neither here nor when forged grammars are used for encoding or decoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CompiledError> {
        let (head, tables) = bytes
            .split_at_checked(HEADER_BYTES)
            .ok_or(CompiledError::NotCompiled)?;
        let rest = head.strip_prefix(MAGIC).ok_or(CompiledError::NotCompiled)?;
        let (version, sum) = rest.split_at(4);
        let found = <[u8; 4]>::try_from(version).map_or(0, u32::from_le_bytes);
        if found != VERSION {
            return Err(CompiledError::Version { found });
        }
        let damaged = CompiledError::Damaged;
        if checksum(tables).to_le_bytes() != sum {
            return Err(damaged("the checksum does not match"));
        }
        let mut reader = Reader { rest: tables };
        let mut schema = reader.schema().ok_or(damaged("a table is truncated"))?;
        if !reader.rest.is_empty() {
            return Err(damaged("bytes follow the tables"));
        }
        check(&schema).map_err(damaged)?;
        schema.rebuild_derived_tables();
        Ok(schema)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, mut value: u128) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn count(&mut self, value: usize) {
        self.number(value as u128);
    }

    fn index(&mut self, value: u32) {
        self.number(u128::from(value));
    }

    /// Writes an index or [`NONE`].
    fn optional_index(&mut self, value: u32) {
        self.number(u128::from(value.wrapping_add(1)));
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn schema(&mut self, schema: &Schema) {
        self.0.push(u8::from(schema.informed));
        self.text(&schema.id);
        self.count(schema.uris.len());
        for uri in &schema.uris {
            self.text(schema.span(uri.text));
            self.index(uri.names);
        }
        // Their number is the sum over the namespaces.
        for named in &schema.names {
            self.text(schema.span(named.local));
            self.optional_index(named.element);
            self.optional_index(named.attribute);
            self.optional_index(named.type_);
        }
        self.count(schema.types.len());
        schema.types.iter().for_each(|type_| self.type_(type_));
        self.type_(&schema.element_fragment);
        self.count(schema.elements.len());
        for element in &schema.elements {
            self.index(element.name);
            self.0.push(u8::from(element.nillable));
            self.type_(&element.type_);
        }
        self.count(schema.global_elements.len());
        schema.global_elements.iter().for_each(|at| self.index(*at));
        self.count(schema.fragment_elements.len());
        for (name, element) in &schema.fragment_elements {
            self.index(*name);
            self.optional_index(*element);
        }
        self.count(schema.states.len());
        for (at, state) in schema.states.iter().enumerate() {
            self.state(schema, at as u32, state);
        }
        self.count(schema.repeats.len());
        for repeat in &schema.repeats {
            self.index(repeat.next_copy);
            self.index(repeat.copies);
            self.index(repeat.after_last);
        }
        self.count(schema.datatypes.len());
        for datatype in &schema.datatypes {
            self.optional_index(datatype.name);
            self.optional_index(datatype.base);
            self.0.push(datatype.white_space as u8);
            self.representation(&datatype.representation);
        }
        self.optional_index(schema.boolean);
        self.count(schema.character_sets.len());
        for set in &schema.character_sets {
            self.count(set.len());
            set.iter().for_each(|one| self.index(u32::from(*one)));
        }
    }

    fn type_(&mut self, type_: &Type) {
        self.optional_index(type_.start);
        self.optional_index(type_.empty);
        self.0.push(u8::from(type_.castable));
    }

    fn state(&mut self, schema: &Schema, at: u32, state: &State) {
        let Shape {
            entry,
            start_tag,
            end,
        } = state.shape;
        self.0
            .push(u8::from(entry) | u8::from(start_tag) << 1 | u8::from(end) << 2);
        self.index(state.content);
        self.index(state.attributes);
        let productions = schema.productions(at);
        self.count(productions.len());
        for Production { terminal, next } in productions {
            let (kind, first, second) = match *terminal {
                Terminal::Attribute { name, datatype } => (0, Some(name), Some(datatype)),
                Terminal::AttributeIn(uri) => (1, Some(uri), None),
                Terminal::AttributeAny => (2, None, None),
                Terminal::Element { name, element } => (3, Some(name), Some(element)),
                Terminal::ElementIn(uri) => (4, Some(uri), None),
                Terminal::ElementAny => (5, None, None),
                Terminal::End => (6, None, None),
                Terminal::Characters(datatype) => (7, Some(datatype), None),
                Terminal::Untyped => (8, None, None),
            };
            self.0.push(kind);
            self.optional_index(*next);
            first.into_iter().for_each(|first| self.index(first));
            second
                .into_iter()
                .for_each(|second| self.optional_index(second));
        }
    }

    fn representation(&mut self, representation: &Representation) {
        let kind = match representation {
            Representation::String => 0,
            Representation::Restricted(_) => 1,
            Representation::Boolean => 2,
            Representation::PatternBoolean => 3,
            Representation::Integer => 4,
            Representation::Unsigned => 5,
            Representation::Bounded { .. } => 6,
            Representation::Decimal => 7,
            Representation::Float => 8,
            Representation::DateTime(_) => 9,
            Representation::Base64 => 10,
            Representation::Hex => 11,
            Representation::List(_) => 12,
            Representation::Enumeration { .. } => 13,
        };
        self.0.push(kind);
        match representation {
            Representation::Restricted(set) => self.index(*set),
            Representation::Bounded { least, count } => {
                self.0.push(u8::from(*least < 0));
                self.number(least.unsigned_abs());
                self.index(*count);
            }
            Representation::DateTime(kind) => {
                let at = DATE_TIME_KINDS.iter().position(|known| known == kind);
                self.0.push(at.map_or(0, |at| at as u8));
            }
            Representation::List(item) => self.index(*item),
            Representation::Enumeration { values, base } => {
                self.index(*base);
                self.count(values.len());
                values.iter().for_each(|value| self.text(value));
            }
            _ => {}
        }
    }
}

/// Reads tables; none if they are truncated or a number is too large.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn flag(&mut self) -> Option<bool> {
        self.byte().filter(|byte| *byte < 2).map(|byte| byte == 1)
    }

    #[inline]
    fn number(&mut self) -> Option<u128> {
        let first = self.byte()?;
        let mut value = u128::from(first & 0x7f);
        let mut shift = 0;
        let mut last = first;
        while last >= 0x80 {
            last = self.byte()?;
            shift += 7;
            let group = u128::from(last & 0x7f);
            value |= group
                .checked_shl(shift)
                .filter(|part| part >> shift == group)?;
        }
        Some(value)
    }

    #[inline]
    fn index(&mut self) -> Option<u32> {
        let first = *self.rest.first()?;
        if first < 0x80 {
            self.rest = &self.rest[1..];
            return Some(first.into());
        }
        u32::try_from(self.number()?).ok()
    }

    fn optional_index(&mut self) -> Option<u32> {
        self.index().map(|value| value.wrapping_sub(1))
    }

    /// Reads the number of items that follow; each takes at least one byte.
    fn count(&mut self) -> Option<usize> {
        let count = self.index()? as usize;
        (count <= self.rest.len()).then_some(count)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.count()?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        core::str::from_utf8(text).ok()
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.count()?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(read(self)?);
        }
        Some(list)
    }

    fn schema(&mut self) -> Option<Schema> {
        let informed = self.flag()?;
        let id = String::from(self.text()?);
        let mut text = String::with_capacity(self.rest.len() / 4);
        let mut keep = |piece: &str| {
            let start = text.len() as u32;
            text.push_str(piece);
            let length = piece.len() as u32;
            Span { start, length }
        };
        let (mut uris, mut names) = (Vec::new(), Vec::new());
        let mut first_name = 0u32;
        for _ in 0..self.count()? {
            let text = keep(self.text()?);
            let names = self.index()?;
            uris.push(Uri {
                text,
                first_name,
                names,
            });
            first_name = first_name.checked_add(names)?;
        }
        if first_name as usize > self.rest.len() {
            return None;
        }
        names.reserve(first_name as usize);
        for (at, uri) in uris.iter().enumerate() {
            for _ in 0..uri.names {
                names.push(Named {
                    uri: at as u32,
                    local: keep(self.text()?),
                    element: self.optional_index()?,
                    attribute: self.optional_index()?,
                    type_: self.optional_index()?,
                });
            }
        }
        let types = self.list(Self::type_)?;
        let element_fragment = self.type_()?;
        let elements = self.list(|reader| {
            Some(Element {
                name: reader.index()?,
                nillable: reader.flag()?,
                type_: reader.type_()?,
            })
        })?;
        let global_elements = self.list(Self::index)?;
        let fragment_elements =
            self.list(|reader| Some((reader.index()?, reader.optional_index()?)))?;
        let (mut states, mut productions) = (Vec::new(), Vec::new());
        for _ in 0..self.count()? {
            states.push(self.state(&mut productions)?);
        }
        let repeats = self.list(|reader| {
            Some(Repeat {
                next_copy: reader.index()?,
                copies: reader.index()?,
                after_last: reader.index()?,
            })
        })?;
        let datatypes = self.list(|reader| {
            Some(Datatype {
                name: reader.optional_index()?,
                base: reader.optional_index()?,
                white_space: match reader.byte()? {
                    0 => WhiteSpace::Preserve,
                    1 => WhiteSpace::Replace,
                    2 => WhiteSpace::Collapse,
                    _ => return None,
                },
                representation: reader.representation()?,
            })
        })?;
        let boolean = self.optional_index()?;
        let set = |reader: &mut Self| {
            let set = reader.list(|reader| reader.index().and_then(char::from_u32))?;
            Some(Box::from(set))
        };
        let character_sets = self.list(set)?;
        Some(Schema {
            id,
            informed,
            text,
            uris,
            names,
            index: Vec::new(),
            elements,
            global_elements,
            global_codes: Vec::new(),
            fragment_elements,
            types,
            element_fragment,
            states,
            repeats,
            productions,
            datatypes,
            character_sets,
            boolean,
        })
    }

    fn type_(&mut self) -> Option<Type> {
        Some(Type {
            start: self.optional_index()?,
            empty: self.optional_index()?,
            castable: self.flag()?,
        })
    }

    fn state(&mut self, productions: &mut Vec<Production>) -> Option<State> {
        let shape = self.byte().filter(|shape| *shape < 8)?;
        let content = self.index()?;
        let attributes = self.index()?;
        let first = u32::try_from(productions.len()).ok()?;
        let count = u32::try_from(self.count()?).ok()?;
        for _ in 0..count {
            let kind = self.byte()?;
            let next = self.optional_index()?;
            let terminal = match kind {
                0 => Terminal::Attribute {
                    name: self.index()?,
                    datatype: self.optional_index()?,
                },
                1 => Terminal::AttributeIn(self.index()?),
                2 => Terminal::AttributeAny,
                3 => Terminal::Element {
                    name: self.index()?,
                    element: self.optional_index()?,
                },
                4 => Terminal::ElementIn(self.index()?),
                5 => Terminal::ElementAny,
                6 => Terminal::End,
                7 => Terminal::Characters(self.index()?),
                8 => Terminal::Untyped,
                _ => return None,
            };
            productions.push(Production { terminal, next });
        }
        Some(State {
            first,
            count,
            attributes,
            shape: Shape {
                entry: shape & 1 != 0,
                start_tag: shape & 2 != 0,
                end: shape & 4 != 0,
            },
            content,
            widths: State::widths(count),
        })
    }

    fn representation(&mut self) -> Option<Representation> {
        Some(match self.byte()? {
            0 => Representation::String,
            1 => Representation::Restricted(self.index()?),
            2 => Representation::Boolean,
            3 => Representation::PatternBoolean,
            4 => Representation::Integer,
            5 => Representation::Unsigned,
            6 => {
                let negative = self.flag()?;
                let magnitude = i128::try_from(self.number()?).ok()?;
                Representation::Bounded {
                    least: if negative { -magnitude } else { magnitude },
                    count: self.index()?,
                }
            }
            7 => Representation::Decimal,
            8 => Representation::Float,
            9 => Representation::DateTime(*DATE_TIME_KINDS.get(usize::from(self.byte()?))?),
            10 => Representation::Base64,
            11 => Representation::Hex,
            12 => Representation::List(self.index()?),
            13 => Representation::Enumeration {
                base: self.index()?,
                values: self.list(|reader| reader.text().map(String::from))?.into(),
            },
            _ => return None,
        })
    }
}

impl Schema {
    /// Computes the tables that follow from others.
    pub(super) fn rebuild_derived_tables(&mut self) {
        self.index_names();
        self.global_codes = alloc::vec![NONE; self.elements.len()];
        for (code, element) in self.global_elements.iter().enumerate() {
            self.global_codes[*element as usize] = code as u32;
        }
    }
}

#[cfg(test)]
#[cfg(feature = "std")]
mod tests {
    use super::*;
    use crate::{Decoder, Encoder, Event, Name, Options, Value, XsdSource};
    use alloc::sync::Arc;
    use alloc::vec;
    use proptest::prelude::*;

    const XSD: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns="urn:x"
        targetNamespace="urn:x" elementFormDefault="qualified">
      <xs:simpleType name="colour"><xs:restriction base="xs:token">
        <xs:enumeration value="red"/><xs:enumeration value="green"/></xs:restriction></xs:simpleType>
      <xs:simpleType name="few"><xs:restriction base="xs:int">
        <xs:minInclusive value="-3"/><xs:maxInclusive value="9"/></xs:restriction></xs:simpleType>
      <xs:simpleType name="code"><xs:restriction base="xs:string">
        <xs:pattern value="[A-F]+"/></xs:restriction></xs:simpleType>
      <xs:element name="root" nillable="true"><xs:complexType><xs:sequence>
        <xs:element name="few" type="few" maxOccurs="unbounded"/>
        <xs:element name="colours" minOccurs="0"><xs:simpleType>
          <xs:list itemType="colour"/></xs:simpleType></xs:element>
        <xs:element name="at" type="xs:dateTime"/>
        <xs:any namespace="urn:y" processContents="lax" minOccurs="0"/>
      </xs:sequence>
      <xs:attribute name="code" type="code"/><xs:anyAttribute/></xs:complexType></xs:element>
    </xs:schema>"#;

    fn compiled() -> Schema {
        let source = XsdSource {
            name: "x.xsd".into(),
            document: XSD.into(),
        };
        let schema = Schema::from_xsd(vec![source], &mut |_, _| None);
        schema.expect("it is a schema").with_id("x")
    }

    /// Encodes and decodes with possibly invalid grammars; only panics matter.
    fn encode_and_decode(schema: Schema) {
        let schema = Arc::new(schema);
        let names = [
            ("urn:x", "root"),
            ("urn:x", "few"),
            ("urn:y", "other"),
            ("urn:x", "at"),
        ];
        let names = names.map(|(namespace, local)| Name::new(namespace, local));
        for strict in [false, true] {
            let options = Options {
                strict,
                ..Options::default()
            };
            let mut encoder = Encoder::new(schema.clone());
            let mut stream = Vec::new();
            for inner in 0..names.len() {
                let Ok(mut writing) = encoder.begin(&options) else {
                    continue;
                };
                let events = [
                    Event::StartElement(names[0]),
                    Event::Attribute(Name::new("", "code"), Value::Text("ABC")),
                    Event::StartElement(names[inner]),
                    Event::Characters(Value::Integer(3)),
                    Event::EndElement,
                    Event::StartElement(Name::new("urn:x", "colours")),
                    Event::Characters(Value::Text("red green")),
                    Event::EndElement,
                    Event::EndElement,
                    Event::EndDocument,
                ];
                let written = events.iter().try_for_each(|event| writing.event(*event));
                if let (Ok(()), Ok(bytes)) = (written, writing.finish()) {
                    stream = bytes.to_vec();
                }
            }
            stream.extend([0x5a; 64]);
            stream[0] = 0x80;
            let mut decoder = Decoder::new(schema.clone()).with_limits(crate::Limits::datagram());
            if let Ok(mut reading) = decoder.begin(&stream, Some(&options)) {
                while let Ok(Some(_)) = reading.next_event() {}
            }
        }
    }

    #[test]
    fn compiled_schemas_load_unchanged() {
        for schema in [Schema::none(), Schema::built_in_types(), compiled()] {
            assert_eq!(Schema::from_bytes(&schema.to_bytes()), Ok(schema));
        }
    }

    #[test]
    fn foreign_old_and_damaged_bytes_are_refused() {
        let good = compiled().to_bytes();
        assert_eq!(
            Schema::from_bytes(b"<schema/>"),
            Err(CompiledError::NotCompiled)
        );
        assert_eq!(
            Schema::from_bytes(&good[..19]),
            Err(CompiledError::NotCompiled)
        );
        let mut other = good.clone();
        other[8] = 77;
        let version = CompiledError::Version { found: 77 };
        assert_eq!(Schema::from_bytes(&other), Err(version));
        for at in HEADER_BYTES..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            let what = CompiledError::Damaged("the checksum does not match");
            assert_eq!(Schema::from_bytes(&damaged), Err(what));
        }
    }

    proptest! {
        /// The checksum is correct, so that the tables themselves are checked.
        #[test]
        fn hostile_tables_are_refused_or_harmless(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            static COMPILED: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
            let mut bytes = COMPILED.get_or_init(|| compiled().to_bytes()).clone();
            for (at, value) in &changes {
                let at = HEADER_BYTES + at.index(bytes.len() - HEADER_BYTES);
                bytes[at] = *value;
            }
            if let Some(cut) = cut {
                bytes.truncate(HEADER_BYTES + cut.index(bytes.len() - HEADER_BYTES));
            }
            let sum = checksum(&bytes[HEADER_BYTES..]).to_le_bytes();
            bytes[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&sum);
            if let Ok(schema) = Schema::from_bytes(&bytes) {
                encode_and_decode(schema);
            }
        }
    }
}
