//! Messages and faults as Rust types: [`chappe_soap::message`], which has the table of types, with derive macros that
//! need no other dependency than this crate.
//!
//! A program that re-exports or renames this crate names its path: `#[message(crate = "…")]`.

pub use chappe_message_derive::{DeviceFault as Fault, DeviceMessage as Message};
// The macros above hide those of these names; the traits remain.
pub use chappe_soap::message::*;

/// The struct and the derive macro of one name.
pub(crate) mod both {
    pub use chappe_message_derive::DeviceFault as Fault;
    pub use chappe_soap::*;
}
