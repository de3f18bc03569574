//! Files: a wrapper that follows a file through its rotation, and an exporter that appends to one.

mod export;
mod follow;
mod records;
mod replay;
mod rotation;
mod wrapper;

pub(crate) use export::EXPORTER;
pub(crate) use wrapper::WRAPPER;
