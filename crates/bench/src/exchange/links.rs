//! Which links a node of the scenario has: the one place that knows how a kind is configured.

use std::net::{Ipv4Addr, SocketAddr};

use chappe_node::Node;
use chappe_node::config::Config;

use super::Kind;
use super::message::Role;
use crate::Error;

/// The port of a node's REST interface; each node has an address of its own.
const HTTP_PORT: u16 = 8470;

/// The address of node `index`, within the namespace of the run.
fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 77, u8::try_from(index + 1).unwrap_or(u8::MAX))
}

/// Where node `index` serves HTTP.
pub(crate) fn http_address(index: usize) -> SocketAddr {
    (address(index), HTTP_PORT).into()
}

/// Lets a node listen for the kind of its role.
pub(crate) fn listen(_config: &mut Config, _role: &Role) {}

/// Subscribes a node to the streams of all, its own included.
pub(crate) async fn connect(_node: &Node, role: &Role) -> Result<(), Error> {
    if role.kind == Kind::NoNetwork {
        return Ok(());
    }
    let kind = role.kind.name();
    Err(Error::Failed(format!("{kind} is not wired yet")))
}

/// Lets a node read a stream that has been growing at node `from` while nobody read it.
pub(crate) async fn catch_up(_node: &Node, _from: usize, _stream: &str) -> Result<(), Error> {
    Err(Error::Failed("nothing is wired yet".to_owned()))
}

/// What a stream that is caught up with is called where it is received.
pub(crate) fn caught_up(stream: &str) -> String {
    format!("b.{stream}")
}

/// Cuts a node's links, or makes them again.
pub(crate) async fn outage(_node: &Node, role: &Role, _cut: bool) -> Result<(), Error> {
    let kind = role.kind.name();
    Err(Error::Failed(format!("{kind} is not wired yet")))
}
