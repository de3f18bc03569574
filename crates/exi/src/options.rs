//! Options of a stream (5.4, 6.3).

use alloc::string::String;
use alloc::vec::Vec;

use crate::bits::Packing;
use crate::error::Cause;

/// Alignment of event codes and content items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alignment {
    /// Items are packed into bits without padding.
    #[default]
    BitPacked,
    /// Each item starts at a byte boundary.
    ByteAligned,
    /// The layout of compression without DEFLATE, for transports that compress themselves.
    PreCompression,
}

/// Fidelity options: parts of a document that are preserved in addition to elements, attributes and
/// character data (6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserve {
    /// Comments.
    pub comments: bool,
    /// Processing instructions.
    pub pis: bool,
    /// The document type declaration and entity references.
    pub dtd: bool,
    /// Namespace declarations and prefixes.
    pub prefixes: bool,
    /// The lexical form of values, in place of their typed form.
    pub lexical_values: bool,
}

/// The schema that informs the grammars, as the header identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SchemaId {
    /// The header does not name the schema; both sides know it from elsewhere.
    #[default]
    Absent,
    /// The stream is schema-less (`xsi:nil`).
    None,
    /// Only the built-in types of XML Schema (an empty schemaId).
    BuiltInTypes,
    /// The schema with this name.
    Named(String),
}

/// An expanded name in options.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct QName {
    /// The namespace name, or empty.
    pub namespace: String,
    /// The local part.
    pub local: String,
}

/// One entry of a datatype representation map (7.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Representation {
    /// The schema datatype. The entry also applies to types derived from it by restriction.
    pub datatype: QName,
    /// The representation, one of the built-in ones of EXI (table 7-1).
    pub representation: QName,
}

/// One item of user-defined metadata, in document order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metadata {
    /// Start of an element.
    Start(QName),
    /// The `xsi:type` of the innermost open element.
    Type(QName),
    /// Any other attribute of that element, with its lexical value.
    Attribute(QName, String),
    /// Character data.
    Text(String),
    /// End of the innermost open element.
    End,
}

/// Limits on the memory that a decoder needs for a stream, for small devices. Any decoder can read
/// a stream that keeps to such limits.
///
/// When a built-in grammar may learn no more, the encoder adds `xsi:type="xs:anyType"`, whose
/// grammar does not learn. Without a schema, or with preserved lexical values, it inserts
/// productions that a decoder counts and that are not used again.
///
/// Source: EXI Profile for limiting usage of dynamic memory, W3C Recommendation, 9 September 2014.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// If true, values are also looked up in the partition of their element or attribute; otherwise
    /// only in the global one.
    pub local_value_partitions: bool,
    /// Maximum number of built-in element grammars that learn; none means unlimited.
    pub maximum_number_of_built_in_element_grammars: Option<u32>,
    /// Maximum number of productions that they learn in total; none means unlimited.
    pub maximum_number_of_built_in_productions: Option<u32>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            local_value_partitions: true,
            maximum_number_of_built_in_element_grammars: None,
            maximum_number_of_built_in_productions: None,
        }
    }
}

/// The options of a stream. The defaults are those of the specification: bit-packed, not strict,
/// nothing preserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Alignment; [`Options::compression`] takes precedence.
    pub alignment: Alignment,
    /// Values are grouped by name into blocks and compressed with DEFLATE (9).
    pub compression: bool,
    /// Only content that the schema declares is allowed.
    pub strict: bool,
    /// The stream is a fragment with any number of root elements.
    pub fragment: bool,
    /// Fidelity options.
    pub preserve: Preserve,
    /// Elements may be self-contained, so that they can be decoded independently.
    pub self_contained: bool,
    /// The schemaId in the header.
    pub schema_id: SchemaId,
    /// Representations that replace the default ones of some datatypes.
    pub datatype_representation_map: Vec<Representation>,
    /// Maximum number of values in a block of a compressed or pre-compressed stream.
    pub block_size: u32,
    /// Maximum length, in characters, of a value that enters the string table; none means
    /// unlimited.
    pub value_max_length: Option<u32>,
    /// Maximum number of values in the string table; none means unlimited.
    pub value_partition_capacity: Option<u32>,
    /// EXI Profile limits that the encoder keeps to. If there are any, the header states them in
    /// element `p`.
    pub profile: Option<Profile>,
    /// Elements of other namespaces in the options document (5.4). They have no effect on the
    /// stream.
    pub metadata: Vec<Metadata>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            alignment: Alignment::BitPacked,
            compression: false,
            strict: false,
            fragment: false,
            preserve: Preserve::default(),
            self_contained: false,
            schema_id: SchemaId::Absent,
            datatype_representation_map: Vec::new(),
            block_size: Self::BLOCK_SIZE,
            value_max_length: None,
            value_partition_capacity: None,
            profile: None,
            metadata: Vec::new(),
        }
    }
}

impl Options {
    /// Default block size (5.4).
    pub const BLOCK_SIZE: u32 = 1_000_000;

    /// Returns true if values are stored in channels, apart from the structure (9).
    #[must_use]
    pub fn channels(&self) -> bool {
        self.compression || self.alignment == Alignment::PreCompression
    }

    pub(crate) fn packing(&self) -> Packing {
        match self.compression || self.alignment != Alignment::BitPacked {
            true => Packing::Bytes,
            false => Packing::Bits,
        }
    }

    /// Checks for options that exclude each other (5.4).
    pub(crate) fn check(&self) -> Result<(), Cause> {
        let wrong = |option, why| Err(Cause::Option { option, why });
        let preserve = self.preserve;
        if self.compression && self.alignment != Alignment::BitPacked {
            return wrong("alignment", "must not be combined with compression");
        }
        if self.strict && (preserve.comments || preserve.pis || preserve.dtd || preserve.prefixes) {
            return wrong(
                "strict",
                "the only fidelity option it allows is lexicalValues",
            );
        }
        if self.self_contained && (self.strict || self.channels()) {
            return wrong(
                "selfContained",
                "cannot be combined with strict, compression or pre-compression",
            );
        }
        if self.block_size == 0 {
            return wrong("blockSize", "must be at least 1");
        }
        Ok(())
    }
}
