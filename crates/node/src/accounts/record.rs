//! The stored form of an account.

use chappe_identity::{Grant, Rights};
use chappe_stream::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Account, OwnShare};

/// An account in `accounts.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    name: String,
    roles: Vec<String>,
    /// The hash of its token.
    token: Option<String>,
    certificate: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(default)]
    key: Option<String>,
    created_ns: i64,
    created_by: String,
    expires_ns: Option<i64>,
    revoked_ns: Option<i64>,
    #[serde(default)]
    share: OwnShare,
}

impl From<&Account> for Record {
    fn from(account: &Account) -> Self {
        let grants = account.rights.grants().iter();
        Self {
            name: account.name.clone(),
            roles: grants.map(Grant::to_string).collect(),
            token: account.token.as_ref().map(ToString::to_string),
            certificate: account.certificate.as_ref().map(ToString::to_string),
            groups: account.groups.clone(),
            key: account.key.as_ref().map(ToString::to_string),
            created_ns: account.created_at.0,
            created_by: account.created_by.clone(),
            expires_ns: account.expires_at.map(|time| time.0),
            revoked_ns: account.revoked_at.map(|time| time.0),
            share: account.share,
        }
    }
}

impl TryFrom<Record> for Account {
    type Error = String;
    fn try_from(record: Record) -> Result<Self, String> {
        let failed = |error: chappe_identity::Error| format!("account {:?}: {error}", record.name);
        let token = record.token.as_deref().map(str::parse).transpose();
        let certificate = record.certificate.as_deref().map(str::parse).transpose();
        let key = record.key.as_deref().map(str::parse).transpose();
        Ok(Self {
            groups: record.groups,
            key: key.map_err(failed)?,
            rights: rights(&record.roles).map_err(failed)?,
            token: token.map_err(failed)?,
            certificate: certificate.map_err(failed)?,
            created_at: Timestamp(record.created_ns),
            expires_at: record.expires_ns.map(Timestamp),
            revoked_at: record.revoked_ns.map(Timestamp),
            created_by: record.created_by,
            share: record.share,
            name: record.name,
        })
    }
}

/// The rights of grants as text.
pub(crate) fn rights(roles: &[String]) -> Result<Rights, chappe_identity::Error> {
    let grants: Result<Vec<Grant>, _> = roles.iter().map(|text| text.parse()).collect();
    Rights::new(grants?)
}
