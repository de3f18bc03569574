//! Messages as elements.

use std::sync::Arc;

use chappe_log::Level;
use chappe_stream::lines::{ElementReader, Format, Line};
use chappe_stream::{StreamSchema, Timestamp};

use crate::clock::FUTURE_NS;
use crate::{Batch, FormatKey, StreamDefinition, StreamTable, Undecodable, WrapperFile};

/// Bytes of an undecodable message that are kept; reason: a person looks at them, and resending needs
/// whole ones.
const KEPT_BYTES: usize = 64 << 10;

/// Decodes the messages of a wrapper. Records of one message become elements of its stream.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    format: FormatKey,
    stream: Arc<str>,
    definition: Arc<StreamDefinition>,
    schema: Arc<StreamSchema>,
}

impl Decoder {
    /// The decoder of a file with exactly one stream.
    pub(crate) fn new(file: &WrapperFile) -> Option<Self> {
        match &*file.keys.streams {
            [table] => Some(Self::of(table, file.keys.level, file.keys.format)),
            _ => None,
        }
    }

    fn of(table: &StreamTable, level: Option<Level>, format: FormatKey) -> Self {
        let definition = table.definition(level);
        Self {
            format,
            stream: table.name.as_str().into(),
            schema: Arc::new(definition.schema.clone()),
            definition,
        }
    }

    /// Adds the elements of a message that arrived at `now`: one JSON object or an array of them, or a CSV
    /// with a header. Parts that are none become undecodable messages.
    pub(crate) fn message(&self, message: &[u8], now: Timestamp, batch: &mut Batch) {
        self.read(self.format.of_message(), message, now, batch);
    }

    fn read(&self, format: Format, message: &[u8], now: Timestamp, batch: &mut Batch) {
        let mut reader = ElementReader::new(format, self.schema.clone(), FUTURE_NS);
        let mut lines = Vec::new();
        let pushed = reader.push(message, now, &mut lines);
        let read = pushed.and_then(|()| reader.finish(now, &mut lines));
        // A message with one wrong record is kept whole, so that it can be decoded again.
        let broken = read.err().map(|error| error.to_string());
        let wrong = lines.iter().find_map(|Line { line, element, .. }| {
            let error = element.as_ref().err()?;
            Some(format!("record {line}: {error}"))
        });
        let wrong = broken.or(wrong);
        if let Some(reason) = wrong {
            batch.undecodable.push(Undecodable {
                stream: Some(self.stream.to_string()),
                reason,
                message: message[..message.len().min(KEPT_BYTES)].to_vec(),
            });
            return;
        }
        for element in lines.into_iter().filter_map(|line| line.element.ok()) {
            batch.push(&self.stream, &self.definition, element);
        }
    }
}

impl WrapperFile {
    /// Decodes a message that was a dead letter, by the present settings.
    ///
    /// # Errors
    /// Why it still cannot be decoded.
    pub fn decode(&self, message: &[u8], now: Timestamp) -> Result<Batch, String> {
        let decoder = Decoder::new(self).ok_or("the file has no single [[stream]]")?;
        let mut batch = Batch::default();
        decoder.message(message, now, &mut batch);
        match batch.undecodable.pop() {
            Some(undecodable) => Err(undecodable.reason),
            None => Ok(batch),
        }
    }
}
