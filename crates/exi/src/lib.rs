//! Efficient XML Interchange (EXI) 1.0: XML documents as compact streams, both ways.
//!
//! An [`Encoder`] takes [`Event`]s and makes a stream, a [`Decoder`] gives them back. Values are
//! typed: a caller who has a number never makes a string. With a [`Schema`] streams are smaller and
//! faster to handle; without one, grammars are learnt from the document. [`Options`] are those of
//! the specification, under its names.
//!
//! Source: Efficient XML Interchange (EXI) Format 1.0 (Second Edition), W3C Recommendation, 11
//! February 2014; numbers in comments are its clauses.
//!
//! Without the feature `std` the codec needs only `alloc`: XSD and text XML are left out.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod bits;
mod channels;
mod datatype;
mod decoder;
mod encoder;
mod error;
mod event;
mod grammar;
mod header;
mod inflate;
mod limits;
mod messages;
mod options;
mod representation;
mod schema;
mod tables;
#[cfg(feature = "std")]
pub mod text;
mod value;
#[cfg(feature = "xml")]
pub mod xml;

pub use bits::Source;
pub use decoder::{Decoder, Reading};
pub use encoder::{Canonical, Encoder, HeaderOptions, Writing};
pub use error::{Cause, Error};
pub use event::{Event, Name};
pub use header::Header;
pub use limits::Limits;
pub use messages::Messages;
pub use options::{
    Alignment, Metadata, Options, Preserve, Profile, QName, Representation, SchemaId,
};
#[cfg(feature = "std")]
pub use schema::xsd::{Resolve, XsdError, XsdSource};
pub use schema::{CompiledError, Schema};
pub use value::{DateTime, DateTimeKind, Decimal, Float, Value};

/// The examples of README.md, which run as tests.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
