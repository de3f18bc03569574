//! Messages as Rust types: schema, reader and writer in one.
//!
//! `#[derive(Message)]` makes a struct with named fields the content of an element, an enum without
//! fields a string with permitted values, and an enum with fields a choice of elements. The namespace
//! and the element's name are the service's, so one type can be the message of several services.
//!
//! | in Rust | in the schema |
//! |---|---|
//! | a field | a child element of the field's name, in the service's namespace |
//! | `Option<T>` | an optional element |
//! | `Vec<T>` | a repeated element, also none |
//! | `Vec<Option<T>>` | the same; `None` is an element without value (`xsi:nil`), which keeps its place |
//! | a struct, an enum | a named type |
//! | `#[attribute]`, with `T` or `Option<T>` of a value | an attribute without namespace |
//! | `#[text]`, besides attributes only | the text of the element |
//! | `#[choice]`, with an enum, or `Option` or `Vec` of it | a choice of elements, not in one of their own |
//! | `bool`, `String`, `f32`, `f64`, integers from 8 to 64 bits except `u8` | the built-in type |
//! | `Vec<u8>` | `xs:base64Binary` |
//! | [`Duration`](std::time::Duration) | `xs:duration` |
//! | [`SystemTime`](std::time::SystemTime) | `xs:dateTime`, in UTC |
//! | [`Samples<T>`] | a list of samples |
//! | `()` | an empty element |
//!
//! Attributes of a field: `#[unit("Cel")]` is the UCUM code of its quantity,
//! `#[sample_period_ms(4)]` the period of its samples, `#[name("Celsius")]` its name in messages,
//! also for variants. `#[message(namespace = "urn:y")]` at a type is the namespace of its elements, if it
//! is not that of the message; in `""` they are unqualified. Doc comments become the schema's
//! documentation.
//!
//! ```
//! use chappe_soap::message::{self, Message};
//! /// A measured temperature.
//! #[derive(Message, Debug, PartialEq)]
//! struct Temperature {
//!     /// Of the air.
//!     #[unit("Cel")]
//!     celsius: f64,
//! }
//! let namespace = "urn:x".into();
//! let element = message::to_element(&namespace, "Report", &Temperature { celsius: 21.5 });
//! assert_eq!(
//!     element.to_text(),
//!     r#"<m:Report xmlns:m="urn:x"><m:celsius>21.5</m:celsius></m:Report>"#
//! );
//! let read: Temperature = message::from_element(&namespace, "Report", &element)?;
//! assert_eq!(read.celsius, 21.5);
//! # Ok::<(), chappe_soap::message::ReadError>(())
//! ```
//!
//! Wrong use does not compile. The error names the remedy: a message has named fields,
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! struct Temperature(f64);
//! ```
//! each of a type of the table above,
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! struct Level { level: u8 }
//! ```
//! a unit belongs to a number,
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! struct Place { #[unit("m")] name: String }
//! ```
//! a sample period to samples,
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! struct Wave { #[sample_period_ms(4)] volts: Vec<f64> }
//! ```
//! an element's text is not mixed with other elements,
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! struct Level { #[text] level: f64, limits: f64 }
//! ```
//! an attribute is a single value,
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! struct Tags { #[attribute] tags: Vec<String> }
//! ```
//! an alternative has one field without name,
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! enum Mode { Off, Level { percent: f64 } }
//! ```
//! no alternative is nil,
//! ```compile_fail
//! use chappe_soap::message::Message;
//! #[derive(Message)]
//! enum Mode { Off(()), Level(f64) }
//! #[derive(Message)]
//! struct Modes { #[choice] modes: Vec<Option<Mode>> }
//! chappe_soap::message::Types::new("urn:x".into()).element::<Modes>("Modes", "");
//! ```
//! and two fields cannot have one name.
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! struct Twice { a: f64, #[name("a")] b: f64 }
//! ```
//!
//! Reading is strict: an element that the type does not have, a missing or repeated one, and a
//! value outside its type are errors that name the field. Order is not checked. Attributes that the type
//! does not have are ignored. An `Option` is also `None` if its element is there with `xsi:nil`; it is written
//! without the element. A field that needs a value refuses `xsi:nil` with an error that names the field. Not
//! supported: qualified attributes, generic types.

mod events;
mod fault;
mod reader;
mod types;
mod values;
mod writer;

use chappe_xml::text::Pull;
use chappe_xml::{Builder, Element, EventSource, Limits};

pub use crate::schema::LexicalError;
pub use chappe_message_derive::{Fault, Message};
#[doc(no_inline)]
pub use chappe_xml::{Error as WriteError, Name, Namespace};
pub use fault::{FaultNames, Faults, declared, detail_of};
pub use reader::{ReadError, ReadReason, Reader};
pub use types::{Fields, Notes, Types, TypesError};
pub use values::{Quantity, Sampled, Samples, Simple, Text};
pub use writer::Writer;

/// The content of an element as a Rust type. Made by `#[derive(Message)]`, see the
/// [module documentation](self).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a message",
    label = "not a message",
    note = "derive it: `#[derive(Message)]`; a byte is an `i16` or `u16`, bytes are `Vec<u8>`, \
            samples are `Samples<f64>`, and `Option` or `Vec` occur once around a field's type"
)]
pub trait Message: Sized {
    /// Declares the type of the content, and returns its name.
    fn declare(types: &mut Types) -> Name;

    /// Writes the content of the open element.
    ///
    /// # Errors
    /// Those of the sink.
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), WriteError>;

    /// Reads the content of the element whose start was read, and its end.
    ///
    /// # Errors
    /// The content is not of this type, or cannot be read.
    fn read(reader: &mut Reader<'_>) -> Result<Self, ReadError>;
}

/// A field of a message: a [`Message`] once, optional or repeated.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a message",
    label = "not a field",
    note = "derive it: `#[derive(Message)]`; a byte is an `i16` or `u16`, bytes are `Vec<u8>`, \
            samples are `Samples<f64>`, and one of `Option`, `Vec` and `Vec<Option<_>>` is around a field's type"
)]
pub trait Field: Sized {
    /// The content of its elements.
    type Item: Message;
    /// The elements read so far.
    type Slot: Default;
    /// The least and the largest number of elements; `None` is any number.
    const OCCURS: (u32, Option<u32>);
    /// Whether the schema permits elements without value (`xsi:nil`).
    const IS_NILLABLE: bool = false;

    /// Its elements; `None` is one without value.
    fn items(&self) -> impl Iterator<Item = Option<&Self::Item>>;

    /// Adds an element; `false` if there is one already.
    fn add(slot: &mut Self::Slot, item: Self::Item) -> bool;

    /// Adds an element without value; `false` if each element needs one.
    fn add_nil(_: &mut Self::Slot) -> bool {
        false
    }

    /// The value, or `None` if elements are missing.
    fn finish(slot: Self::Slot) -> Option<Self>;
}

impl<T: Message> Field for T {
    type Item = T;
    type Slot = Option<T>;
    const OCCURS: (u32, Option<u32>) = (1, Some(1));

    fn items(&self) -> impl Iterator<Item = Option<&T>> {
        std::iter::once(Some(self))
    }

    fn add(slot: &mut Option<T>, item: T) -> bool {
        slot.replace(item).is_none()
    }

    fn finish(slot: Option<T>) -> Option<Self> {
        slot
    }
}

impl<T: Message> Field for Option<T> {
    type Item = T;
    type Slot = Self;
    const OCCURS: (u32, Option<u32>) = (0, Some(1));

    fn items(&self) -> impl Iterator<Item = Option<&T>> {
        self.iter().map(Some)
    }

    fn add(slot: &mut Self, item: T) -> bool {
        slot.replace(item).is_none()
    }

    fn add_nil(_: &mut Self) -> bool {
        true
    }

    fn finish(slot: Self) -> Option<Self> {
        Some(slot)
    }
}

impl<T: Message> Field for Vec<T> {
    type Item = T;
    type Slot = Self;
    const OCCURS: (u32, Option<u32>) = (0, None);

    fn items(&self) -> impl Iterator<Item = Option<&T>> {
        self.iter().map(Some)
    }

    fn add(slot: &mut Self, item: T) -> bool {
        slot.push(item);
        true
    }

    fn finish(slot: Self) -> Option<Self> {
        Some(slot)
    }
}

/// Elements of which some have no value, such as the channels of a device with a broken probe.
impl<T: Message> Field for Vec<Option<T>> {
    type Item = T;
    type Slot = Self;
    const OCCURS: (u32, Option<u32>) = (0, None);
    const IS_NILLABLE: bool = true;

    fn items(&self) -> impl Iterator<Item = Option<&T>> {
        self.iter().map(Option::as_ref)
    }

    fn add(slot: &mut Self, item: T) -> bool {
        slot.push(Some(item));
        true
    }

    fn add_nil(slot: &mut Self) -> bool {
        slot.push(None);
        true
    }

    fn finish(slot: Self) -> Option<Self> {
        Some(slot)
    }
}

/// A choice of elements, which is the content of an element or a part of it. Made by
/// `#[derive(Message)]` from an enum whose variants have fields.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no choice",
    note = "`#[choice]` belongs to an enum with `#[derive(Message)]` whose variants have a field, or to \
            an `Option` or `Vec` of it"
)]
pub trait Choice: Message {
    /// The names of the elements.
    const NAMES: &'static [&'static str];

    /// Declares the elements.
    fn declare_alternatives(fields: &mut Fields<'_>);

    /// Writes its element.
    ///
    /// # Errors
    /// Those of the sink.
    fn write_alternative(&self, writer: &mut Writer<'_>) -> Result<(), WriteError>;

    /// Reads the content of the element of this position in `NAMES`.
    ///
    /// # Errors
    /// The content is not of this type.
    fn read_alternative(position: usize, reader: &mut Reader<'_>) -> Result<Self, ReadError>;
}

/// A field in an attribute: a [`Text`], or an `Option` of it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an attribute",
    note = "an attribute is a built-in type, `Samples` or an enum without fields, or an `Option` of it"
)]
pub trait AttributeField: Sized {
    /// The value.
    type Value: Text;
    /// Whether the attribute must be there.
    const IS_REQUIRED: bool;

