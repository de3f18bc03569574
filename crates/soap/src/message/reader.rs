//! Reading of messages from events.

use std::fmt;
use std::fmt::Write as _;

use chappe_xml::{Event, EventSource, Limits, Name, Namespace, Reason, Value};

use super::{AttributeField, Choice, Field, Message, Text};
use crate::schema::LexicalError;

/// Bytes charged for each element, as for one in a tree.
const ELEMENT_BYTES: usize = 192;

/// Reads messages in one namespace from an event source, such as a text or EXI reader.
pub struct Reader<'s> {
    source: &'s mut dyn EventSource,
    namespace: Namespace,
    /// What is left of the limit of expanded bytes.
    left: usize,
    bound: usize,
    /// The text of the last value; its buffer serves all.
    text: String,
    /// The value of the last attribute; its buffer serves all.
    attribute: String,
    ignores_unknown: bool,
}

/// The next part of an element, see [`Reader::part`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The attribute of this position.
    Attribute(usize),
    /// The start of the child of this position in this list of names.
    Child(usize, usize),
    /// The end of the element.
    End,
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

/// Appends a value, and charges its bytes.
fn append(
    text: &mut String,
    value: &Value<'_>,
    left: &mut usize,
    bound: usize,
) -> Result<(), ReadError> {
    let before = text.len();
    // Writing to a string cannot fail.
    let _ = write!(text, "{value}");
    let rest = left.checked_sub(text.len() - before);
    *left = rest.ok_or_else(|| exceeded(bound))?;
    Ok(())
}

/// The elements of a choice, for errors.
fn alternatives<T: Field<Item: Choice>>() -> String {
    T::Item::NAMES.join("|")
}

