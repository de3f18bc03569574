//! The integration tests of `chappe-dpws` in one program: linking one takes seconds.

mod conformance;
mod discovery_exi;
mod discovery_floods;
mod discovery_managed;
mod discovery_messages;
mod discovery_network;
mod discovery_peers;
mod discovery_proxy;
mod event_source;
mod eventing_messages;
mod eventing_pair;
mod eventing_tree;
mod hosting;
mod metadata;
mod network;
