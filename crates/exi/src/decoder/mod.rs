//! From a stream to events.

mod block;
mod body;

use alloc::sync::Arc;

use crate::bits::{BitReader, Packing, Source};
use crate::datatype::{Buffers, Found};
use crate::error::{Cause, Error};
use crate::event::Event;
use crate::grammar::Grammar;
use crate::header::{self, Header};
use crate::limits::Limits;
use crate::options::{Options, SchemaId};
use crate::schema::Schema;
use crate::tables::Values;
use block::Block;
use body::Raw;

/// Decodes streams of one schema, one after another; its tables and buffers are reused.
///
/// ```
/// use chappe_exi::{Decoder, Encoder, Event, Name, Options, Schema};
/// use std::sync::Arc;
/// let schema = Arc::new(Schema::none());
/// let mut encoder = Encoder::new(schema.clone());
/// let mut writing = encoder.begin(&Options::default())?;
/// for event in [
///     Event::StartDocument,
///     Event::StartElement(Name::new("", "greeting")),
///     Event::Characters("hello".into()),
///     Event::EndElement,
///     Event::EndDocument,
/// ] {
///     writing.event(event)?;
/// }
/// let stream = writing.finish()?.to_vec();
/// let mut decoder = Decoder::new(schema);
/// let mut reading = decoder.begin(&stream, Some(&Options::default()))?;
/// assert_eq!(reading.next_event()?, Some(Event::StartDocument));
/// assert_eq!(reading.next_event()?, Some(Event::StartElement(Name::new("", "greeting"))));
/// assert_eq!(reading.next_event()?, Some(Event::Characters("hello".into())));
/// # Ok::<(), chappe_exi::Error>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    pub(crate) grammar: Grammar,
    pub(crate) values: Values,
    pub(crate) limits: Limits,
    pub(crate) buffers: Buffers,
    /// The present event, and its value.
    pub(crate) raw: Raw,
    pub(crate) found: Found,
    /// Strings of events that are no values.
    pub(crate) strings: [alloc::string::String; 4],
    block: Block,
    /// Prefixes in scope, where xsi:type values are strings: depth, prefix, namespace.
    scope: alloc::vec::Vec<(usize, alloc::string::String, alloc::string::String)>,
    /// For the options document.
    header: Option<alloc::boxed::Box<Decoder>>,
    /// The options document that was read last, as the next one is likely the same.
    known: Known,
}

impl Decoder {
    /// A decoder of streams of this schema.
    #[must_use]
    pub fn new(schema: Arc<Schema>) -> Self {
        Self {
            grammar: Grammar::new(schema),
            values: Values::default(),
            limits: Limits::default(),
            buffers: Buffers::default(),
            raw: Raw::StartDocument,
            found: Found::Text,
            strings: Default::default(),
            block: Block::default(),
            scope: alloc::vec::Vec::new(),
            header: None,
            known: Known::default(),
        }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Begins a stream: reads its header. `options` are those of a stream that has none in its
    /// header; a stream's own options stand above them.
    ///
    /// # Errors
    /// A header that is none, options that exclude each other, another schema than the stream was
    /// made with, or no options at all.
    pub fn begin<'d, 's>(
        &'d mut self,
        stream: &'s [u8],
        options: Option<&Options>,
    ) -> Result<Reading<'d, 's>, Error> {
        self.begin_reading(BitReader::new(stream, Packing::Bits), options)
    }

    /// Begins a stream that a source gives piece by piece: a file, a connection. Of it no more is kept
    /// than an event needs; a compressed block is kept inflated.
    ///
    /// # Errors
    /// As [`Decoder::begin`], and [`Cause::Source`].
    ///
    /// ```
    /// use chappe_exi::{Decoder, Encoder, HeaderOptions, Options, Schema, text};
    /// use std::sync::Arc;
    /// let schema = Arc::new(Schema::none());
    /// let mut encoder = Encoder::new(schema.clone());
    /// let header = HeaderOptions { cookie: false, options: true };
    /// let stream = text::encode(&mut encoder, &Options::default(), header, b"<a>1</a>")?.to_vec();
    /// let mut file = std::io::Cursor::new(stream);
    /// let mut decoder = Decoder::new(schema);
    /// let mut reading = decoder.begin_source(&mut file, None)?;
    /// while let Some(event) = reading.next_event()? {
    ///     println!("{event:?}");
    /// }
    /// # Ok::<(), chappe_exi::text::Error>(())
    /// ```
    pub fn begin_source<'d, 's>(
        &'d mut self,
        source: &'s mut dyn Source,
        options: Option<&Options>,
    ) -> Result<Reading<'d, 's>, Error> {
        self.begin_reading(BitReader::of(source, Packing::Bits), options)
    }

    fn begin_reading<'d, 's>(
        &'d mut self,
        mut reader: BitReader<'s>,
        options: Option<&Options>,
    ) -> Result<Reading<'d, 's>, Error> {
        let at = |reader: &mut BitReader<'_>, cause| Error {
            offset: reader.bit_offset(),
            path: alloc::string::String::new(),
            cause: reader.explained(cause),
        };
        let cookie = header::read_start(&mut reader).map_err(|cause| at(&mut reader, cause))?;
        let in_band = cookie.options;
        if in_band {
            self.options_document(&mut reader)?;
        }
        let known = self.known.options.as_ref().filter(|_| in_band);
        let chosen = known.or(options).ok_or(Cause::OptionsMissing);
        let chosen = chosen.map_err(|cause| at(&mut reader, cause))?;
        if in_band {
            check_schema(&self.grammar.schema, &chosen.schema_id)
                .map_err(|c| at(&mut reader, c))?;
        }
        reader.set_packing(chosen.packing());
        let begun = self.grammar.begin(chosen, &self.limits);
        begun.map_err(|cause| at(&mut reader, cause))?;
        self.reading(reader, cookie, in_band)
    }