    /// The value, if there is one.
    fn value(&self) -> Option<&Self::Value>;

    /// The field; `None` if a value is missing.
    fn from_value(value: Option<Self::Value>) -> Option<Self>;
}

impl<T: Text> AttributeField for T {
    type Value = T;
    const IS_REQUIRED: bool = true;

    fn value(&self) -> Option<&T> {
        Some(self)
    }

    fn from_value(value: Option<T>) -> Option<Self> {
        value
    }
}

impl<T: Text> AttributeField for Option<T> {
    type Value = T;
    const IS_REQUIRED: bool = false;

    fn value(&self) -> Option<&T> {
        self.as_ref()
    }

    fn from_value(value: Option<T>) -> Option<Self> {
        Some(value)
    }
}

/// The element of a message.
#[must_use]
pub fn to_element<T: Message>(namespace: &Namespace, name: &str, message: &T) -> Element {
    let mut tree = Builder::default();
    let written = Writer::new(&mut tree, namespace).root(name, message);
    match written.and_then(|()| tree.finish()) {
        Ok(element) => element,
        Err(error) => unreachable!("a message is one element: {error}"),
    }
}

/// Reads a message from its element.
///
/// # Errors
/// [`ReadError`] if the element is not one of this type and name.
pub fn from_element<T: Message>(
    namespace: &Namespace,
    name: &str,
    element: &Element,
) -> Result<T, ReadError> {
    from_source(namespace, name, &mut element.events(), Limits::default())
}

