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
//! `t:Criticality`, 0 to 255, may be missing, which is 0; how a source orders its list is its own affair.
//! Both messages are open for elements of other namespaces at their end (WS-Eventing, section 3.1), and
//! whoever does not know this one ignores it: a source then answers without it and sends standard
//! notifications. The source's own has `t:Members` besides: where its signed lists of sinks are.
//!
//! A sink is listed once it has answered a question at its address by its key; until then, and whenever
//! an event does not reach it by the tree, it gets standard notifications, with the same message
//! identifier, so that it takes none twice.

use std::net::SocketAddr;

use chappe_xml::{Element, Name, Str};

use super::compact::{hex, unhex};

/// The namespace of the extension.
const NAMESPACE: &str = "urn:chappe:notification-tree:1";
/// Characters of an address of lists.
const MEMBERS_MAX: usize = 2_048;

/// Who takes compact messages, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePeer {
    /// Its public key (Ed25519).
    pub key: [u8; 32],
    /// Where it takes datagrams.
    pub address: SocketAddr,
}

/// A sink, as it says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeSink {
    /// Who it is.
    pub peer: TreePeer,
    /// How critical it is: larger is more. A source may notify the most critical sinks first, and need
    /// not believe what they say.
    pub criticality: u8,
}

/// What a source says of its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOffer {
    /// The source.
    pub source: TreePeer,
    /// Where its signed lists are (a URI, to which `/` and the topic are added).
    pub members: Str,
}

/// How a source spreads events, when it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeConfig {
    /// The source's public key.
    pub key: [u8; 32],
    /// The UDP port at which it takes answers, at the address that a request came to.
    pub port: u16,
    /// Whether that is on IPv4: sinks of the other family get standard notifications.
    pub v4: bool,
    /// The path of its lists, which nobody can guess.
    pub members_path: Str,
    /// Events under way on trees; further ones go to all as standard notifications. Default 1,024.
    pub spreads_max: usize,
    /// Events in a row that a sink did not get by the tree, after which it gets standard notifications
    /// alone. Default 3.
    pub misses_max: u8,
}

impl TreeConfig {
    /// With the defaults.
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

    /// What is offered to who reaches the source under `base`.
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
    /// As an address of the policy.
    pub(super) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The extension in a message; `Err` says what is wrong with the one that is there.
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
            key: key.ok_or("its key is none")?,
            address: address.ok_or("its address is none")?,
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
    /// The extension in a message; `Err` says what is wrong with the one that is there.
    pub(super) fn read(parent: &Element) -> Result<Option<Self>, &'static str> {
        let Some(peer) = TreePeer::read(parent)? else {
            return Ok(None);
        };
        let tree = parent.child(&name("Tree"));
        let criticality = tree.and_then(|tree| tree.child(&name("Criticality")));
        let criticality = match criticality.map(|child| child.text().trim().parse()) {
            None => 0,
            Some(Ok(criticality)) => criticality,
            Some(Err(_)) => return Err("its criticality is not between 0 and 255"),
        };
        Ok(Some(Self { peer, criticality }))
    }

    pub(super) fn write(&self) -> Element {
        let says = (self.criticality > 0)
            .then(|| Element::new(name("Criticality")).with_text(self.criticality.to_string()));
        self.peer.write().with_children(says)
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
