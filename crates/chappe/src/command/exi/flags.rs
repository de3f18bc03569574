//! The command line of `exi`, with the specification's names for options.

use std::path::PathBuf;

use chappe_exi::{Alignment, Options, Preserve, Profile, QName, Representation, SchemaId};
use clap::{Args, Subcommand, ValueEnum};

/// Verbs of `exi`.
#[derive(Debug, Subcommand)]
pub(crate) enum Exi {
    /// Encode a document of text XML as an EXI stream.
    #[command(
        after_help = "Examples:\n  chappe exi encode order.xml -o order.exi\n  chappe exi encode order.xml --schema order.xsd --strict -o order.exi\n  curl -s http://192.0.2.7/status | chappe exi encode --schema dev1 --compression > status.exi\n\nThe header carries the options, so that a decoder needs no flags."
    )]
    Encode(Box<Encode>),
    /// Decode an EXI stream to text XML.
    #[command(
        after_help = "Examples:\n  chappe exi decode order.exi\n  chappe exi decode order.exi --schema order.xsd -o order.xml\n  chappe exi decode bare.exi --strict --schema order.exig      a stream without options\n\nOptions in the stream's header override flags. The stream's schemaId selects the schemas dev1,\nev1 and types."
    )]
    Decode(Box<Decode>),
    /// Explain a stream: its header, and the bytes of each item.
    #[command(
        after_help = "Examples:\n  chappe exi info order.exi --schema order.xsd\n  chappe exi info order.exi --top 50 --json"
    )]
    Info(Box<Info>),
    /// Compile schemas.
    #[command(
        subcommand,
        after_help = "Example:\n  chappe exi schema compile order.xsd -o order.exig"
    )]
    Schema(Schema),
}

/// Verbs of `exi schema`.
#[derive(Debug, Subcommand)]
pub(crate) enum Schema {
    /// Compile XML Schema documents to grammars that load in microseconds.
    ///
    /// Includes and imports are read from the directory of each document.
    #[command(
        after_help = "Examples:\n  chappe exi schema compile order.xsd -o order.exig\n  chappe exi schema compile soap.xsd order.xsd --schemaId order-3 -o order.exig"
    )]
    Compile(Compile),
}

/// Flags of `exi encode`.
#[derive(Debug, Args)]
pub(crate) struct Encode {
    /// The document; `-` is standard input.
    #[arg(default_value = "-", value_name = "XML")]
    pub input: PathBuf,
    /// The stream; `-` is standard output.
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    pub output: PathBuf,
    /// Options of the stream.
    #[command(flatten)]
    pub coding: Coding,
    /// Start the stream with the four bytes $EXI.
    #[arg(long)]
    pub cookie: bool,
    /// Omit the options from the header; the decoder must know them.
    #[arg(long)]
    pub omit_options: bool,
    /// Write canonical EXI: the same bytes for the same document, for signatures.
    #[arg(long, conflicts_with = "cookie")]
    pub canonical: bool,
    /// In canonical EXI, write times as Coordinated Universal Time.
    #[arg(long, requires = "canonical")]
    pub utc_time: bool,
}

/// Flags of `exi decode`.
#[derive(Debug, Args)]
pub(crate) struct Decode {
    /// The stream; `-` is standard input.
    #[arg(default_value = "-", value_name = "EXI")]
    pub input: PathBuf,
    /// The document; `-` is standard output.
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    pub output: PathBuf,
    /// Options of the stream, if its header has none.
    #[command(flatten)]
    pub coding: Coding,
}

/// Flags of `exi info`.
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// The stream; `-` is standard input.
    #[arg(default_value = "-", value_name = "EXI")]
    pub input: PathBuf,
    /// Options of the stream, if its header has none.
    #[command(flatten)]
    pub coding: Coding,
    /// List this many names, by bytes.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub top: usize,
}

/// Flags of `exi schema compile`.
#[derive(Debug, Args)]
pub(crate) struct Compile {
    /// The documents of the schema.
    #[arg(required = true, value_name = "XSD")]
    pub files: Vec<PathBuf>,
    /// The grammars; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The schemaId of streams. Default: the first file name without extension.
    #[arg(long = "schemaId", value_name = "ID")]
    pub schema_id: Option<String>,
}

/// Layout of event codes and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AlignmentName {
    /// Bit by bit.
    BitPacked,
    /// Each item starts at a byte.
    ByteAlignment,
    /// As for compression, for transports that compress.
    PreCompression,
}

