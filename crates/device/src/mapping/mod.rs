//! Maps the events of a device to stream elements.
//!
//! A [`Mapping`] handles the events of one device: [`flat`] types by their schema, other types by path [`rules`],
//! medical devices by [`sdc`]. [`plan`](plan()) chooses the mappings of a described device; [`Offers`] are all
//! of its streams.

pub mod flat;
mod mapped;
mod offers;
mod plan;
pub mod rules;
pub mod sdc;

pub use mapped::{Mapped, Mapping, Offer, Trouble};
pub use offers::Offers;
pub use plan::{Plan, plan};
