//! The keys of `[signatures]`.

use std::path::PathBuf;

use chappe_soap::security::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Signed SOAP messages (WS-Security): to the interfaces of the registry, where a message that is signed by a
/// certificate of an account is the account's and needs no token, and those of devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignatureRules {
    /// Whether signatures at `/uddi/inquiry` are ignored (off), accepted, or required. With `accepted`, a message
    /// without a signature is processed as usual, and one with an invalid signature is refused.
    pub inquiry: SignatureMode,
    /// As `inquiry`, for `/uddi/publish`.
    pub publication: SignatureMode,
    /// As `inquiry`, for `/uddi/wsdl`.
    pub documents: SignatureMode,
    /// As `inquiry`, for `/uddi/metadata`.
    pub metadata: SignatureMode,
    /// As `inquiry`, for WS-Eventing of the registry: `/registry/events` and its subscription managers. Unless it is
    /// off, events and SubscriptionEnd are signed.
    pub subscriptions: SignatureMode,
    /// Whether signatures in the answers of devices that the node finds are ignored, accepted, or required. Unless it
    /// is off, requests to these devices are signed with the certificate of the node. A device that has signed its
    /// description must sign all later messages.
    pub devices: SignatureMode,
    /// As `devices`, for the events of these devices.
    pub events: SignatureMode,
    /// Whether signatures in requests to devices that the node hosts, which are its exporters of kind `dpws`, are
    /// ignored, accepted, or required. Unless it is off, the answers and events of these devices are signed. The file
    /// of an exporter can override this.
    pub hosted: SignatureMode,
    /// File of the authorities (PEM) that issue certificates of signers; empty: none. Relative to this file.
    pub authorities: PathBuf,
    /// File of lists of revoked certificates (PEM); empty: none. An expired list causes all certificates of its issuer
    /// to be refused. Relative to this file.
    pub revocation_lists: PathBuf,
    /// File of the certificate that signs answers, followed by its chain (PEM); empty: answers are not signed.
    /// Relative to this file.
    pub certificate: PathBuf,
    /// File of the certificate's key (PEM), readable by its owner only; empty: none. Relative to this file.
    pub key: PathBuf,
    /// Accept signatures and digests with SHA-1, which is broken, for peers that support nothing
    /// else.
    pub sha1: bool,
    /// Require that the token with the certificate is signed as well. Most peers do not sign it.
    /// Otherwise, anyone who has another certificate for the same key from the same authorities can
    /// substitute it.
    pub signed_token: bool,
}

/// Whether signatures count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SignatureMode {
    /// Signatures are ignored.
    #[default]
    Off,
    /// A signature may be missing, but must be valid if present.
    Accepted,
    /// Every message must be signed.
    Required,
}

impl SignatureRules {
    /// Whether signatures count at any interface.
    #[must_use]
    pub fn are_used(&self) -> bool {
        let modes = [
            self.inquiry,
            self.publication,
            self.documents,
            self.metadata,
            self.subscriptions,
            self.devices,
            self.events,
            self.hosted,
        ];
        modes.iter().any(|mode| *mode != SignatureMode::Off)
    }

    /// Interfaces that change the registry, with their keys and paths.
    fn publishing(&self) -> [(&'static str, &'static str, SignatureMode); 3] {
        [
            ("signatures.publication", "/uddi/publish", self.publication),
            ("signatures.documents", "/uddi/wsdl", self.documents),
            ("signatures.metadata", "/uddi/metadata", self.metadata),
        ]
    }

    /// An interface that ignores signatures and changes the same registry as one that requires them: its key, and
    /// what is wrong.
    pub(super) fn way_around(&self) -> Option<(&'static str, String)> {
        let (key, message) = self.beside_required(SignatureMode::Off)?;
        Some((key, message + " without a signature"))
    }

    /// The same for an interface where they may be absent.
    pub(super) fn weaker(&self) -> Option<(&'static str, String)> {
        if self.events == SignatureMode::Off && self.devices == SignatureMode::Required {
            let message = "answers of devices must be signed, but anyone can send their events";
            return Some(("signatures.events", message.to_owned()));
        }
        let (key, message) = self.beside_required(SignatureMode::Accepted)?;
        Some((key, message + " with a token instead of a signature"))
    }

    fn beside_required(&self, mode: SignatureMode) -> Option<(&'static str, String)> {
        let all = self.publishing();
        let required = all.iter().find(|it| it.2 == SignatureMode::Required)?;
        let weak = all.iter().find(|it| it.2 == mode)?;
        let (required, path) = (required.1, weak.1);
        let message = format!("{required} requires signatures, but {path} changes the registry");
        Some((weak.0, message))
    }
}

impl From<SignatureMode> for Mode {
    fn from(mode: SignatureMode) -> Self {
        match mode {
            SignatureMode::Off => Self::Off,
            SignatureMode::Accepted => Self::Accepted,
            SignatureMode::Required => Self::Required,
        }
    }
}
