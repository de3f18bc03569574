//! The frames of GSN 2.0.1: stream elements and structures in Kryo 2.
//!
//! Kryo writes the fields of a Java object in the order of their names, without the names. Numbers have a variable
//! size, an object is preceded by a reference or by the mark of a new one, and a class that Kryo does not number is
//! named once in each frame. What follows is what a running server sends and accepts:
//!
//! | object | its content |
//! |---|---|
//! | element | names (array of text), types (array of numbers), values (array of objects), time in ms, one Boolean |
//! | structure | array of: type number, description, one empty reference, name, type as text, unit |
//!
//! [`decode_element`] and [`decode_structure`] read these two and nothing else: a frame that names another class, refers
//! to itself, or is longer or shorter than its content is an error. Memory is bounded by the size of the frame.
//!
//! An array may be null in Java; here it must exist. The Boolean of an element seems to say whether the source gave the
//! time: a server stores an element in both cases.

mod class;
mod element;
mod error;
mod reader;
mod structure;
mod writer;

pub use element::{FIELDS_MAX, GsnElement, GsnValue, decode_element, encode_element};
pub use error::KryoError;
pub use structure::{DataField, DataType, decode_structure, encode_structure};
