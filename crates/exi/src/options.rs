//! How a stream is coded (5.4, 6.3).

use alloc::string::String;
use alloc::vec::Vec;

use crate::bits::Packing;
use crate::error::Cause;

/// How event codes and content items are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alignment {
    /// One bit after another.
    #[default]
    BitPacked,
    /// Each item begins at a byte.
    ByteAligned,
    /// As for compression, without DEFLATE: for transports that compress themselves.
    PreCompression,
}

/// What of a document is kept beyond elements, attributes and character data (6.3).
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
    /// Values as they were written, rather than by their type.
    pub lexical_values: bool,
}

/// Which schema informs the grammars.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SchemaId {
    /// The header says nothing of it; both sides know.
    #[default]
    Absent,
    /// None: a schema-less stream (`xsi:nil`).
    None,
    /// Only the types of XML Schema (an empty schemaId).
    BuiltInTypes,
    /// The schema of that name.
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
    /// The schema datatype, which it holds for with all that derive from it by restriction.
    pub datatype: QName,
    /// The representation: one of those that EXI has (table 7-1).
    pub representation: QName,
}

/// A part of user-defined metadata, in the order of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metadata {
    /// An element begins.
    Start(QName),
    /// The `xsi:type` of the element just started.
    Type(QName),
    /// Another attribute of it, by its lexical form.
    Attribute(QName, String),
    /// Character data.
    Text(String),
    /// The innermost open element ends.
    End,
}

/// Limits on what a reader must remember of a stream, for small devices. Streams within them are
/// ordinary ones, so that any decoder reads them.
///
/// Where nothing more may be learnt an element gets `xsi:type="xs:anyType"`, whose grammar does not
/// learn; without a schema, or with preserved lexical values, productions that a reader counts and
/// never sees again.
///
/// Source: EXI Profile for limiting usage of dynamic memory, W3C Recommendation, 9 September 2014.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Values are looked up by the name of their element or attribute, too; else only among all.
    pub local_value_partitions: bool,
    /// Most built-in element grammars that learn; none: any number.
    pub maximum_number_of_built_in_element_grammars: Option<u32>,
    /// Most productions that they learn in all; none: any number.
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

/// The options of a stream. The default is that of the specification: bit-packed, not strict,
/// nothing preserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Layout; [`Options::compression`] stands above it.
    pub alignment: Alignment,
    /// Blocks of values by name, compressed with DEFLATE (9).
    pub compression: bool,
    /// Only what the schema declares.
    pub strict: bool,
    /// Any number of root elements.
    pub fragment: bool,
    /// What is kept.
    pub preserve: Preserve,
    /// Elements that can be read by themselves.
    pub self_contained: bool,
    /// The name of the schema, as the header has it.
    pub schema_id: SchemaId,
    /// Other representations for some datatypes.
    pub datatype_representation_map: Vec<Representation>,
    /// Values in a block of a compressed or pre-compressed stream.
    pub block_size: u32,
    /// Longest value, in characters, that enters the string table; none: any.
    pub value_max_length: Option<u32>,
    /// Most values in the string table; none: any number.
    pub value_partition_capacity: Option<u32>,
    /// The limits of the EXI Profile that the stream keeps to, said in its header as element `p` if
    /// there are any.
    pub profile: Option<Profile>,
    /// What else the options document says, in elements of other namespaces than EXI's (5.4). It has no
    /// effect on the stream.
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
    /// The block size when none is said (5.4).
    pub const BLOCK_SIZE: u32 = 1_000_000;

    /// Whether values travel in channels, apart from the structure (9).
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

    /// What excludes what (5.4).
    pub(crate) fn check(&self) -> Result<(), Cause> {
        let wrong = |option, why| Err(Cause::Option { option, why });
        let preserve = self.preserve;
        if self.compression && self.alignment != Alignment::BitPacked {
            return wrong(
                "alignment",
                "it must not be given together with compression",
            );
        }
        if self.strict && (preserve.comments || preserve.pis || preserve.dtd || preserve.prefixes) {
            return wrong(
                "strict",
                "of what is to be preserved it allows only lexicalValues",
            );
        }
        if self.self_contained && (self.strict || self.channels()) {
            return wrong(
                "selfContained",
                "it excludes strict, compression and pre-compression",
            );
        }
        if self.block_size == 0 {
            return wrong("blockSize", "it must be at least 1");
        }
        Ok(())
    }
}
