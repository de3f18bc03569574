//! Wrappers: sources of stream elements outside the node.
//!
//! [`dpws`] attaches a described device: its events become elements by the mappings of
//! [`chappe_device::mapping`] that fit it.

#![forbid(unsafe_code)]

pub mod dpws;
