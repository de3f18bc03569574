//! Chappe: middleware for networks of devices and sensors.
//!
//! It finds devices, reads their metadata, calls them, receives their events, and makes their data
//! durable, queryable streams. This crate re-exports the parts, one module each; the program
//! `chappe` uses the same parts.
//!
//! | module | purpose |
//! |---|---|
//! | [`device`] | host a device, be its client, map its events to elements |
//! | [`dpws`] | discovery, metadata, eventing as machines without I/O |
//! | [`registry`] | entities, triples, SPARQL |
//! | [`stream`] | elements, windows, virtual sensors |
//! | [`log`] | the durable store |
//! | [`links`] | streams of other nodes, exactly once |
//! | [`wrappers`] | elements from described DPWS devices |
//! | [`node`] | the server |

#![forbid(unsafe_code)]

pub use chappe_device as device;
pub use chappe_dpws as dpws;
pub use chappe_identity as identity;
pub use chappe_links as links;
pub use chappe_log as log;
pub use chappe_machine as machine;
pub use chappe_node as node;
pub use chappe_registry as registry;
pub use chappe_soap as soap;
pub use chappe_stream as stream;
pub use chappe_transport as transport;
pub use chappe_wrappers as wrappers;
pub use chappe_xml as xml;
