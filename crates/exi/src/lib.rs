// Its examples need the standard library.
#![cfg_attr(feature = "std", doc = include_str!("../README.md"))]
//!
//! # How it works
//!
//! An [`Encoder`] turns [`Event`]s into a stream and a [`Decoder`] turns a stream into events.
//! Values are typed, so a number need not be formatted as a string first. A [`Schema`] makes
//! streams smaller and faster to process; without one, built-in grammars learn from the document.
//! [`Options`] carry the names that the specification gives them.
//!
//! Source: Efficient XML Interchange (EXI) Format 1.0 (Second Edition), W3C Recommendation, 11
//! February 2014. Numbers in comments are its clauses.
//!
//! Without the feature `std`, the codec needs only `alloc`; XSD and text XML are left out.

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
pub use decoder::{Decoder, StreamReader};
pub use encoder::{CanonicalOptions, Encoder, HeaderOptions, StreamWriter};
pub use error::{Cause, Error};
pub use event::{Event, Name};
pub use header::Header;
pub use limits::Limits;
pub use messages::MessageSchema;
pub use options::{
    Alignment, Metadata, Options, Preserve, Profile, QName, Representation, SchemaId,
};
#[cfg(feature = "std")]
pub use schema::xsd::{SchemaResolver, XsdError, XsdSource};
pub use schema::{CompiledError, Schema};
pub use value::{DateTime, DateTimeKind, Decimal, Float, Value};
