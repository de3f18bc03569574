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

use super::AuditCharge;
use crate::catalogue::AUDIT;
use crate::clock;
use crate::notices::NoticeKind;
use crate::shared::App;

/// The source of the audit stream.
const SOURCE: &str = "urn:chappe:audit";
/// Time for a record to become safe.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of a path or a subject in a record.
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
    /// Bytes of its texts, as far as they are known before the change.
    pub(crate) fn text_bytes(&self) -> usize {
        /// Of an IPv6 address.
        const ADDRESS_BYTES: usize = 39;
        let path = self.path.len().min(4 * PATH_MAX);
        self.account.len() + ADDRESS_BYTES + self.operation.len() + self.method.len() + path
    }

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
    /// Records a change, with what was taken for it of its account's share.
    pub(crate) async fn record(app: &App, change: Change, charge: Option<AuditCharge>) {
        let shares = app.shares.audit();
        if change.is_refused() {
            let has_room = charge.as_ref().is_none_or(|charge| shares.has_half(charge));
            if !has_room || !app.accounts.records_refusal(&change.account) {
                Self::cancel(app, charge);
                let drops = &app.observability.drops;
                drops.record(Hop::Http, "refusal not recorded", AUDIT, "too many", None);
                return;
            }
        }
        let subject_bytes = change.subject.as_ref().map_or(0, String::len);
        let subject_bytes = subject_bytes.min(4 * PATH_MAX);
        if charge.is_some_and(|charge| shares.settle(&charge, subject_bytes)) {
            let app = app.clone();
            let _ = tokio::task::spawn_blocking(move || app.shares.audit().save()).await;
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

    /// Returns what was taken for a change that is not recorded.
    pub(crate) fn cancel(app: &App, charge: Option<AuditCharge>) {
        if let Some(charge) = charge {
            app.shares.audit().give_back(&charge);
        }
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
    let short = |text: String| text.chars().take(PATH_MAX).collect::<String>();
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
            Value::Text(short(change.path)),
            text(change.subject.map(short)),
            Value::Integer(i64::from(change.status)),
        ],
        quality: Quality::Good,
        origin: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::RECORD_BYTES;
    use crate::catalogue::Catalogue;
    use crate::config::Config;
    use chappe_log::{MemoryDisk, Options, Store};

    #[test]
    fn a_record_takes_no_more_room_than_its_account_is_charged() {
        let disk = Box::new(MemoryDisk::new());
        let (store, _) = Store::open(disk, Options::default(), 1).unwrap();
        let catalogue = Catalogue::open(store.clone(), Level::Process, &Config::default()).unwrap();
        let schema = schema();
        let entry = catalogue.create_blocking(AUDIT, &schema, SOURCE, Some(Level::Power));
        let entry = entry.unwrap();
        entry.log.log().set_share(1);
        let mut charged = 0;
        for (path, subject) in [("/", None), ("/api/v1/entities", Some("urn:x".repeat(40)))] {
            for _ in 0..100 {
                let change = Change {
                    account: "a".to_owned(),
                    address: Some([0xfe80, 1, 2, 3, 4, 5, 6, 0x7777].into()),
                    operation: "o",
                    method: "PUT".to_owned(),
                    path: path.to_owned(),
                    subject: subject.clone(),
                    status: 200,
                };
                let subject_bytes = subject.as_ref().map_or(0, String::len);
                charged += RECORD_BYTES + (change.text_bytes() + subject_bytes) as u64;
                let appended = entry.log.append(&[element(change)]).unwrap();
                appended.wait().unwrap();
            }
        }
        let used = store.share_bytes()[&1];
        assert!(used <= charged, "{used} of {charged}");
        assert!(used >= charged * 6 / 10, "{used} of {charged}");
    }
}
