//! Subscriptions on a notification tree: the extension of Subscribe and SubscribeResponse.
//!
//! ```xml
//! <wse:Subscribe>…
//!   <t:Tree xmlns:t="urn:chappe:notification-tree:1">
//!     <t:Key>public key of the sink (Ed25519), hexadecimal</t:Key>
//!     <t:Address>192.0.2.9:5400</t:Address>
//!     <t:Criticality>7</t:Criticality>
//!   </t:Tree>
//! </wse:Subscribe>
//! ```
//!
//! `t:Criticality`, 0 to 255, defaults to 0; a source may order its members as it likes. Both
//! messages allow elements of other namespaces at their end (WS-Eventing, section 3.1), and
//! implementations without this extension ignore it: such a source answers without it and sends
//! standard notifications. The source's element also has `t:Members`: the URI of its signed lists
//! of sinks.
//!
//! A sink becomes a member once it has proven its key at its address. Until then, and for every
//! event that misses it, it gets standard notifications with the same message identifier, so that
//! it detects duplicates.

use std::net::SocketAddr;

use chappe_xml::{Element, Name, Str};

use super::compact::{hex, unhex};

/// The namespace of the extension.
const NAMESPACE: &str = "urn:chappe:notification-tree:1";
/// Bytes of the URI of signed lists.
const MEMBERS_MAX: usize = 2_048;

/// The key and address of a tree participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePeer {
    /// Its public key (Ed25519).
    pub key: [u8; 32],
    /// Its address for datagrams.
    pub address: SocketAddr,
}

/// A sink's description of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeSink {
    /// Its key and address.
    pub peer: TreePeer,
    /// Higher values are more critical. A source may notify the most critical sinks first, but need
    /// not trust the value.
    pub criticality: u8,
}

/// A source's description of its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOffer {
    /// The source.
    pub source: TreePeer,
    /// The URI of its signed lists, to which `/` and the topic are added.
    pub members: Str,
}

/// Configuration of a source's notification trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeConfig {
    /// The source's public key.
    pub key: [u8; 32],
    /// The UDP port for answers, at the address of the subscriber's request.
    pub port: u16,
    /// Whether the tree uses IPv4. Sinks of the other family get standard notifications.
    pub v4: bool,
    /// The unguessable path of its lists.
    pub members_path: Str,
    /// Events in flight on trees; further ones are sent to all as standard notifications. Default
    /// 1,024.
    pub spreads_max: usize,
    /// Consecutive missed events after which a sink gets only standard notifications. Default 3.
    pub misses_max: u8,
}

impl TreeConfig {
    /// Creates a configuration with the defaults.
    #[must_use]
    pub fn new(key: [u8; 32], port: u16, v4: bool, members_path: Str) -> Self {
        Self {
            key,
            port,
            v4,
            members_path,
            spreads_max: 1_024,
            misses_max: 3,
        }
    }

    /// The tree for a subscriber that reaches the source at `base`.
    pub(super) fn offer(&self, base: &str) -> Option<TreeOffer> {
        let authority = base.strip_prefix("http://")?;
        let local: SocketAddr = authority.parse().ok()?;
        (local.is_ipv4() == self.v4).then(|| TreeOffer {
            source: TreePeer {
                key: self.key,
                address: SocketAddr::new(local.ip(), self.port),
            },
            members: format!("{base}{}", self.members_path).into(),
        })
    }
}

fn name(local: &'static str) -> Name {
    Name::new(NAMESPACE, local)
}

impl TreePeer {
    /// The URI for the address check.
    pub(super) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Parses the extension; `Err` is its defect.
    pub(super) fn read(parent: &Element) -> Result<Option<Self>, &'static str> {
        let Some(tree) = parent.child(&name("Tree")) else {
            return Ok(None);
        };
        let text = |local| tree.child(&name(local)).map(|child| child.text());
        let key = text("Key").and_then(|text| unhex(text.trim(), 32));
        let key = key.and_then(|key| <[u8; 32]>::try_from(key).ok());
        let address = text("Address").and_then(|text| text.trim().parse::<SocketAddr>().ok());
        let address = address.filter(|it| it.port() != 0);
        Ok(Some(Self {
            key: key.ok_or("the tree key is missing or invalid")?,
            address: address.ok_or("the tree address is missing or invalid")?,
        }))
    }

    pub(super) fn write(&self) -> Element {
        let child = |local, text: String| Element::new(name(local)).with_text(text);
        Element::new(name("Tree"))
            .with_namespace("t", NAMESPACE)
            .with_child(child("Key", hex(&self.key)))
            .with_child(child("Address", self.address.to_string()))
    }
}

impl TreeSink {
    /// Parses the extension; `Err` is its defect.
    pub(super) fn read(parent: &Element) -> Result<Option<Self>, &'static str> {
        let Some(peer) = TreePeer::read(parent)? else {
            return Ok(None);
        };
        let tree = parent.child(&name("Tree"));
        let criticality = tree.and_then(|tree| tree.child(&name("Criticality")));
        let criticality = match criticality.map(|child| child.text().trim().parse()) {
            None => 0,
            Some(Ok(criticality)) => criticality,
            Some(Err(_)) => return Err("the criticality is not an integer from 0 to 255"),
        };
        Ok(Some(Self { peer, criticality }))
    }

    pub(super) fn write(&self) -> Element {
        let criticality = (self.criticality > 0)
            .then(|| Element::new(name("Criticality")).with_text(self.criticality.to_string()));
        self.peer.write().with_children(criticality)
    }
}

impl TreeOffer {
    pub(super) fn read(parent: &Element) -> Option<Self> {
        let source = TreePeer::read(parent).ok()??;
        let members = parent.child(&name("Tree"))?.child(&name("Members"))?;
        let members = members.text().trim().to_owned();
        (members.len() <= MEMBERS_MAX).then(|| Self {
            source,
            members: members.into(),
        })
    }

    pub(super) fn write(&self) -> Element {
        let members = Element::new(name("Members")).with_text(self.members.clone());
        self.source.write().with_child(members)
    }
}
