//! External programs in any language: a wrapper, a processor and an exporter that exchange JSON lines
//! with a child process over its standard input and output (docs/reference/programs.md).
//!
//! A processor is a wrapper that is passed elements of other streams, as an exporter is.

mod check;
mod errors;
mod export;
mod lines;
mod passed;
mod process;
mod protocol;
mod settings;
#[cfg(test)]
mod tests;
mod wrapper;

pub use check::{ProgramCheck, check_program};
pub(crate) use export::EXPORTER;
pub use lines::{End, Line, Lines};
pub use protocol::{Answer, Message, Reached, Refusal, StreamMessage};
pub(crate) use wrapper::WRAPPER;
