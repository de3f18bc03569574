//! Everything that yields stream elements.
//!
//! A [`Mapping`] turns the events of one device into elements: [`flat`] types by their schema,
//! others by path [`rules`], medical devices by [`sdc`]. [`dpws`] attaches a described device to the
//! mappings that fit it. [`links`] bring the streams of other nodes. With the feature `dds` streams are
//! published to DDS topics and topics read.

#![forbid(unsafe_code)]

#[cfg(feature = "dds")]
pub mod dds;
pub mod dpws;
pub mod flat;
pub mod links;
mod mapping;
mod offers;
mod plan;
pub mod rules;
pub mod sdc;

pub use mapping::{Mapped, Mapping, Offer, Trouble};
pub use offers::Offers;
pub use plan::{Plan, plan};
