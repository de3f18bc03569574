//! The audit stream: who changed what, from where, with which result.
//!
//! It is an ordinary stream of the log at level `power`, defined at the first change. Only administrators read
//! it; it is not registered, so that no virtual sensor binds to it, and it is never given to other nodes. A
//! change is answered after its record is safe. If the log does not take the record in time, the change is
//! answered all the same and the missing record is reported: a full disk must not prevent the change that
//! makes room.

use std::net::IpAddr;
use std::time::Duration;

use chappe_log::Level;
use chappe_stream::{
    Epoch, Field, FieldType, Position, Quality, StreamElement, StreamSchema, Value,
};
use chappe_transport::Hop;

use crate::catalogue::AUDIT;
use crate::clock;
use crate::notices::NoticeKind;
use crate::shared::App;

/// The source of the audit stream.
const SOURCE: &str = "urn:chappe:audit";
/// Time for a record to become safe.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of a path in a record.
const PATH_MAX: usize = 500;

/// A change, or an attempt that was refused.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) account: String,
    pub(crate) address: Option<IpAddr>,
    /// The operation, as in the OpenAPI document.
    pub(crate) operation: &'static str,
    pub(crate) method: String,
    pub(crate) path: String,
    /// What was changed, if the path does not name it.
    pub(crate) subject: Option<String>,
    /// The HTTP status.
    pub(crate) status: u16,
}

impl Change {
    /// Whether nothing was changed because of the request or its sender.
    fn is_refused(&self) -> bool {
        /// The account or the node has no room.
        const INSUFFICIENT_STORAGE: u16 = 507;
        matches!(self.status, 400..500 | INSUFFICIENT_STORAGE)
    }
}

/// An extension of the answer to a request after which everything is as it was before: it is not recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unchanged;

/// Writes the audit stream.
#[derive(Debug, Default)]
pub(crate) struct Audit;

impl Audit {
    /// Records a change.
    pub(crate) async fn record(app: &App, change: Change) {
        if change.is_refused() && !app.accounts.records_refusal(&change.account) {
            let drops = &app.observability.drops;
            drops.record(Hop::Http, "refusal not recorded", AUDIT, "too many", None);
            return;
        }
        let (of, element) = (app.clone(), element(change));
        // The record is written even if the client disconnects meanwhile.
        let writing = tokio::spawn(async move { write(&of, element).await });
        let written = tokio::time::timeout(RECORD_TIMEOUT, writing).await;
        let error = match written {
            Ok(Ok(Ok(()))) => return,
            Ok(Ok(Err(error))) => error,
            Ok(Err(_)) => "the writer failed".to_owned(),
            Err(_) => "the log did not take it in time".to_owned(),
        };
        // Everyone who reads notices sees this: it names no account.
        let text = format!("a change is missing in {AUDIT}: {error}");
        let (drops, notices) = (&app.observability.drops, &app.observability.notices);
        drops.record(Hop::Http, "change not recorded", AUDIT, error, None);
        notices.notify(NoticeKind::Health, AUDIT, text);
    }
}

async fn write(app: &App, element: StreamElement) -> Result<(), String> {
    let level = Some(Level::Power);
    let entry = match app.catalogue.get(AUDIT) {
        Some(entry) => entry,
        None => {
            let schema = schema();
            let created = app.catalogue.create(AUDIT, &schema, SOURCE, level);
            let entry = created.await.map_err(|error| error.to_string())?;
            app.shares.protect(&entry);
            entry
        }
    };
    let appended = entry.append(&[element]).await;
    let stored = appended.map_err(|error| error.to_string())?.await;
    stored.map_err(|error| error.to_string())
}

const FIELDS: [(&str, FieldType, &str); 7] = [
    ("account", FieldType::Text, "The account, or anonymous."),
    ("address", FieldType::Text, "The address of the client."),
    (
        "operation",
        FieldType::Text,
        "The operation, as in the OpenAPI document.",
    ),
    ("method", FieldType::Text, "The HTTP method."),
    ("path", FieldType::Text, "The path of the request."),
    (
        "subject",
        FieldType::Text,
        "What was changed, if the path does not name it.",
    ),
    (
        "status",
        FieldType::Integer,
        "The HTTP status of the answer.",
    ),
];

fn schema() -> StreamSchema {
    let fields = FIELDS.map(|(name, field_type, description)| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: Some(description.to_owned()),
    });
    StreamSchema {
        fields: fields.to_vec(),
        key: None,
    }
}

fn element(change: Change) -> StreamElement {
    let text = |text: Option<String>| text.map_or(Value::Null, Value::Text);
    let path: String = change.path.chars().take(PATH_MAX).collect();
    let now = clock::now();
    StreamElement {
        position: Position {
            epoch: Epoch(0),
            sequence: 0,
        },
        source_time: now,
        receive_time: now,
        key: None,
        values: vec![
            Value::Text(change.account),
            text(change.address.map(|address| address.to_string())),
            Value::Text(change.operation.to_owned()),
            Value::Text(change.method),
            Value::Text(path),
            text(change.subject),
            Value::Integer(i64::from(change.status)),
        ],
        quality: Quality::Good,
        origin: None,
    }
}