/// Reads a message from the text of a document, without a tree and without copies of names.
///
/// # Errors
/// [`ReadError`] if the document is not an element of this type and name, or exceeds the limits.
pub fn from_text<T: Message>(
    namespace: &Namespace,
    name: &str,
    document: &[u8],
    limits: Limits,
) -> Result<T, ReadError> {
    let text = Pull::new(document, limits).map_err(|error| ReadError::from(error).inside(name))?;
    Reader::of_text(text, namespace, limits).root(name)
}

/// Bytes for which memory is taken before a message is written. Reason: messages with a few values have 100 to 200.
const MESSAGE_BYTES: usize = 256;

/// The text of a message: an element of this name, which must be valid in XML.
#[must_use]
pub fn to_text<T: Message>(namespace: &Namespace, name: &str, message: &T) -> String {
    let mut text = String::with_capacity(MESSAGE_BYTES);
    match Writer::of_text(&mut text, namespace).root(name, message) {
        Ok(()) => text,
        Err(error) => unreachable!("text takes every message: {error}"),
    }
}

/// Reads a message from the events of a document, such as EXI, without a tree.
///
/// # Errors
/// [`ReadError`] if the document is not an element of this type and name, or exceeds the limits.
pub fn from_source<T: Message>(
    namespace: &Namespace,
    name: &str,
    source: &mut dyn EventSource,
    limits: Limits,
) -> Result<T, ReadError> {
    Reader::new(source, namespace, limits).root(name)
}

/// The position of a text among the values of an enumeration.
#[doc(hidden)]
pub fn variant(values: &[&str], text: &str) -> Result<usize, LexicalError> {
    let trimmed = chappe_xml::trim(text);
    let position = values.iter().position(|value| *value == trimmed);
    position.ok_or_else(|| lexical("value of its enumeration", text))
}

/// The text is not a value of this type.
fn lexical(expected: &'static str, text: &str) -> LexicalError {
    LexicalError::new(expected, text)
}
