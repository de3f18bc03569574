//! Reading of messages from text or events.

use std::borrow::Cow;
use std::fmt;

use chappe_xml::text::Pull;
use chappe_xml::{EventSource, Limits, Name, Namespace, Reason};

use super::events::EventParts;
use super::{AttributeField, Choice, Field, Message};
use crate::schema::LexicalError;

/// Bytes charged for each element, as for one in a tree.
const ELEMENT_BYTES: usize = 192;

/// The attribute by which an element has no value (XML Schema 1.0 part 1, section 2.6.2).
pub(super) const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
pub(super) const NIL: &str = "nil";

pub(super) use chappe_xml::text::Part;

/// Whether a text is the Boolean true.
pub(super) fn is_true(text: &str) -> bool {
    matches!(chappe_xml::trim(text), "true" | "1")
}

/// Reads messages in one namespace: from text with names and values borrowed from it, or from an event
/// source, such as a tree or an EXI reader.
pub struct Reader<'s> {
    source: Source<'s>,
    namespace: Namespace,
    /// What is left of the limit of expanded bytes.
    left: usize,
    bound: usize,
    ignores_unknown: bool,
}

/// Where the parts of a message come from. A branch for each part costs less than a call by pointer.
enum Source<'s> {
    Text(Box<Pull<'s>>),
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

    /// Right after a start: whether the element is nil.
    fn is_nil(&mut self) -> Result<bool, ReadError> {
        match self {
            Self::Text(text) => {
                let mut attributes = text.attributes();
                Ok(attributes.any(|(namespace, local, value)| {
                    local == NIL && *namespace == INSTANCE && is_true(value)
                }))
            }
            Self::Events(events) => events.is_nil(),
        }
    }

    /// Right after a start: its attributes without namespace, by name.
    fn attributes(
        &mut self,
        take: &mut dyn FnMut(&str, &str) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        match self {
            Self::Text(text) => {
                let attributes = text.attributes();
                let mut own = attributes.filter(|(namespace, ..)| namespace.is_empty());
                own.try_for_each(|(_, local, value)| take(local, value))
            }
            Self::Events(events) => events.attributes(take),
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
    /// The element has no value (`xsi:nil`), and its type needs one.
    #[error("is nil, but needs a value")]
    Nil,
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

/// The content of an element that is nil.
fn empty(text: &str) -> Result<(), LexicalError> {
    match text.is_empty() {
        true => Ok(()),
        false => Err(LexicalError::new("content of an element that is nil", text)),
    }
}

fn truncated() -> ReadError {
    let reason = Reason::Truncated;
    chappe_xml::Error { offset: 0, reason }.into()
}

/// The name of an attribute, for errors.
fn at(name: &str) -> String {
    format!("@{name}")
}

/// The elements of a choice, for errors.
fn alternatives<T: Field<Item: Choice>>() -> String {
    T::Item::NAMES.join("|")
}

impl<'s> Reader<'s> {
    /// Creates a reader of events. The source limits the depth and the number of elements, the reader
    /// their memory.
    #[must_use]
    pub fn new(source: &'s mut dyn EventSource, namespace: &Namespace, limits: Limits) -> Self {
        Self::of(Source::Events(EventParts::new(source)), namespace, limits)
    }

    /// Creates a reader of text.
    #[must_use]
    pub fn of_text(text: Pull<'s>, namespace: &Namespace, limits: Limits) -> Self {
        Self::of(Source::Text(Box::new(text)), namespace, limits)
    }

    fn of(source: Source<'s>, namespace: &Namespace, limits: Limits) -> Self {
        Self {
            source,
            namespace: namespace.clone(),
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
                match local == name && *namespace == self.namespace {
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
        let found = self.child_of(&[names])?;
        Ok(found.map(|(_, position)| position))
    }

    /// The same with several lists of names; returns the positions of the list and in it.
    ///
    /// # Errors
    /// As [`Reader::child`].
    pub fn child_of(&mut self, lists: &[&[&str]]) -> Result<Option<(usize, usize)>, ReadError> {
        loop {
            match self.source.next_part()?.ok_or_else(truncated)? {
                Part::Start { namespace, local } => {
                    let mut positions = lists.iter().enumerate().filter_map(|(list, names)| {
                        let position = names.iter().position(|name| local == *name);
                        position.map(|position| (list, position))
                    });
                    let position = positions.next();
                    let position = position.filter(|_| *namespace == self.namespace);
                    self.charge(ELEMENT_BYTES)?;
                    match position {
                        Some(position) => return Ok(Some(position)),
                        None if self.ignores_unknown => self.skip()?,
                        None => return Err(ReadReason::Unknown(self.source.name()).into()),
                    }
                }
                Part::End => return Ok(None),
                Part::Text(text) if !chappe_xml::trim(&text).is_empty() => {
                    return Err(ReadReason::Mixed.into());
                }
                Part::Text(_) => {}
            }
        }
    }

    /// Right after the start of an element: reads its attributes of these names by `take`, which gets
    /// the position of the name. Others are ignored.
    ///
    /// # Errors
    /// A value is not one of its type, or the source fails.
    pub fn attributes(
        &mut self,
        names: &[&str],
        mut take: impl FnMut(usize, &str) -> Result<(), LexicalError>,
    ) -> Result<(), ReadError> {
        let mut bytes = 0;
        self.source.attributes(&mut |local, value| {
            let Some(position) = names.iter().position(|name| local == *name) else {
                return Ok(());
            };
            bytes += value.len();
            let wrong = |error| ReadError::from(ReadReason::Value(error)).inside(&at(local));
            take(position, value).map_err(wrong)
        })?;
        self.charge(bytes)
    }

    /// The value of an attribute's field.
    ///
    /// # Errors
    /// A required attribute is missing.
    pub fn finish_attribute<T: AttributeField>(
        name: &'static str,
        slot: Option<T::Value>,
    ) -> Result<T, ReadError> {
        let missing = || ReadError::from(ReadReason::Missing).inside(&at(name));
        T::from_value(slot).ok_or_else(missing)
    }

    /// Reads with another namespace of the elements.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn within<T>(
        &mut self,
        namespace: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let outer = std::mem::replace(&mut self.namespace, Namespace::constant(namespace));
        let read = read(self);
        self.namespace = outer;
        read
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
        let read = match self.source.is_nil() {
            Err(error) => Err(error),
            Ok(true) => match T::add_nil(slot) {
                true => self.value(empty),
                false => Err(ReadReason::Nil.into()),
            },
            Ok(false) => T::Item::read(self).and_then(|item| match T::add(slot, item) {
                true => Ok(()),
                false => Err(ReadReason::Repeated.into()),
            }),
        };
        read.map_err(|error| error.inside(name))
    }

    /// Reads the content of the child whose start was read.
    ///
    /// # Errors
    /// The content is not of this type.
    pub fn element<T: Message>(&mut self, name: &'static str) -> Result<T, ReadError> {
        let read = match self.source.is_nil() {
            Err(error) => Err(error),
            Ok(true) => Err(ReadReason::Nil.into()),
            Ok(false) => T::read(self),
        };
        read.map_err(|error| error.inside(name))
    }

    /// Reads the child whose start was read into the field of its choice.
    ///
    /// # Errors
    /// There is one already, or its content is not of this type.
    pub fn choice<T: Field<Item: Choice>>(
        &mut self,
        position: usize,
        slot: &mut T::Slot,
    ) -> Result<(), ReadError> {
        let item = T::Item::read_alternative(position, self)?;
        let repeated = || ReadError::from(ReadReason::Repeated);
        match T::add(slot, item) {
            true => Ok(()),
            false => Err(repeated().inside(&alternatives::<T>())),
        }
    }

    /// Reads the open element, whose content is one of a choice of elements.
    ///
    /// # Errors
    /// It has none or several of them, or the content is not of its type.
    pub fn only_choice<T: Choice>(&mut self) -> Result<T, ReadError> {
        let mut slot = None;
        while let Some(position) = self.child(T::NAMES)? {
            self.choice::<T>(position, &mut slot)?;
        }
        Self::finish_choice::<T>(slot)
    }

    /// The value of a field that is a choice.
    ///
    /// # Errors
    /// A required element is missing.
    pub fn finish_choice<T: Field<Item: Choice>>(slot: T::Slot) -> Result<T, ReadError> {
        let missing = || ReadError::from(ReadReason::Missing).inside(&alternatives::<T>());
        T::finish(slot).ok_or_else(missing)
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
}
