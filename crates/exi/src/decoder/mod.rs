//! Decoding a stream to events.

mod block;
mod body;
mod content;
mod event;
mod value;

use alloc::string::String;
use alloc::sync::Arc;

use crate::bits::{BitReader, Packing, Source};
use crate::datatype::{Buffers, DecodedValue};
use crate::error::{Cause, Error};
use crate::event::Event;
use crate::grammar::Grammar;
use crate::header::{self, Header, OptionsReader};
use crate::limits::Limits;
use crate::options::{Options, SchemaId};
use crate::schema::Schema;
use crate::tables::ValuePartitions;
use block::Block;
use event::RawEvent;

/// Decodes consecutive streams of one schema and reuses its tables and buffers.
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
    pub(crate) values: ValuePartitions,
    pub(crate) limits: Limits,
    pub(crate) buffers: Buffers,
    /// The current event and its value.
    pub(crate) raw: RawEvent,
    pub(crate) decoded_value: DecodedValue,
    /// Strings of the current event that are not values.
    pub(crate) strings: [alloc::string::String; 4],
    block: Block,
    /// Prefixes in scope if xsi:type values are strings: depth, prefix, namespace.
    scope: alloc::vec::Vec<(usize, alloc::string::String, alloc::string::String)>,
    /// The decoder of options documents.
    header: Option<alloc::boxed::Box<Decoder>>,
    /// The last options document, which the next stream probably repeats.
    cached_options: CachedOptions,
}

