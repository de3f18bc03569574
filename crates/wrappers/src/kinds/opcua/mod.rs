//! Variables of OPC UA servers, by subscription (OPC UA parts 4, 6 and 11).
//!
//! [`node`] reads the addresses of nodes, [`value`] converts their values, [`track`] decides which values are new, as a
//! machine without time and sockets. [`frames`] bounds what a server may send, [`security`] trusts it by its certificate,
//! [`connection`] has the secure channel and the session, [`follow`] subscribes and closes gaps by history, and [`wrapper`]
//! passes batches on. Events, methods, alarms and servers that connect to the client (reverse connect) are left out.
//!
//! The library's own session is not used: it acknowledges a notification before it is stored, and its frames have no limit.

mod browse;
mod connection;
mod elements;
mod follow;
mod frames;
mod node;
mod publish;
mod security;
mod settings;
mod subscription;
#[cfg(test)]
mod tests;
mod track;
mod value;
mod wrapper;

pub(crate) use wrapper::WRAPPER;
