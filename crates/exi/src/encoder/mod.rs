//! Encoding events to a stream.

mod attributes;
mod block;
mod body;
mod canonical;
mod kept;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::bits::{BitWriter, Packing};
use crate::datatype::Scratch;
use crate::error::{Cause, Error};
use crate::event::Event;
use crate::grammar::Grammar;
use crate::header::{self, Header};
use crate::limits::Limits;
use crate::options::Options;
use crate::schema::Schema;
use crate::tables::ValuePartitions;
use attributes::Attributes;
use block::Block;
use body::SuspendedBody;
pub use canonical::CanonicalOptions;

/// Contents of a stream's header (5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderOptions {
    /// Start with the cookie, the four bytes `$EXI`.
    pub cookie: bool,
    /// Include the options, so that a decoder need not know them.
    pub options: bool,
}

/// Encodes consecutive documents of one schema and reuses its tables and buffers.
#[derive(Debug)]
pub struct Encoder {
    pub(crate) grammar: Grammar,
    pub(crate) values: ValuePartitions,
    limits: Limits,
    writer: BitWriter,
    scratch: Scratch,
    attributes: Attributes,
    /// The prefix of the innermost element's name.
    element_prefix: String,
    block: Block,
    /// Prefixes in scope: depth, prefix, namespace.
    scope: Vec<(usize, String, String)>,
    suspended: Vec<SuspendedBody>,
    /// Options of a canonical stream; none for other streams.
    canonical: Option<CanonicalOptions>,
    pending: canonical::PendingEvents,
    header: Option<alloc::boxed::Box<Encoder>>,
    /// The last options document, which the next stream probably repeats.
    cached_options: CachedOptions,
}

impl Encoder {
    /// Creates an encoder for documents of this schema.
    #[must_use]
    pub fn new(schema: Arc<Schema>) -> Self {
        Self {
            grammar: Grammar::new(schema),
            values: ValuePartitions::default(),
            limits: Limits::default(),
            writer: BitWriter::new(Packing::Bits),
            scratch: Scratch::default(),
            attributes: Attributes::default(),
            element_prefix: String::new(),
            block: Block::default(),
            scope: Vec::new(),
            suspended: Vec::new(),
            canonical: None,
            pending: canonical::PendingEvents::default(),
            header: None,
            cached_options: CachedOptions::default(),
        }
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Starts a stream without options in its header.
    ///
    /// # Errors
    /// Options that exclude each other.
    pub fn begin(&mut self, options: &Options) -> Result<StreamWriter<'_>, Error> {
        self.begin_with(options, HeaderOptions::default())
    }

