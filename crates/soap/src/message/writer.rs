//! Writing of messages as events.

use std::borrow::Cow;

use chappe_xml::{Error, Event, EventSink, Name, Namespace, Value};

use super::{AttributeField, Choice, Field, Message, Text};

/// The prefix of a message's namespace.
const PREFIX: &str = "m";

/// Writes messages in one namespace to an event sink, such as a text or EXI writer.
pub struct Writer<'s> {
    sink: &'s mut dyn EventSink,
    namespace: Namespace,
}

impl<'s> Writer<'s> {
    /// Creates a writer.
    #[must_use]
    pub fn new(sink: &'s mut dyn EventSink, namespace: &Namespace) -> Self {
        Self {
            sink,
            namespace: namespace.clone(),
        }
    }

    /// Writes a message as an element of this name that declares its namespace.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn root<T: Message>(&mut self, name: &str, message: &T) -> Result<(), Error> {
        let name = Name::inside(&self.namespace, name);
        self.sink.event(Event::StartElement(name))?;
        self.sink.event(Event::Namespace {
            prefix: Cow::Borrowed(PREFIX),
            namespace: Cow::Borrowed(&self.namespace),
        })?;
        message.write(self)?;
        self.sink.event(Event::EndElement)
    }

    /// Writes a field of the open element.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn field<T: Field>(&mut self, name: &'static str, field: &T) -> Result<(), Error> {
        let mut items = field.items();
        items.try_for_each(|item| self.element(name, item))
    }

    /// Writes a field whose elements are a choice.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn choice<T: Field<Item: Choice>>(&mut self, field: &T) -> Result<(), Error> {
        let mut items = field.items();
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
        let value = Value::Text(value.to_text());
        self.sink.event(Event::Attribute(Name::local(name), value))
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
        let outer = std::mem::replace(&mut self.namespace, Namespace::constant(namespace));
        let written = write(self);
        self.namespace = outer;
        written
    }

    /// Writes a child of the open element.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn element<T: Message>(&mut self, name: &'static str, message: &T) -> Result<(), Error> {
        let name = Name {
            namespace: self.namespace.clone(),
            local: Cow::Borrowed(name),
        };
        self.sink.event(Event::StartElement(name))?;
        message.write(self)?;
        self.sink.event(Event::EndElement)
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
        match &value {
            Value::Text(text) if text.is_empty() => Ok(()),
            _ => self.sink.event(Event::Text(value)),
        }
    }
}
