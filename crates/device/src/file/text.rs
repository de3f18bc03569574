//! The TOML structure of the file.

use serde::Deserialize;
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileText {
    pub(super) name: String,
    pub(super) manufacturer: String,
    pub(super) model: String,
    pub(super) model_number: Option<String>,
    pub(super) firmware: Option<String>,
    pub(super) serial_number: Option<String>,
    pub(super) uuid: Option<Spanned<String>>,
    pub(super) namespace: Spanned<String>,
    #[serde(default)]
    pub(super) types: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    pub(super) tls: Option<TlsText>,
    #[serde(default)]
    pub(super) event: Vec<EventText>,
    #[serde(default)]
    pub(super) value: Vec<ValueText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsText {
    pub(super) certificate: Option<String>,
    pub(super) key: Spanned<String>,
    pub(super) authorities: Option<String>,
    pub(super) revocation_lists: Option<String>,
    #[serde(default)]
    pub(super) fingerprints: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) usages: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventText {
    pub(super) name: Spanned<String>,
    pub(super) description: Option<String>,
    pub(super) period_ms: Spanned<f64>,
    pub(super) deadline_ms: Option<Spanned<f64>>,
    pub(super) recording: Spanned<String>,
    #[serde(default = "default_true")]
    pub(super) repeat: bool,
    #[serde(default)]
    pub(super) field: Vec<FieldText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FieldText {
    pub(super) name: Spanned<String>,
    #[serde(rename = "type")]
    pub(super) data_type: Spanned<String>,
    pub(super) unit: Option<String>,
    pub(super) property: Option<String>,
    pub(super) description: Option<String>,
    pub(super) sample_period_ms: Option<Spanned<f64>>,
    pub(super) column: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueText {
    pub(super) name: Spanned<String>,
    #[serde(rename = "type")]
    pub(super) data_type: Spanned<String>,
    pub(super) initial: Spanned<String>,
    pub(super) unit: Option<String>,
    pub(super) property: Option<String>,
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) settable: bool,
}

fn default_true() -> bool {
    true
}
