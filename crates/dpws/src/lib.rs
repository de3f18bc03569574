#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! [`discovery`] finds devices, [`metadata`] describes them, [`eventing`] carries their events,
//! [`hosting`] serves a device, and [`exi`] makes messages short. All protocol logic is in machines
//! without sockets or clocks.

#![forbid(unsafe_code)]

pub mod dialect;
pub mod discovery;
pub mod eventing;
pub mod exchange;
pub mod exi;
pub mod hosting;
mod ids;
pub mod metadata;
pub mod profile;

/// The crate of the messages in this interface. A type that is derived through it names the path:
///
/// ```
/// use chappe_dpws::soap::message::{self, Message};
/// #[derive(Message)]
/// #[message(crate = "chappe_dpws::soap")]
/// struct Level { percent: i32 }
/// let text = message::to_text(&"urn:x".into(), "Level", &Level { percent: 40 });
/// assert_eq!(text, r#"<m:Level xmlns:m="urn:x"><m:percent>40</m:percent></m:Level>"#);
/// ```
pub use chappe_soap as soap;
pub use dialect::Dialect;
