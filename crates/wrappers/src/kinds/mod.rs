//! The protocols, one module each.

pub mod file;
pub mod gsn;
