//! Writing of messages as text or events.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use chappe_xml::text::escape;
use chappe_xml::{Error, Event, EventSink, Name, Namespace, Value};

use super::reader::{INSTANCE, NIL};
use super::{AttributeField, Choice, Field, Message, Text};

/// The prefix of a message's namespace.
const PREFIX: &str = "m";
/// The prefix of the namespace of `xsi:nil`.
const INSTANCE_PREFIX: &str = "i";

/// Writes messages in one namespace: as text straight into a buffer, or to an event sink, such as the
/// builder of a tree or an EXI writer.
pub struct Writer<'s> {
    sink: Sink<'s>,
    namespace: &'s Namespace,
    /// The namespace of the elements, if it is not that of the message.
    other: Option<&'static str>,
    /// The end of the last start tag in a text.
    started: usize,
}

/// Where the parts of a message go. A branch for each part costs less than a call by pointer.
enum Sink<'s> {
    Text(&'s mut String),
    Events(&'s mut dyn EventSink),
}

impl<'s> Writer<'s> {
    /// Creates a writer of events.
    #[must_use]
    pub fn new(sink: &'s mut dyn EventSink, namespace: &'s Namespace) -> Self {
        Self::of(Sink::Events(sink), namespace)
    }

    /// Creates a writer that appends text.
    #[must_use]
    pub fn of_text(text: &'s mut String, namespace: &'s Namespace) -> Self {
        Self::of(Sink::Text(text), namespace)
    }

    fn of(sink: Sink<'s>, namespace: &'s Namespace) -> Self {
        Self {
            sink,
            namespace,
            other: None,
            started: 0,
        }
    }

    /// Writes a message as an element of this name, a valid one in XML, that declares its namespace.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn root<T: Message>(&mut self, name: &str, message: &T) -> Result<(), Error> {
        match &mut self.sink {
            Sink::Text(text) => {
                for part in ["<", PREFIX, ":", name, " xmlns:", PREFIX, "=\""] {
                    text.push_str(part);
                }
                escape(text, self.namespace, true);
                text.push_str("\">");
            }
            Sink::Events(sink) => {
                sink.event(Event::StartElement(Name::inside(self.namespace, name)))?;
                sink.event(Event::Namespace {
                    prefix: Cow::Borrowed(PREFIX),
                    namespace: Cow::Borrowed(self.namespace),
                })?;
            }
        }
        self.content(name, message)
    }

    /// Writes a field of the open element.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn field<T: Field>(&mut self, name: &'static str, field: &T) -> Result<(), Error> {
        let mut items = field.items();
        items.try_for_each(|item| match item {
            Some(item) => self.element(name, item),
            None => self.nil(name),
        })
    }

    /// Writes a field whose elements are a choice.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn choice<T: Field<Item: Choice>>(&mut self, field: &T) -> Result<(), Error> {
        let mut items = field.items().flatten();
        items.try_for_each(|item| item.write_alternative(self))
    }

    /// Writes an attribute of the open element, before its content.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn attribute<T: AttributeField>(
        &mut self,
        name: &'static str,
        field: &T,
    ) -> Result<(), Error> {
        let Some(value) = field.value() else {
            return Ok(());
        };
        let value = value.to_text();
        match &mut self.sink {
            Sink::Text(text) => {
                // The start tag is open again.
                text.pop();
                for part in [" ", name, "=\""] {
                    text.push_str(part);
                }
                escape(text, &value, true);
                text.push_str("\">");
                self.started = text.len();
                Ok(())
            }
            Sink::Events(sink) => {
                let value = Value::Text(value);
                sink.event(Event::Attribute(Name::local(name), value))
            }
        }
    }

    /// Writes with another namespace of the elements.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn within(
        &mut self,
        namespace: &'static str,
        write: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let other = (*self.namespace != *namespace).then_some(namespace);
        let outer = std::mem::replace(&mut self.other, other);
        let written = write(self);
        self.other = outer;
        written
    }

    /// Writes a child of the open element.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn element<T: Message>(&mut self, name: &'static str, message: &T) -> Result<(), Error> {
        self.start(name)?;
        self.content(name, message)
    }

    /// Writes a child of the open element that has no value.
    fn nil(&mut self, name: &'static str) -> Result<(), Error> {
        self.start(name)?;
        match &mut self.sink {
            Sink::Text(text) => {
                // The start tag is open again.
                text.pop();
                for part in [" xmlns:", INSTANCE_PREFIX, "=\"", INSTANCE, "\" "] {
                    text.push_str(part);
                }
                for part in [INSTANCE_PREFIX, ":", NIL, "=\"true\"/>"] {
                    text.push_str(part);
                }
                Ok(())
            }
            Sink::Events(sink) => {
                sink.event(Event::Namespace {
                    prefix: Cow::Borrowed(INSTANCE_PREFIX),
                    namespace: Cow::Borrowed(INSTANCE),
                })?;
                let nil = Name::new(INSTANCE, NIL);
                sink.event(Event::Attribute(nil, Value::Boolean(true)))?;
                sink.event(Event::EndElement)
            }
        }
    }

    /// Writes the start of a child of the open element.
    fn start(&mut self, name: &'static str) -> Result<(), Error> {
        match (&mut self.sink, self.other) {
            (Sink::Text(text), None) => {
                for part in ["<", PREFIX, ":", name, ">"] {
                    text.push_str(part);
                }
                Ok(())
            }
            (Sink::Text(text), Some(namespace)) => {
                for part in ["<", name, " xmlns=\""] {
                    text.push_str(part);
                }
                escape(text, namespace, true);
                text.push_str("\">");
                Ok(())
            }
            (Sink::Events(sink), other) => {
                let other = other.map(Namespace::constant);
                let namespace = other.unwrap_or_else(|| self.namespace.clone());
                let local = Cow::Borrowed(name);
                sink.event(Event::StartElement(Name { namespace, local }))
            }
        }
    }

    /// Writes the content of the open element, and its end.
    fn content<T: Message>(&mut self, name: &str, message: &T) -> Result<(), Error> {
        let prefix = match self.other {
            None => [PREFIX, ":"],
            Some(_) => ["", ""],
        };
        if let Sink::Text(text) = &self.sink {
            self.started = text.len();
        }
        message.write(self)?;
        match &mut self.sink {
            Sink::Text(text) if text.len() == self.started => {
                text.pop();
                text.push_str("/>");
            }
            Sink::Text(text) => {
                for part in ["</", prefix[0], prefix[1], name, ">"] {
                    text.push_str(part);
                }
            }
            Sink::Events(sink) => sink.event(Event::EndElement)?,
        }
        Ok(())
    }

    /// Writes the text of the open element.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn text(&mut self, text: &str) -> Result<(), Error> {
        self.value(Value::from(text))
    }

    /// Writes the value of the open element.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn value(&mut self, value: Value<'_>) -> Result<(), Error> {
        match (&mut self.sink, value) {
            (Sink::Text(out), Value::Text(text)) => escape(out, &text, false),
            (Sink::Text(out), Value::Integer(integer)) => push_integer(out, integer),
            (Sink::Text(out), value) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "{value}");
            }
            (Sink::Events(_), Value::Text(text)) if text.is_empty() => {}
            (Sink::Events(sink), value) => sink.event(Event::Text(value))?,
        }
        Ok(())
    }

    /// Writes a text without markup, such as a number, as the value of the open element.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn plain(&mut self, text: fmt::Arguments<'_>) -> Result<(), Error> {
        match &mut self.sink {
            Sink::Text(out) => {
                // Writing to a string cannot fail.
                let _ = out.write_fmt(text);
                Ok(())
            }
            Sink::Events(_) => self.value(Value::Text(text.to_string().into())),
        }
    }
}

/// Appends the decimal digits of an integer, without the formatting of the standard library, which costs more than the
/// rest of a short element.
fn push_integer(out: &mut String, integer: i64) {
    // The least integer has 19 digits.
    let mut digits = [b'0'; 20];
    let (mut rest, mut start) = (integer.unsigned_abs(), digits.len());
    loop {
        start -= 1;
        digits[start] += (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if integer < 0 {
        out.push('-');
    }
    out.push_str(std::str::from_utf8(&digits[start..]).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_their_digits() {
        for integer in [0, 7, -1, 10, -90, 1_000_000_000, i64::MAX, i64::MIN] {
            let mut text = String::new();
            push_integer(&mut text, integer);
            assert_eq!(text, integer.to_string());
        }
    }
}
