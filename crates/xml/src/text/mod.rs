//! Reading and writing text XML.

mod chars;
mod declared;
mod reader;
mod scope;
mod writer;

pub use reader::Reader;
pub use writer::Writer;
