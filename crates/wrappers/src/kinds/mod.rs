//! The protocols, one module each.

pub(crate) mod dpws;
pub(crate) mod file;
pub(crate) mod gsn;
pub(crate) mod program;
