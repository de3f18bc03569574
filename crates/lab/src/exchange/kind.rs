//! The kinds of exchange that are measured, and their names.

use serde::{Deserialize, Serialize};

/// The ways in which elements get from the producing node to subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// No exchange: each node produces the elements that it would receive. The floor of storing and
    /// processing.
    NoNetwork,
    /// A POST of XML to a contact point for each element or few.
    HttpPush,
    /// An endless response to the subscriber's request.
    HttpPull,
    /// PUB/SUB, XML.
    ZeromqBestEffortXml,
    /// PUB/SUB, postcard.
    ZeromqBestEffortPostcard,
    /// PUB/SUB in the frames of GSN 2 (Kryo), by its wrapper and exporter `gsn-zeromq-async`: the study's third run.
    ZeromqKryo,
    /// Sessions that acknowledge stored elements, over DEALER/ROUTER.
    ZeromqReliable,
    /// The peer mosquitto: MQTT with QoS 1.
    Mosquitto,
    /// The peer NATS JetStream, file storage with its default of syncing every two minutes.
    Jetstream,
    /// The same, synced before each acknowledgement.
    JetstreamSync,
}

impl Kind {
    /// Our own kinds, in the order in which they are run.
    pub(crate) const OURS: [Kind; 7] = [
        Kind::NoNetwork,
        Kind::HttpPush,
        Kind::HttpPull,
        Kind::ZeromqBestEffortXml,
        Kind::ZeromqBestEffortPostcard,
        Kind::ZeromqKryo,
        Kind::ZeromqReliable,
    ];

    /// The name in rows and flags.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::NoNetwork => "no-network",
            Kind::HttpPush => "http-push",
            Kind::HttpPull => "http-pull",
            Kind::ZeromqBestEffortXml => "zeromq-best-effort-xml",
            Kind::ZeromqBestEffortPostcard => "zeromq-best-effort-postcard",
            Kind::ZeromqKryo => "zeromq-kryo",
            Kind::ZeromqReliable => "zeromq-reliable",
            Kind::Mosquitto => "mosquitto",
            Kind::Jetstream => "jetstream",
            Kind::JetstreamSync => "jetstream-sync",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_messages() {
        let peers = [Kind::Mosquitto, Kind::Jetstream, Kind::JetstreamSync];
        for kind in Kind::OURS.into_iter().chain(peers) {
            let written = serde_json::to_string(&kind).unwrap();
            assert_eq!(written, format!("\"{}\"", kind.name()));
        }
    }
}
