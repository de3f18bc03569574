//! Reading of messages from text or events.

use std::borrow::Cow;
use std::fmt;

use chappe_xml::text::Pull;
use chappe_xml::{EventSource, Limits, Name, Namespace, Reason};

use super::events::EventParts;
use super::{Field, Message};
use crate::schema::LexicalError;

/// Bytes charged for each element, as for one in a tree.
const ELEMENT_BYTES: usize = 192;

pub(super) use chappe_xml::text::Part;

/// Reads messages in one namespace: from text with names and values borrowed from it, or from an event
/// source, such as a tree or an EXI reader.
pub struct Reader<'s> {
    source: Source<'s>,
    namespace: &'s Namespace,
    /// What is left of the limit of expanded bytes.
    left: usize,
    bound: usize,
    ignores_unknown: bool,
}

/// Where the parts of a message come from. A branch for each part costs less than a call by pointer.
enum Source<'s> {
    Text(Pull<'s>),
    Events(EventParts<'s>),
}

impl Source<'_> {
    fn next_part(&mut self) -> Result<Option<Part<'_>>, chappe_xml::Error> {
        match self {
            Self::Text(text) => text.next_part(),
            Self::Events(events) => events.next_part(),
        }
    }

    /// The name of the last start.
    fn name(&self) -> Name {
        match self {
            Self::Text(text) => text.name(),
            Self::Events(events) => events.name(),
        }
    }

    fn value(&mut self) -> Result<Option<Cow<'_, str>>, chappe_xml::Error> {
        match self {
            Self::Text(text) => text.value(),
            Self::Events(events) => events.value(),
        }
    }
}

/// An element is not a message of the expected type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// The names of the elements from the root to the wrong one, separated by `/`.
    pub path: String,
    /// The reason.
    pub reason: ReadReason,
}