impl<'s> Reader<'s> {
    /// Creates a reader. The source limits the depth and the number of elements, the reader their
    /// memory.
    #[must_use]
    pub fn new(source: &'s mut dyn EventSource, namespace: &Namespace, limits: Limits) -> Self {
        Self {
            source,
            namespace: namespace.clone(),
            left: limits.expanded_bytes,
            bound: limits.expanded_bytes,
            text: String::new(),
            attribute: String::new(),
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
        let read = match self.source.next_event() {
            Ok(Some(Event::StartElement(found))) => match found.is(&self.namespace, name) {
                true => T::read(self),
                false => Err(ReadReason::Root(found).into()),
            },
            Ok(_) => Err(truncated()),
            Err(error) => Err(error.into()),
        };
        // What follows may be wrong, too.
        let read = read.and_then(|message| match self.source.next_event()? {
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
        Ok(match self.part(&[], &[names], false)? {
            Part::Child(_, position) => Some(position),
            Part::Attribute(_) | Part::End => None,
        })
    }

    /// Reads the next attribute or the start of the next child, if its name is among those given.
    /// With `has_text` the element has text and no children; [`Reader::content`] is its value at the
    /// end.
    ///
    /// # Errors
    /// The child is none of `children`, there is text where none is expected, or the source fails.
    pub fn part(
        &mut self,
        attributes: &[&str],
        children: &[&[&str]],
        has_text: bool,
    ) -> Result<Part, ReadError> {
        if has_text {
            // All text is read by the call that finds the end.
            self.text.clear();
        }
        loop {
            match self.source.next_event()?.ok_or_else(truncated)? {
                Event::StartElement(_) if has_text => return Err(ReadReason::NotSimple.into()),
                Event::StartElement(found) => {
                    let bound = self.bound;
                    self.left = self
                        .left
                        .checked_sub(ELEMENT_BYTES)
                        .ok_or_else(|| exceeded(bound))?;
                    let found_in = |names: &&[&str]| {
                        let mut names = names.iter();
                        names.position(|name| found.local == *name)
                    };
                    let mut lists = children.iter().enumerate();
                    let position = lists.find_map(|(list, names)| Some((list, found_in(names)?)));
                    match position.filter(|_| found.namespace == self.namespace) {
                        Some((list, position)) => return Ok(Part::Child(list, position)),
                        None if self.ignores_unknown => self.skip()?,
                        None => return Err(ReadReason::Unknown(found).into()),
                    }
                }
                Event::EndElement => return Ok(Part::End),
                Event::Text(value) if has_text => {
                    let text = &mut self.text;
                    append(text, &value, &mut self.left, self.bound)?;
                }
                Event::Text(text) if !text.lexical().trim().is_empty() => {
                    return Err(ReadReason::Mixed.into());
                }
                Event::Attribute(found, value) if found.namespace.is_empty() => {
                    let position = attributes.iter().position(|name| found.local == *name);
                    if let Some(position) = position {
                        self.attribute.clear();
                        append(&mut self.attribute, &value, &mut self.left, self.bound)?;
                        return Ok(Part::Attribute(position));
                    }
                }
                Event::Text(_) | Event::Attribute(..) | Event::Namespace { .. } => {}
            }
        }
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

    /// Reads the rest of the element whose start was read.
    fn skip(&mut self) -> Result<(), ReadError> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.source.next_event()?.ok_or_else(truncated)? {
                Event::StartElement(_) => depth += 1,
                Event::EndElement => depth -= 1,
                Event::Text(_) | Event::Attribute(..) | Event::Namespace { .. } => {}
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

    /// Reads the content of the child whose start was read.
    ///
    /// # Errors
    /// The content is not of this type.
    pub fn element<T: Message>(&mut self, name: &'static str) -> Result<T, ReadError> {
        T::read(self).map_err(|error| error.inside(name))
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

    /// Parses the attribute that was read into its field.
    ///
    /// # Errors
    /// The text is not a value of the type.
    pub fn attribute<T: AttributeField>(
        &self,
        name: &'static str,
        slot: &mut Option<T::Value>,
    ) -> Result<(), ReadError> {
        let parsed = T::Value::from_text(&self.attribute);
        let wrong = |error| ReadError::from(ReadReason::Value(error)).inside(&format!("@{name}"));
        *slot = Some(parsed.map_err(wrong)?);
        Ok(())
    }

    /// The value of an attribute's field.
    ///
    /// # Errors
    /// A required attribute is missing.
    pub fn finish_attribute<T: AttributeField>(
        name: &'static str,
        slot: Option<T::Value>,
    ) -> Result<T, ReadError> {
        let missing = || ReadError::from(ReadReason::Missing).inside(&format!("@{name}"));
        T::from_value(slot).ok_or_else(missing)
    }

    /// The value of an element with text and attributes, after [`Part::End`].
    ///
    /// # Errors
    /// The text is not a value of the type.
    pub fn content<T: Text>(&self) -> Result<T, ReadError> {
        T::from_text(&self.text).map_err(|error| ReadReason::Value(error).into())
    }

    /// The value of a field.
    ///
    /// # Errors
    /// A required element is missing.
    pub fn finish<T: Field>(name: &'static str, slot: T::Slot) -> Result<T, ReadError> {
        let missing = || ReadError::from(ReadReason::Missing).inside(name);
        T::finish(slot).ok_or_else(missing)
    }

    /// Reads the value of the open element, and its end.
    ///
    /// # Errors
    /// There is a child, or the source fails.
    pub fn text(&mut self) -> Result<&str, ReadError> {
        self.text.clear();
        loop {
            match self.source.next_event()?.ok_or_else(truncated)? {
                Event::Text(value) => {
                    let text = &mut self.text;
                    append(text, &value, &mut self.left, self.bound)?;
                }
                Event::EndElement => return Ok(&self.text),
                Event::StartElement(_) => return Err(ReadReason::NotSimple.into()),
                Event::Attribute(..) | Event::Namespace { .. } => {}
            }
        }
    }

    /// Reads the value of the open element by `parse`.
    ///
    /// # Errors
    /// As [`Reader::text`], or the text is not a value of the type.
    pub fn value<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, LexicalError>,
    ) -> Result<T, ReadError> {
        let parsed = parse(self.text()?);
        parsed.map_err(|error| ReadReason::Value(error).into())
    }
}