    /// Starts a stream with this header.
    ///
    /// # Errors
    /// Options that exclude each other.
    pub fn begin_with(
        &mut self,
        options: &Options,
        header: HeaderOptions,
    ) -> Result<StreamWriter<'_>, Error> {
        let mut writer = core::mem::replace(&mut self.writer, BitWriter::new(Packing::Bits));
        writer.clear(Packing::Bits);
        let start = Header {
            cookie: header.cookie,
            preview: false,
            options: header.options,
        };
        header::write_preamble(&mut writer, &start);
        if header.options {
            writer = self.options_document(writer, options)?;
        }
        self.begin_body(writer, options)
    }

    /// Writes the options document.
    fn options_document(
        &mut self,
        mut writer: BitWriter,
        options: &Options,
    ) -> Result<BitWriter, Error> {
        if self.cached_options.options.as_ref() == Some(options) {
            let (last, bits) = self.cached_options.trailing_bits;
            writer.octets(&self.cached_options.bytes);
            // Fewer than eight bits, left-aligned.
            writer.raw_bits(u32::from(last) >> (8 - bits), bits);
            return Ok(writer);
        }
        let encoder = self.header.get_or_insert_with(|| {
            alloc::boxed::Box::new(Self::new(Arc::new(header::options_schema())))
        });
        // The header up to here consists of whole bytes.
        let from = (writer.bit_offset() / 8) as usize;
        let mut writer = encoder.write_options(writer, options)?;
        self.cached_options.bytes.clear();
        self.cached_options.trailing_bits = writer.copy_from(from, &mut self.cached_options.bytes);
        self.cached_options.options = Some(options.clone());
        Ok(writer)
    }

    /// Writes an options document with the encoder of its schema.
    fn write_options(&mut self, writer: BitWriter, options: &Options) -> Result<BitWriter, Error> {
        let mut writing = self.begin_body(writer, &header::document_options())?;
        let mut events = Vec::new();
        header::options_events(options, &mut events);
        writing.event(Event::StartDocument)?;
        for event in events {
            writing.event(event)?;
        }
        writing.event(Event::EndDocument)?;
        writing.into_writer()
    }

    /// Starts a body after the content of `writer`.
    pub(crate) fn begin_body(
        &mut self,
        mut writer: BitWriter,
        options: &Options,
    ) -> Result<StreamWriter<'_>, Error> {
        let begun = self.grammar.begin(options, &self.limits);
        begun.map_err(|cause| Error {
            offset: writer.bit_offset(),
            path: String::new(),
            cause,
        })?;
        self.grammar.profile = options.profile;
        writer.set_packing(options.packing());
        self.reset_values();
        self.scope.clear();
        self.suspended.clear();
        self.attributes.clear();
        self.block.reset();
        self.canonical = None;
        self.pending.clear();
        if options.channels() {
            self.block.out.extend_from_slice(writer.finish());
            writer.clear(Packing::Bytes);
        }
        self.writer = writer;
        Ok(StreamWriter {
            encoder: self,
            failed: None,
        })
    }

    fn reset_values(&mut self) {
        let options = &self.grammar.options;
        self.values.reset(
            true,
            options.value_partition_capacity,
            options.value_max_length,
            self.limits.table_bytes,
        );
        let profile = options.profile.unwrap_or_default();
        self.values.global_only = !profile.local_value_partitions;
    }
}

/// A cached options document and its encoding.
#[derive(Debug, Default)]
struct CachedOptions {
    options: Option<Options>,
    bytes: Vec<u8>,
    /// Bits after the last whole byte, left-aligned, and their number.
    trailing_bits: (u8, u32),
}

/// A stream that is being encoded. After an error, every call returns the same error.
#[derive(Debug)]
pub struct StreamWriter<'e> {
    encoder: &'e mut Encoder,
    failed: Option<Error>,
}

impl<'e> StreamWriter<'e> {
    /// Encodes the next event. Comments, processing instructions, document type declarations and
    /// namespace declarations are skipped unless the options preserve them.
    ///
    /// # Errors
    /// A strict schema does not allow the event or its value, or the events do not form a document.
    pub fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let taken = match self.encoder.canonical {
            Some(_) => self.encoder.encode_canonical_event(event),
            None => self.encoder.encode_event(&event),
        };
        taken.map_err(|cause| self.fail(cause))
    }

    fn canonical(&mut self, canonical: CanonicalOptions) {
        self.encoder.canonical = Some(canonical);
    }

    fn fail(&mut self, cause: Cause) -> Error {
        let error = Error {
            offset: self.encoder.writer.bit_offset(),
            path: self.encoder.grammar.path(),
            cause,
        };
        self.failed = Some(error.clone());
        error
    }

    /// Passes the finished bytes to `take`, so that a long stream is never in memory as a whole;
    /// the slice is empty if there are none yet. [`StreamWriter::finish`] then returns only the bytes
    /// after them.
    pub fn drain(&mut self, take: impl FnOnce(&[u8])) {
        let Encoder {
            grammar,
            writer,
            block,
            ..
        } = &mut *self.encoder;
        if grammar.options.channels() {
            take(&block.out);
            block.out.clear();
        } else {
            take(writer.whole_bytes());
            writer.discard_whole_bytes();
        }
    }

    /// Returns the whole stream once the document has ended.
    ///
    /// # Errors
    /// The document is incomplete.
    pub fn finish(mut self) -> Result<&'e [u8], Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !self.encoder.has_ended() {
            return Err(self.fail(Cause::Misuse(
                "the document is incomplete: EndDocument is missing",
            )));
        }
        Ok(self.encoder.finished_bytes())
    }

    /// Returns the writer after a body without a header; its last byte is not padded.
    pub(crate) fn into_writer(self) -> Result<BitWriter, Error> {
        let writer = &mut self.encoder.writer;
        Ok(core::mem::replace(writer, BitWriter::new(Packing::Bits)))
    }
}
