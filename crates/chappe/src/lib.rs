//! Chappe: middleware for networks of devices and sensors.
//!
//! It finds devices, reads their metadata, calls them, receives their events, and makes their data
//! durable, queryable streams. This page leads through its crates, in the order in which a value passes
//! them. Most are modules of this crate, and the program `chappe` uses the same ones.
//!
//! # Where to begin
//!
//! | to do this | read |
//! |---|---|
//! | build a device, or call and subscribe to devices | [`device`] |
//! | speak SOAP or WSDL with something else | [`soap`] |
//! | find nodes and services without multicast | [`kad`] |
//! | store streams durably in a program of your own | [`log`] |
//! | copy a stream from one program to another, each element once | [`flow`] |
//! | notify many receivers of one event | [`chappe-notification-tree`](../chappe_notification_tree/index.html) |
//! | talk to ZeroMQ peers without its library | [`chappe-zmtp`](../chappe_zmtp/index.html) |
//! | encode XML compactly | [`exi`] |
//! | run a whole node in your process | [`node`] |
//!
//! All of these but the last can be used alone, and so can [`dpws`], the machines below [`device`]. Each opens with
//! an example, and says what it is not, its features and its stability. The other crates serve them and the node,
//! and change with it.
//!
//! # Along the path of a value
//!
//! | crate | its part |
//! |---|---|
//! | [`machine`] | how all protocols here are written: machines whose inputs are messages, time and randomness |
//! | [`xml`], [`exi`], [`soap`] | messages: text or EXI, envelopes, Rust types |
//! | [`dpws`], [`kad`] | finding devices and subscribing to their events |
//! | [`transport`] | the machines on UDP, HTTP and ZeroMQ sockets, with TLS; files |
//! | [`device`] | a device, its client, and mappings from events to elements |
//! | [`wrappers`], [`chappe-format`](../chappe_format/index.html) | elements from and to peers of other protocols |
//! | [`stream`] | elements, schemas, windows, SQL, virtual sensors |
//! | [`log`] | the durable store |
//! | [`registry`] | entities, triples, SPARQL, UDDI |
//! | [`links`], [`flow`] | streams of other nodes, exactly once |
//! | [`identity`] | keys, accounts' roles, certificates, the policy for addresses |
//! | [`node`] | the server: configuration, REST, console, metrics |
//!
//! `ARCHITECTURE.md` has all crates with the floors that they stand on.

#![forbid(unsafe_code)]

pub use chappe_device as device;
pub use chappe_dpws as dpws;
pub use chappe_exi as exi;
pub use chappe_flow as flow;
pub use chappe_identity as identity;
pub use chappe_kad as kad;
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