/// The reason of a [`ReadError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadReason {
    /// The root element, or the body, is another one.
    #[error("is expected, not {0}")]
    Root(Name),
    /// The message is missing.
    #[error("is missing")]
    Missing,
    /// An element that must occur at most once occurs again.
    #[error("is repeated")]
    Repeated,
    /// The type has no such element.
    #[error("has no element {0}")]
    Unknown(Name),
    /// Text between elements.
    #[error("has text between its elements")]
    Mixed,
    /// An element in a value.
    #[error("has an element where a value is expected")]
    NotSimple,
    /// The value is not one of its type.
    #[error("{0}")]
    Value(LexicalError),
    /// The source failed.
    #[error("cannot be read: {0}")]
    Source(chappe_xml::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            ReadReason::Value(error) => write!(f, "{}: {error}", self.path),
            reason => write!(f, "{} {reason}", self.path),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<ReadReason> for ReadError {
    fn from(reason: ReadReason) -> Self {
        Self {
            path: String::new(),
            reason,
        }
    }
}

impl From<chappe_xml::Error> for ReadError {
    fn from(error: chappe_xml::Error) -> Self {
        ReadReason::Source(error).into()
    }
}

impl ReadError {
    /// The same in an element of this name.
    #[must_use]
    pub fn inside(mut self, name: &str) -> Self {
        self.path = match self.path.is_empty() {
            true => name.to_owned(),
            false => format!("{name}/{}", self.path),
        };
        self
    }
}

/// The limit that a message exceeds.
fn exceeded(bound: usize) -> ReadError {
    let limit = "expanded_bytes";
    let reason = Reason::Limit { limit, bound };
    chappe_xml::Error { offset: 0, reason }.into()
}

fn truncated() -> ReadError {
    let reason = Reason::Truncated;
    chappe_xml::Error { offset: 0, reason }.into()
}

impl<'s> Reader<'s> {
    /// Creates a reader of events. The source limits the depth and the number of elements, the reader
    /// their memory.
    #[must_use]
    pub fn new(source: &'s mut dyn EventSource, namespace: &'s Namespace, limits: Limits) -> Self {
        Self::of(Source::Events(EventParts::new(source)), namespace, limits)
    }

    /// Creates a reader of text.
    #[must_use]
    pub fn of_text(text: Pull<'s>, namespace: &'s Namespace, limits: Limits) -> Self {
        Self::of(Source::Text(text), namespace, limits)
    }

    fn of(source: Source<'s>, namespace: &'s Namespace, limits: Limits) -> Self {
        Self {
            source,
            namespace,
            left: limits.expanded_bytes,
            bound: limits.expanded_bytes,
            ignores_unknown: false,
        }
    }

    /// Ignores elements that a type does not have, such as those that a newer peer sends.
    #[must_use]
    pub fn ignoring_unknown(mut self) -> Self {
        self.ignores_unknown = true;
        self
    }

    /// Reads the root element, which must have this name, and the rest of the document.
    ///
    /// # Errors
    /// [`ReadError`] with the path of the wrong element.
    pub fn root<T: Message>(&mut self, name: &str) -> Result<T, ReadError> {
        let read = match self.source.next_part() {
            Ok(Some(Part::Start { namespace, local })) => {
                match local == name && namespace == self.namespace {
                    true => T::read(self),
                    false => Err(ReadReason::Root(self.source.name()).into()),
                }
            }
            Ok(_) => Err(truncated()),
            Err(error) => Err(error.into()),
        };
        // What follows may be wrong, too.
        let read = read.and_then(|message| match self.source.next_part()? {
            None => Ok(message),
            Some(_) => Err(ReadReason::Mixed.into()),
        });
        read.map_err(|error| error.inside(name))
    }

    /// Reads the start of the next child; returns the position of its name in `names`, or `None` at
    /// the end of the open element.
    ///
    /// # Errors
    /// The child is none of `names`, there is text, or the source fails.
    pub fn child(&mut self, names: &[&str]) -> Result<Option<usize>, ReadError> {
        loop {
            match self.source.next_part()?.ok_or_else(truncated)? {
                Part::Start { namespace, local } => {
                    let position = names.iter().position(|name| local == *name);
                    let position = position.filter(|_| namespace == self.namespace);
                    self.charge(ELEMENT_BYTES)?;
                    match position {
                        Some(position) => return Ok(Some(position)),
                        None if self.ignores_unknown => self.skip()?,
                        None => return Err(ReadReason::Unknown(self.source.name()).into()),
                    }
                }
                Part::End => return Ok(None),
                Part::Text(text) if !text.trim().is_empty() => {
                    return Err(ReadReason::Mixed.into());
                }
                Part::Text(_) => {}
            }
        }
    }

    fn charge(&mut self, bytes: usize) -> Result<(), ReadError> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| exceeded(self.bound))?;
        Ok(())
    }

    /// Reads the rest of the element whose start was read.
    fn skip(&mut self) -> Result<(), ReadError> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.source.next_part()?.ok_or_else(truncated)? {
                Part::Start { .. } => depth += 1,
                Part::End => depth -= 1,
                Part::Text(_) => {}
            }
        }
        Ok(())
    }

    /// Reads the child whose start was read into its field.
    ///
    /// # Errors
    /// The child is repeated, or its content is not of this type.
    pub fn field<T: Field>(
        &mut self,
        name: &'static str,
        slot: &mut T::Slot,
    ) -> Result<(), ReadError> {
        let read = T::Item::read(self).and_then(|item| match T::add(slot, item) {
            true => Ok(()),
            false => Err(ReadReason::Repeated.into()),
        });
        read.map_err(|error| error.inside(name))
    }

    /// The value of a field.
    ///
    /// # Errors
    /// A required element is missing.
    pub fn finish<T: Field>(name: &'static str, slot: T::Slot) -> Result<T, ReadError> {
        let missing = || ReadError::from(ReadReason::Missing).inside(name);
        T::finish(slot).ok_or_else(missing)
    }

    /// Reads the value of the open element by `parse`, and its end.
    ///
    /// # Errors
    /// There is a child, the text is not a value of the type, or the source fails.
    pub fn value<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, LexicalError>,
    ) -> Result<T, ReadError> {
        let value = self.source.value()?.ok_or(ReadReason::NotSimple)?;
        let (bytes, parsed) = (value.len(), parse(&value));
        self.charge(bytes)?;
        parsed.map_err(|error| ReadReason::Value(error).into())
    }

    /// Reads the value of the open element as one of these; returns its position.
    ///
    /// # Errors
    /// As [`Reader::value`]: the text is none of them.
    pub fn variant(&mut self, names: &[&str]) -> Result<usize, ReadError> {
        self.value(|text| {
            let trimmed = text.trim();
            let position = names.iter().position(|name| *name == trimmed);
            position.ok_or_else(|| super::lexical("value of its enumeration", text))
        })
    }
}
