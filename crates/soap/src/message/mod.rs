//! Messages as Rust types: schema, reader and writer in one.
//!
//! `#[derive(Message)]` makes a struct with named fields the content of an element, and an enum
//! without fields a string with permitted values. The namespace and the element's name are the
//! service's, so one type can be the message of several services.
//!
//! | in Rust | in the schema |
//! |---|---|
//! | a field | a child element of the field's name, in the service's namespace |
//! | `Option<T>` | an optional element |
//! | `Vec<T>` | a repeated element, also none |
//! | a struct, an enum | a named type |
//! | `bool`, `String`, `f32`, `f64`, integers from 8 to 64 bits except `u8` | the built-in type |
//! | `Vec<u8>` | `xs:base64Binary` |
//! | [`Duration`](std::time::Duration) | `xs:duration` |
//! | [`SystemTime`](std::time::SystemTime) | `xs:dateTime`, in UTC |
//! | [`Samples<T>`] | a list of samples |
//! | `()` | an empty element |
//!
//! Attributes of a field: `#[unit("Cel")]` is the UCUM code of its quantity,
//! `#[sample_period_ms(4)]` the period of its samples, `#[name("Celsius")]` its name in messages,
//! also for variants. Doc comments become the schema's documentation.
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
//! a variant has no fields unless it is a fault,
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! enum Mode { Off, Level(f64) }
//! ```
//! and two fields cannot have one name.
//! ```compile_fail
//! #[derive(chappe_soap::message::Message)]
//! struct Twice { a: f64, #[name("a")] b: f64 }
//! ```
//!
//! Reading is strict: an element that the type does not have, a missing or repeated one, and a
//! value outside its type are errors that name the field. Order is not checked. Attributes are
//! ignored. Not supported: attributes as fields, choices, generic types.

mod events;
mod fault;
mod reader;
mod types;
mod values;
mod writer;

use chappe_xml::text::Pull;
use chappe_xml::{Builder, Element, EventSource, Limits};

use crate::schema::LexicalError;

pub use chappe_message_derive::{Fault, Message};
#[doc(no_inline)]
pub use chappe_xml::{Error as WriteError, Name, Namespace};
pub use fault::{FaultNames, Faults, declared, detail_of};
pub use reader::{ReadError, ReadReason, Reader};
pub use types::{Fields, Notes, Types, TypesError};
pub use values::{Quantity, Sampled, Samples, Simple};
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
            samples are `Samples<f64>`, and `Option` or `Vec` occur once around a field's type"
)]
pub trait Field: Sized {
    /// The content of its elements.
    type Item: Message;
    /// The elements read so far.
    type Slot: Default;
    /// The least and the largest number of elements; `None` is any number.
    const OCCURS: (u32, Option<u32>);

    /// Writes its elements.
    ///
    /// # Errors
    /// Those of the sink.
    fn write(&self, name: &'static str, writer: &mut Writer<'_>) -> Result<(), WriteError>;

    /// Adds an element; `false` if there is one already.
    fn add(slot: &mut Self::Slot, item: Self::Item) -> bool;

    /// The value, or `None` if elements are missing.
    fn finish(slot: Self::Slot) -> Option<Self>;
}

impl<T: Message> Field for T {
    type Item = T;
    type Slot = Option<T>;
    const OCCURS: (u32, Option<u32>) = (1, Some(1));

    fn write(&self, name: &'static str, writer: &mut Writer<'_>) -> Result<(), WriteError> {
        writer.element(name, self)
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

    fn write(&self, name: &'static str, writer: &mut Writer<'_>) -> Result<(), WriteError> {
        match self {
            Some(item) => writer.element(name, item),
            None => Ok(()),
        }
    }

    fn add(slot: &mut Self, item: T) -> bool {
        slot.replace(item).is_none()
    }

    fn finish(slot: Self) -> Option<Self> {
        Some(slot)
    }
}

impl<T: Message> Field for Vec<T> {
    type Item = T;
    type Slot = Self;
    const OCCURS: (u32, Option<u32>) = (0, None);

    fn write(&self, name: &'static str, writer: &mut Writer<'_>) -> Result<(), WriteError> {
        self.iter().try_for_each(|item| writer.element(name, item))
    }

    fn add(slot: &mut Self, item: T) -> bool {
        slot.push(item);
        true
    }

    fn finish(slot: Self) -> Option<Self> {
        Some(slot)
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

/// The text of a message: an element of this name, which must be valid in XML.
#[must_use]
pub fn to_text<T: Message>(namespace: &Namespace, name: &str, message: &T) -> String {
    let mut text = String::new();
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

/// The text is not a value of this type.
fn lexical(expected: &'static str, text: &str) -> LexicalError {
    LexicalError::new(expected, text)
}
