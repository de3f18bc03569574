//! The links of a node in the scenario: the only module that knows how each kind is configured.

use std::net::{Ipv4Addr, SocketAddr};

use chappe_links::{LinkConfig, LinkKind, LinkLimits, LinkStart, Links, Serialization};
use chappe_log::Level;
use chappe_node::Node;
use chappe_node::config::Config;

use super::message::Role;
use super::node::offered;
use super::{Kind, kryo};
use crate::Error;

/// Ports of a node; each node has an address of its own.
const HTTP_PORT: u16 = 8470;
const SESSION_PORT: u16 = 22_031;
const PUBLISH_PORT: u16 = 22_032;
const DIRECTORY_PORT: u16 = 22_033;
/// The prefix of the names of received streams.
const RECEIVED: &str = "r";
/// The prefix of the name of a backlog where it is received.
const CAUGHT_UP: &str = "b";

/// The address of node `index`, within the namespace of the run.
pub(crate) fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 77, u8::try_from(index + 1).unwrap_or(u8::MAX))
}

/// The HTTP address of node `index`.
pub(crate) fn http_address(index: usize) -> SocketAddr {
    (address(index), HTTP_PORT).into()
}

/// Lets a node listen for the kind of its role.
pub(crate) fn listen(config: &mut Config, role: &Role) {
    let at = |port: u16| format!("{}:{port}", address(role.index));
    match role.kind {
        Kind::ZeromqReliable => config.exchange.listen = at(SESSION_PORT),
        // A contact point has another loopback address than its subscription.
        Kind::HttpPush => config.exchange.contact = vec!["127.0.77.0/24".to_owned()],
        Kind::ZeromqBestEffortXml | Kind::ZeromqBestEffortPostcard => {
            config.exchange.publish = at(PUBLISH_PORT);
            config.exchange.directory = at(DIRECTORY_PORT);
        }
        _ => {}
    }
}

/// The link by which streams of node `from` are received.
fn link(name: String, kind: Kind, from: usize, stream: String, prefix: &str) -> Option<LinkConfig> {
    let host = address(from);
    let (kind, address, serialization) = match kind {
        Kind::HttpPush => (
            LinkKind::HttpPush,
            format!("http://{host}:{HTTP_PORT}"),
            Serialization::Xml,
        ),
        Kind::HttpPull => (
            LinkKind::HttpPull,
            format!("http://{host}:{HTTP_PORT}"),
            Serialization::Xml,
        ),
        Kind::ZeromqBestEffortXml => (
            LinkKind::ZeromqBestEffort,
            format!("tcp://{host}:{PUBLISH_PORT}"),
            Serialization::Xml,
        ),
        Kind::ZeromqBestEffortPostcard => (
            LinkKind::ZeromqBestEffort,
            format!("tcp://{host}:{PUBLISH_PORT}"),
            Serialization::Postcard,
        ),
        Kind::ZeromqReliable => (
            LinkKind::Zeromq,
            format!("tcp://{host}:{SESSION_PORT}"),
            Serialization::Postcard,
        ),
        _ => return None,
    };
    let best_effort = kind == LinkKind::ZeromqBestEffort;
    Some(LinkConfig {
        name,
        kind,
        address,
        streams: vec![stream],
        serialization: Some(serialization),
        level: Some(Level::Power),
        as_prefix: Some(prefix.to_owned()),
        start: LinkStart::First,
        directory: best_effort.then(|| format!("tcp://{host}:{DIRECTORY_PORT}")),
        server_key: None,
        contact: None,
        token: None,
        token_file: None,
        fingerprint: None,
        authorities: None,
        insecure: false,
        limits: LinkLimits::default(),
    })
}

fn name(from: usize) -> String {
    format!("from-{from:02}")
}

/// Subscribes a node to the streams of all nodes, including its own.
pub(crate) async fn connect(node: &Node, role: &Role) -> Result<(), Error> {
    if role.kind == Kind::ZeromqKryo {
        return kryo::subscribe(role);
    }
    for from in 0..role.nodes {
        if let Some(link) = link(name(from), role.kind, from, offered(from), RECEIVED) {
            add(node, link)?;
        }
    }
    Ok(())
}

fn links(node: &Node) -> Result<&Links, Error> {
    let absent = || Error::Failed("the node has not started its links".to_owned());
    node.links().ok_or_else(absent)
}

fn add(node: &Node, link: LinkConfig) -> Result<(), Error> {
    let what = format!("adding the link {}", link.name);
    links(node)?.add(link).map_err(Error::failed(what))
}

/// Lets a node read a stream that grew at node `from` without readers.
pub(crate) async fn catch_up(node: &Node, from: usize, stream: &str) -> Result<(), Error> {
    let stream = stream.to_owned();
    let link = link(
        "backlog".to_owned(),
        Kind::ZeromqReliable,
        from,
        stream,
        CAUGHT_UP,
    );
    link.map_or(Ok(()), |link| add(node, link))
}

/// The name of the backlog's stream at the receiving node.
pub(crate) fn caught_up(stream: &str) -> String {
    format!("{CAUGHT_UP}.{stream}")
}

/// Cuts a node's links, or restores them.
pub(crate) async fn outage(node: &Node, role: &Role, cut: bool) -> Result<(), Error> {
    if !cut {
        return connect(node, role).await;
    }
    for from in 0..role.nodes {
        let removed = links(node)?.remove(&name(from));
        removed.map_err(Error::failed("removing a link"))?;
    }
    Ok(())
}