    /// Reads the options document into what is known.
    fn options_document(&mut self, reader: &mut BitReader<'_>) -> Result<(), Error> {
        let known = &mut self.known;
        if known.options.is_some() && reader.take(known.bits, &known.bytes) {
            return Ok(());
        }
        known.options = None;
        known.bytes.clear();
        // Of a source the bytes may be gone once the document is read: kept are those of memory.
        known.bytes.extend_from_slice(reader.rest_in_memory());
        let from = reader.bit_offset();
        let decoder = self.header.get_or_insert_with(|| {
            alloc::boxed::Box::new(Self::new(Arc::new(header::options_schema())))
        });
        self.known.options = Some(header::read_options(decoder, reader)?);
        let known = &mut self.known;
        known.bits = reader.bit_offset() - from;
        let bytes = usize::try_from(known.bits.div_ceil(8)).unwrap_or(usize::MAX);
        if known.bytes.len() < bytes {
            // Never the same as what comes.
            known.bits = u64::MAX;
        }
        known.bytes.truncate(bytes);
        Ok(())
    }

    /// Begins a body without a header.
    pub(crate) fn begin_body<'d, 's>(
        &'d mut self,
        reader: BitReader<'s>,
        options: &Options,
    ) -> Result<Reading<'d, 's>, Error> {
        let begun = self.grammar.begin(options, &self.limits);
        begun.map_err(|cause| Error {
            offset: reader.bit_offset(),
            path: alloc::string::String::new(),
            cause,
        })?;
        self.reading(reader, Header::default(), false)
    }

    fn reading<'d, 's>(
        &'d mut self,
        reader: BitReader<'s>,
        header: Header,
        in_band: bool,
    ) -> Result<Reading<'d, 's>, Error> {
        self.reset_values();
        self.buffers.octets_max = self.limits.string_characters;
        self.scope.clear();
        self.block.reset();
        Ok(Reading {
            decoder: self,
            reader,
            header,
            in_band,
            started: false,
            events: 0,
            failed: None,
            saved: alloc::vec::Vec::new(),
        })
    }

    fn reset_values(&mut self) {
        let options = &self.grammar.options;
        self.values.reset(
            false,
            options.value_partition_capacity,
            options.value_max_length,
            self.limits.table_bytes,
        );
    }
}

/// An options document in bits.
#[derive(Debug, Default)]
struct Known {
    options: Option<Options>,
    bytes: alloc::vec::Vec<u8>,
    bits: u64,
}

/// Whether the schema at hand is the one that a header names.
fn check_schema(schema: &Schema, wanted: &SchemaId) -> Result<(), Cause> {
    use alloc::format;
    let wanted = match wanted {
        SchemaId::Absent => return Ok(()),
        SchemaId::None if !schema.informed => return Ok(()),
        SchemaId::BuiltInTypes if schema.informed && schema.id.is_empty() => return Ok(()),
        SchemaId::Named(wanted) if schema.informed && *wanted == schema.id => return Ok(()),
        SchemaId::None => "none (xsi:nil)",
        SchemaId::BuiltInTypes => "",
        SchemaId::Named(wanted) => wanted,
    };
    let loaded = match (schema.informed, schema.id.as_str()) {
        (false, _) => "and none is loaded".into(),
        (true, "") => "and only the types of XML Schema are loaded".into(),
        (true, id) => format!("and {id:?} is loaded"),
    };
    Err(Cause::Schema {
        wanted: wanted.into(),
        loaded,
    })
}

/// A stream that is being decoded. After an error it repeats it.
#[derive(Debug)]
pub struct Reading<'d, 's> {
    decoder: &'d mut Decoder,
    reader: BitReader<'s>,
    header: Header,
    in_band: bool,
    started: bool,
    events: u64,
    failed: Option<Error>,
    /// States around self-contained elements.
    saved: alloc::vec::Vec<body::Saved>,
}

impl<'s> Reading<'_, 's> {
    /// The options in effect.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.decoder.grammar.options
    }

    /// What the header begins with.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the options came with the stream.
    #[must_use]
    pub fn options_in_band(&self) -> bool {
        self.in_band
    }

    /// The bit that comes next, from the begin of the stream.
    #[must_use]
    pub fn bit_offset(&self) -> u64 {
        self.reader.bit_offset()
    }

    pub(crate) fn into_reader(self) -> BitReader<'s> {
        self.reader
    }

    /// The next event, or none behind [`Event::EndDocument`].
    ///
    /// # Errors
    /// A stream that is damaged, truncated, beyond a limit, or of another schema.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.advance() {
            Ok(true) => Ok(body::shown(self.decoder)),
            Ok(false) => Ok(None),
            Err(cause) => Err(self.fail(cause)),
        }
    }

    #[cold]
    fn fail(&mut self, cause: Cause) -> Error {
        let error = Error {
            offset: self.reader.bit_offset(),
            path: self.decoder.grammar.path(),
            cause: self.reader.explained(cause),
        };
        self.failed = Some(error.clone());
        error
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, Cause> {
        if !self.started {
            self.started = true;
            self.decoder.raw = Raw::StartDocument;
            return Ok(true);
        }
        self.events += 1;
        if self.events > self.decoder.limits.events {
            return Err(Cause::limit("events", self.decoder.limits.events));
        }
        if self.decoder.grammar.options.channels() {
            return self.next_of_block();
        }
        let more = self.decoder.step(&mut self.reader, &mut self.saved)?;
        if more {
            self.decoder.read_value(&mut self.reader)?;
        }
        Ok(more)
    }
}