/// The options of a stream.
#[derive(Debug, Args)]
#[command(next_help_heading = "EXI stream")]
pub(crate) struct Coding {
    /// A schema: XSD files, compiled grammars, dev1, ev1 or types.
    ///
    /// dev1 has SOAP, WS-Addressing, WS-Eventing and DPWS, ev1 events, types the built-in types alone.
    /// Repeat the flag for several XSD files.
    #[arg(long, value_name = "SCHEMA")]
    pub schema: Vec<PathBuf>,
    /// The schema's name in the header.
    ///
    /// Default: the name given at compilation, or the first file name without extension.
    #[arg(long = "schemaId", value_name = "ID")]
    pub schema_id: Option<String>,
    /// Layout of event codes and values.
    #[arg(long, value_enum, default_value = "bit-packed")]
    pub alignment: AlignmentName,
    /// Compress with DEFLATE.
    #[arg(long)]
    pub compression: bool,
    /// Allow only items that the schema declares.
    #[arg(long)]
    pub strict: bool,
    /// Allow any number of root elements.
    #[arg(long)]
    pub fragment: bool,
    /// Keep comments.
    #[arg(long = "preserve.comments")]
    pub comments: bool,
    /// Keep processing instructions.
    #[arg(long = "preserve.pis")]
    pub pis: bool,
    /// Keep the document type declaration and entity references.
    #[arg(long = "preserve.dtd")]
    pub dtd: bool,
    /// Keep prefixes and namespace declarations.
    #[arg(long = "preserve.prefixes")]
    pub prefixes: bool,
    /// Keep the lexical form of values.
    #[arg(long = "preserve.lexicalValues")]
    pub lexical_values: bool,
    /// Allow self-contained elements.
    #[arg(long = "selfContained", hide_short_help = true)]
    pub self_contained: bool,
    /// Number of values in a block of a compressed stream.
    #[arg(long = "blockSize", default_value_t = Options::BLOCK_SIZE, value_name = "N", hide_short_help = true)]
    pub block_size: u32,
    /// Longest value in the string table, in characters. Default: any.
    #[arg(long = "valueMaxLength", value_name = "N", hide_short_help = true)]
    pub value_max_length: Option<u32>,
    /// Maximum number of values in the string table. Default: any number.
    #[arg(
        long = "valuePartitionCapacity",
        value_name = "N",
        hide_short_help = true
    )]
    pub value_partition_capacity: Option<u32>,
    /// Another representation of a datatype; may be repeated.
    ///
    /// A name is {NAMESPACE}LOCAL, or LOCAL of XML Schema and of EXI.
    #[arg(
        long = "datatypeRepresentationMap",
        value_name = "DATATYPE=REPRESENTATION",
        value_parser = representation,
        hide_short_help = true
    )]
    pub datatype_representation_map: Vec<Representation>,
    /// EXI Profile: use the global string table only.
    #[arg(long = "noLocalValuePartitions", hide_short_help = true)]
    pub no_local_value_partitions: bool,
    /// EXI Profile: maximum number of built-in element grammars that evolve.
    #[arg(
        long = "maximumNumberOfBuiltInElementGrammars",
        value_name = "N",
        hide_short_help = true
    )]
    pub built_in_element_grammars: Option<u32>,
    /// EXI Profile: maximum number of productions added to these grammars, in total.
    #[arg(
        long = "maximumNumberOfBuiltInProductions",
        value_name = "N",
        hide_short_help = true
    )]
    pub built_in_productions: Option<u32>,
}

impl Coding {
    /// The options, with this schemaId for the header.
    pub(crate) fn options(&self, schema_id: SchemaId) -> Options {
        let profile = Profile {
            local_value_partitions: !self.no_local_value_partitions,
            maximum_number_of_built_in_element_grammars: self.built_in_element_grammars,
            maximum_number_of_built_in_productions: self.built_in_productions,
        };
        Options {
            alignment: match self.alignment {
                AlignmentName::BitPacked => Alignment::BitPacked,
                AlignmentName::ByteAlignment => Alignment::ByteAligned,
                AlignmentName::PreCompression => Alignment::PreCompression,
            },
            compression: self.compression,
            strict: self.strict,
            fragment: self.fragment,
            preserve: Preserve {
                comments: self.comments,
                pis: self.pis,
                dtd: self.dtd,
                prefixes: self.prefixes,
                lexical_values: self.lexical_values,
            },
            self_contained: self.self_contained,
            schema_id,
            datatype_representation_map: self.datatype_representation_map.clone(),
            block_size: self.block_size,
            value_max_length: self.value_max_length,
            value_partition_capacity: self.value_partition_capacity,
            profile: (profile != Profile::default()).then_some(profile),
            metadata: Vec::new(),
        }
    }
}

/// An entry of a datatype representation map.
fn representation(text: &str) -> Result<Representation, String> {
    let split = match text.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        // A namespace may hold an equals sign.
        Some((namespace, rest)) => rest
            .split_once('=')
            .map(|(local, right)| (name(namespace, local), right)),
        None => text
            .split_once('=')
            .map(|(local, right)| (name("http://www.w3.org/2001/XMLSchema", local), right)),
    };
    let (datatype, right) = split.ok_or("write DATATYPE=REPRESENTATION")?;
    let representation = match right
        .strip_prefix('{')
        .and_then(|rest| rest.split_once('}'))
    {
        Some((namespace, local)) => name(namespace, local),
        None => name("http://www.w3.org/2009/exi", right),
    };
    Ok(Representation {
        datatype,
        representation,
    })
}

fn name(namespace: &str, local: &str) -> QName {
    QName {
        namespace: namespace.to_owned(),
        local: local.to_owned(),
    }
}
