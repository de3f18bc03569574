//! Reading text XML as events.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::tokens::{Token, Tokens};
use crate::{Error, Event, EventSource, Limits, Value};

/// Reads one document from a slice. Comments and processing instructions are skipped.
///
/// After an error, every call returns the same error. [`Pull`](super::Pull) reads the same without
/// copies of names.
///
/// ```
/// use chappe_xml::{Event, EventSource, Limits, Name, text::Reader};
/// let mut reader = Reader::new(b"<a/>", Limits::default())?;
/// assert_eq!(reader.next_event()?, Some(Event::StartElement(Name::local("a"))));
/// assert_eq!(reader.next_event()?, Some(Event::EndElement));
/// assert_eq!(reader.next_event()?, None);
/// # Ok::<(), chappe_xml::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader<'i> {
    tokens: Tokens<'i>,
    /// Events of the last start tag that were not returned yet.
    pending: VecDeque<Event<'i>>,
    failed: Option<Error>,
}

impl<'i> Reader<'i> {
    /// Creates a reader of `document` and checks its size and encoding.
    ///
    /// # Errors
    /// The document exceeds the limit or is not UTF-8.
    pub fn new(document: &'i [u8], limits: Limits) -> Result<Self, Error> {
        Ok(Self {
            tokens: Tokens::new(document, limits)?,
            pending: VecDeque::new(),
            failed: None,
        })
    }

    /// The byte offset after the markup or text of the last event, for errors of the caller's own. A
    /// byte order mark at the start of the document does not count.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.tokens.offset()
    }

    /// Queues the events of a start tag: start, declarations, attributes.
    fn queue(&mut self) {
        let tag = self.tokens.tag();
        self.pending.push_back(Event::StartElement(tag.name()));
        for (prefix, namespace) in &tag.declarations {
            self.pending.push_back(Event::Namespace {
                prefix: Cow::Borrowed(prefix),
                namespace: namespace.clone(),
            });
        }
        for attribute in &tag.attributes {
            let value = Value::Text(attribute.value.clone());
            self.pending
                .push_back(Event::Attribute(attribute.name(), value));
        }
    }

    fn read(&mut self) -> Result<Option<Event<'i>>, Error> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            match self.tokens.next()? {
                Some(Token::Start) => self.queue(),
                Some(Token::End) => return Ok(Some(Event::EndElement)),
                Some(Token::Text(text)) => return Ok(Some(Event::Text(Value::Text(text)))),
                Some(Token::Instruction(_)) => {}
                None => return Ok(None),
            }
        }
    }
}

impl EventSource for Reader<'_> {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let read = self.read();
        if let Err(error) = &read {
            self.failed = Some(error.clone());
        }
        read
    }
}
