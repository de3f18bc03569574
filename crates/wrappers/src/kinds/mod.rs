//! The protocols, one module each.

pub(crate) mod file;
pub(crate) mod gsn;
