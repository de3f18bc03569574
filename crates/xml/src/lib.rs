//! XML event model and element tree, with a reader and a writer of text XML.
//!
//! Messages are written to an [`EventSink`] and read from an [`EventSource`], so the transport
//! chooses between text ([`text`]) and EXI. [`Element`] is the small owned tree that most messages
//! use. It keeps namespace declarations, so that QNames in content can be resolved. [`canonical`]
//! writes the form of an element that signatures cover.
//!
//! Source: Extensible Markup Language 1.0 (fifth edition), Namespaces in XML 1.0 (third edition).
//! Not supported by design: document type declarations (and with them entities other than the five
//! predefined ones), encodings other than UTF-8, XML 1.1.
//!
//! ```
//! use chappe_xml::{Element, Name};
//! let element = Element::parse(b"<a xmlns='urn:x'><b c='1'>two &amp; three</b></a>")?;
//! let b = element.child(&Name::new("urn:x", "b")).unwrap();
//! assert_eq!(b.attribute(&Name::local("c")), Some("1"));
//! assert_eq!(b.text(), "two & three");
//! # Ok::<(), chappe_xml::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod canonical;
mod element;
mod error;
mod event;
mod limits;
mod name;
pub mod path;
pub mod text;
mod value;
mod walk;

pub use element::{Element, Node};
pub use error::{Error, Reason};
pub use event::{Event, EventSink, EventSource};
pub use limits::Limits;
pub use name::{Name, Namespace, Str};
pub use value::{Value, ValueError, trim};
pub use walk::{Builder, Events};
