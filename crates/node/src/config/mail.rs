//! Mail: how subscriptions by e-mail are sent.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mail to subscribers of the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mail {
    /// Host of the SMTP server that accepts the mail; empty: no mail is sent.
    #[schemars(length(max = 255))]
    pub server: String,
    /// Port of the server.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: u16,
    /// How the connection is encrypted: `starttls`, `tls` from its start, or `none`, which is for a server on
    /// this host.
    pub encryption: MailEncryption,
    /// File of certificates (PEM) of the authorities that may sign the server's certificate; empty: those of the
    /// system. Relative to this file.
    pub authorities: PathBuf,
    /// Address of the sender.
    #[schemars(length(max = 320))]
    pub sender: String,
    /// Account at the server; empty: none.
    #[schemars(length(max = 255))]
    pub user: String,
    /// File with the account's password in its first line. Relative to this file.
    pub password_file: PathBuf,
    /// Who may receive mail: addresses, and domains like `@example.org`. A subscription for anyone
    /// else is refused.
    #[schemars(length(max = 256))]
    pub recipients: Vec<String>,
    /// Changes within this time are sent in one mail, and a subscription receives at most one mail
    /// in this time.
    #[schemars(range(min = 1, max = 86_400), extend("x-unit" = "seconds"))]
    pub bundle_s: u32,
}

/// Encryption of a connection to an SMTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MailEncryption {
    /// Encrypted after the first command; a server that does not support this is not used.
    Starttls,
    /// Encrypted from the start.
    Tls,
    /// No encryption.
    None,
}

impl Default for Mail {
    fn default() -> Self {
        Self {
            server: String::new(),
            port: 587,
            encryption: MailEncryption::Starttls,
            authorities: PathBuf::new(),
            sender: String::new(),
            user: String::new(),
            password_file: PathBuf::new(),
            recipients: Vec::new(),
            bundle_s: 60,
        }
    }
}

impl Mail {
    /// Whether a subscription may name this address.
    pub(crate) fn admits(&self, address: &str) -> bool {
        let address = address.to_ascii_lowercase();
        let mut allowed = self.recipients.iter();
        allowed.any(|allowed| {
            let allowed = allowed.to_ascii_lowercase();
            match allowed.starts_with('@') {
                true => address.ends_with(&allowed),
                false => address == allowed,
            }
        })
    }
}