impl Decoder {
    /// Creates a decoder of streams of this schema.
    #[must_use]
    pub fn new(schema: Arc<Schema>) -> Self {
        Self {
            grammar: Grammar::new(schema),
            values: ValuePartitions::default(),
            limits: Limits::default(),
            buffers: Buffers::default(),
            raw: RawEvent::StartDocument,
            decoded_value: DecodedValue::Text,
            strings: Default::default(),
            block: Block::default(),
            scope: alloc::vec::Vec::new(),
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

    /// Starts a stream and reads its header. `options` apply to a stream without options in its
    /// header; a stream's own options take precedence.
    ///
    /// # Errors
    /// The header is malformed, options exclude each other, the stream requires another schema, or
    /// there are no options.
    pub fn begin<'d, 's>(
        &'d mut self,
        stream: &'s [u8],
        options: Option<&Options>,
    ) -> Result<StreamReader<'d, 's>, Error> {
        self.begin_reading(BitReader::new(stream, Packing::Bits), options)
    }

    /// Starts a stream that is read from a source, such as a file or a connection. The decoder
    /// buffers only the bytes that an event needs, and compressed blocks after inflating them.
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
    ) -> Result<StreamReader<'d, 's>, Error> {
        self.begin_reading(BitReader::from_source(source, Packing::Bits), options)
    }

    fn begin_reading<'d, 's>(
        &'d mut self,
        mut reader: BitReader<'s>,
        options: Option<&Options>,
    ) -> Result<StreamReader<'d, 's>, Error> {
        let at = |reader: &mut BitReader<'_>, cause| Error {
            offset: reader.bit_offset(),
            path: alloc::string::String::new(),
            cause: reader.with_source_failure(cause),
        };
        let cookie = header::read_preamble(&mut reader).map_err(|cause| at(&mut reader, cause))?;
        let in_band = cookie.options;
        if in_band {
            self.options_document(&mut reader)?;
        }
        let known = self.cached_options.options.as_ref().filter(|_| in_band);
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

    /// Reads the options document and caches it.
    fn options_document(&mut self, reader: &mut BitReader<'_>) -> Result<(), Error> {
        let known = &mut self.cached_options;
        if known.options.is_some() && reader.skip_if_next(known.bits, &known.bytes) {
            return Ok(());
        }
        known.options = None;
        known.bytes.clear();
        // Only documents in memory are cached; the bytes of a source may be discarded by then.
        known.bytes.extend_from_slice(reader.rest_in_memory());
        let from = reader.bit_offset();
        let decoder = self.header.get_or_insert_with(|| {
            alloc::boxed::Box::new(Self::new(Arc::new(header::options_schema())))
        });
        self.cached_options.options = Some(decoder.read_options(reader)?);
        let known = &mut self.cached_options;
        known.bits = reader.bit_offset() - from;
        let bytes = usize::try_from(known.bits.div_ceil(8)).unwrap_or(usize::MAX);
        if known.bytes.len() < bytes {
            // This length never matches.
            known.bits = u64::MAX;
        }
        known.bytes.truncate(bytes);
        Ok(())
    }

    /// Reads an options document with the decoder of its schema.
    fn read_options(&mut self, reader: &mut BitReader<'_>) -> Result<Options, Error> {
        let mut body = core::mem::replace(reader, BitReader::new(&[], Packing::Bits));
        body.set_packing(Packing::Bits);
        let mut reading = self.begin_body(body, &header::document_options())?;
        let mut options = OptionsReader::new();
        loop {
            let offset = reading.bit_offset();
            let Some(event) = reading.next_event()? else {
                break;
            };
            options.apply(&event).map_err(|cause| Error {
                offset,
                path: "/header".into(),
                cause,
            })?;
        }
        *reader = reading.into_reader();
        options.finish().map_err(|cause| Error {
            offset: reader.bit_offset(),
            path: String::new(),
            cause,
        })
    }

    /// Starts a body without a header.
    pub(crate) fn begin_body<'d, 's>(
        &'d mut self,
        reader: BitReader<'s>,
        options: &Options,
    ) -> Result<StreamReader<'d, 's>, Error> {
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
    ) -> Result<StreamReader<'d, 's>, Error> {
        self.reset_values();
        self.buffers.octets_max = self.limits.string_characters;
        self.scope.clear();
        self.block.reset();
        Ok(StreamReader {
            decoder: self,
            reader,
            header,
            in_band,
            started: false,
            events: 0,
            failed: None,
            suspended: alloc::vec::Vec::new(),
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

/// A cached options document and its encoding.
#[derive(Debug, Default)]
struct CachedOptions {
    options: Option<Options>,
    bytes: alloc::vec::Vec<u8>,
    bits: u64,
}

/// Checks that the loaded schema is the one that the header names.
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

/// A stream that is being decoded. After an error, every call returns the same error.
#[derive(Debug)]
pub struct StreamReader<'d, 's> {
    decoder: &'d mut Decoder,
    reader: BitReader<'s>,
    header: Header,
    in_band: bool,
    started: bool,
    events: u64,
    failed: Option<Error>,
    /// State of the bodies around self-contained elements.
    suspended: alloc::vec::Vec<body::SuspendedBody>,
}

impl<'s> StreamReader<'_, 's> {
    /// The options in effect.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.decoder.grammar.options
    }

    /// The fixed part of the header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns true if the options are from the stream's header.
    #[must_use]
    pub fn options_in_band(&self) -> bool {
        self.in_band
    }

    /// Offset of the next bit from the start of the stream.
    #[must_use]
    pub fn bit_offset(&self) -> u64 {
        self.reader.bit_offset()
    }

    pub(crate) fn into_reader(self) -> BitReader<'s> {
        self.reader
    }

    /// Decodes the next event; none after [`Event::EndDocument`].
    ///
    /// # Errors
    /// The stream is damaged, truncated, beyond a limit, or of another schema.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.advance() {
            Ok(true) => Ok(event::current_event(self.decoder)),
            Ok(false) => Ok(None),
            Err(cause) => Err(self.fail(cause)),
        }
    }

    #[cold]
    fn fail(&mut self, cause: Cause) -> Error {
        let error = Error {
            offset: self.reader.bit_offset(),
            path: self.decoder.grammar.path(),
            cause: self.reader.with_source_failure(cause),
        };
        self.failed = Some(error.clone());
        error
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, Cause> {
        if !self.started {
            self.started = true;
            self.decoder.raw = RawEvent::StartDocument;
            return Ok(true);
        }
        self.events += 1;
        if self.events > self.decoder.limits.events {
            return Err(Cause::limit("events", self.decoder.limits.events));
        }
        if self.decoder.grammar.options.channels() {
            return self.next_of_block();
        }
        let more = self
            .decoder
            .decode_event(&mut self.reader, &mut self.suspended)?;
        if more {
            self.decoder.read_value(&mut self.reader)?;
        }
        Ok(more)
    }
}
