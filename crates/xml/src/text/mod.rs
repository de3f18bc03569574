//! Text XML both ways.

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;
