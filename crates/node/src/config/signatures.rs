//! The keys of `[signatures]`.

use std::path::PathBuf;

use chappe_soap::security::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Signed SOAP messages (WS-Security) to the interfaces of the registry. A message that is signed by a certificate
/// of an account is the account's: it needs no token.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignatureRules {
    /// `/uddi/inquiry`: whether signatures are ignored (off), accepted, or required. Where they are accepted, a
    /// message without a signature counts as before, and one whose signature is not valid is refused.
    pub inquiry: SignatureMode,
    /// The same for `/uddi/publish`.
    pub publication: SignatureMode,
    /// The same for `/uddi/wsdl`.
    pub documents: SignatureMode,
    /// The same for `/uddi/metadata`.
    pub metadata: SignatureMode,
    /// File of the authorities (PEM) that issue certificates of signers; empty: none. Relative to this file.
    pub authorities: PathBuf,
    /// File of lists of revoked certificates (PEM); empty: none. An expired list refuses all certificates of its
    /// issuer. Relative to this file.
    pub revocation_lists: PathBuf,
    /// File of the certificate that signs answers, followed by its chain (PEM); empty: answers are not signed.
    /// Relative to this file.
    pub certificate: PathBuf,
    /// File of its key (PEM), readable by its owner only; empty: none. Relative to this file.
    pub key: PathBuf,
    /// Accept signatures and digests with SHA-1, which is broken, for peers that know nothing else.
    pub sha1: bool,
    /// Require that the token with the certificate is signed as well. Most peers do not sign it. Without it,
    /// whoever has another certificate of the same key from the same authorities decides which one counts.
    pub signed_token: bool,
}

/// Whether signatures count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SignatureMode {
    /// They are ignored.
    #[default]
    Off,
    /// They may be absent, and are valid if present.
    Accepted,
    /// Every message has one.
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
        ];
        modes.iter().any(|mode| *mode != SignatureMode::Off)
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
