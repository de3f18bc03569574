//! External programs in any language: a wrapper and an exporter that exchange JSON lines with a child
//! process over its standard input and output (docs/programs.md).

mod check;
mod export;
mod process;
mod protocol;
#[cfg(test)]
mod tests;
mod wrapper;

pub use check::{ProgramCheck, check_program};
pub(crate) use export::EXPORTER;
pub(crate) use wrapper::WRAPPER;
