//! Reading and writing text XML.

mod chars;
mod declared;
mod markup;
mod pull;
mod reader;
pub(crate) mod scope;
pub(crate) mod tokens;
mod writer;

pub use pull::{Part, Pull};
pub use reader::Reader;
pub use writer::{Writer, escape};
