//! `chappe watch DEVICE`: values of a device, without a node.

use std::net::SocketAddr;
use std::time::Duration;

use chappe_device::client::{ClientTree, Description, Document, Seen};
use chappe_device::mapping::rules::Rules;
use chappe_device::mapping::{Offer, Trouble};
use chappe_identity::Key;
use chappe_stream::{StreamElement, Value};
use chappe_terminal::counted;
use chappe_wrappers::dpws::{Attachment, AttachmentEvent};
use serde_json::json;
use tokio::time::Instant;

use super::session::Session;
use crate::cli::Watch;
use crate::output::{self, Failure, Outcome};

/// How long a device may be silent before it is asked whether it still has the subscriptions. Reason: one that restarted
/// is noticed within seconds where its Hello does not reach, and one without events gets little traffic.
const SILENCE: Duration = Duration::from_secs(3);
/// How soon an announced change of the description is read. Reason: changes of one moment are read at once, and a flood of
/// announcements causes few requests.
const ANNOUNCED: Duration = Duration::from_millis(100);
/// The longest pause between searches for a device that does not answer. Reason: it is found again within a minute.
const SEARCH_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Subscribes to a device and prints its elements until the count is reached.
pub(crate) async fn watch(device: &str, flags: &Watch, json: bool) -> Outcome {
    let tree = match flags.tree {
        true => Some(tree(flags)?),
        false => None,
    };
    let session = Session::start_watching(&flags.network, tree)?;
    let mut watched = Watched::new(&session, device).await?;
    let mut left = flags.count.unwrap_or(u64::MAX);
    let tree_note = TreeNote(&session, flags.tree);
    let (mut pause, mut check_at) = (SILENCE, Instant::now() + SILENCE);
    let mut announced = session.client.listen();
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout_at(check_at, watched.attachment.next()) => next,
            Some(seen) = announced.next() => {
                if watched.hear(&seen) {
                    check_at = check_at.min(Instant::now() + ANNOUNCED);
                }
                continue;
            }
        };
        let Ok(yields) = next else {
            let has_moved = watched.has_moved().await;
            pause = match has_moved || watched.attachment.is_subscribed() {
                true => SILENCE,
                false => (pause * 2).min(SEARCH_PAUSE_MAX),
            };
            check_at = Instant::now() + pause;
            continue;
        };
        let Some(yields) = yields else { break };
        for one in yields {
            match one {
                AttachmentEvent::Element(offer, element)
                | AttachmentEvent::Current(offer, element) => {
                    let Some(offer) = watched.attachment.offers().get(offer) else {
                        continue;
                    };
                    print(offer, &element, json);
                    // A description that could not be read is tried again meanwhile.
                    if !watched.is_outdated {
                        (pause, check_at) = (SILENCE, Instant::now() + SILENCE);
                    }
                    left -= 1;
                    if left == 0 {
                        drop(tree_note);
                        drop(watched);
                        session.close().await;
                        return Ok(());
                    }
                }
                AttachmentEvent::Trouble(Trouble {
                    reason,
                    detail,
                    hint,
                }) => {
                    output::note(format_args!("{reason}: {detail}"));
                    if let Some(hint) = hint {
                        output::note(format_args!("hint: {hint}"));
                    }
                }
                AttachmentEvent::OffersChanged => output::progress(format_args!(
                    "{} has {}",
                    watched.description.name(),
                    counted(watched.attachment.offers().len(), "stream")
                )),
                AttachmentEvent::Resubscribed => {
                    watched.describe_again().await;
                    (pause, check_at) = (SILENCE, Instant::now() + SILENCE);
                }
                _ => {}
            }
        }
    }
    Err(Failure::new("the device has no values to watch")
        .coded("no_values")
        .hint("list its events: chappe describe DEVICE"))
}

/// The watched device with the subscriptions to its events.
struct Watched<'a> {
    session: &'a Session,
    /// Its name, endpoint or address, as the user gives it.
    device: &'a str,
    description: Box<Description>,
    attachment: Attachment,
    /// Whether it may have another description than the known one.
    is_outdated: bool,
}

impl<'a> Watched<'a> {
    /// Searches for the device and subscribes to its events.
    async fn new(session: &'a Session, device: &'a str) -> Result<Self, Failure> {
        let description = session.device(device).await?;
        let attachment = Attachment::new(&session.client, &description, &Rules::default()).await;
        Ok(Self {
            session,
            device,
            description,
            attachment,
            is_outdated: false,
        })
    }

    /// Notes a newer description that the device announces: by a Hello, as WS-Discovery demands, or in its answer to the
    /// search of each minute. Returns whether it does.
    fn hear(&mut self, seen: &Seen) -> bool {
        let (Seen::Found(announced) | Seen::Changed(announced)) = seen else {
            return false;
        };
        let found = &mut self.description.found;
        let is_newer = announced.endpoint == found.endpoint
            && announced.metadata_version > found.metadata_version;
        if is_newer {
            found.metadata_version = announced.metadata_version;
            self.is_outdated = true;
        }
        is_newer
    }

    /// Asks a silent device whether it still has the subscriptions. If it cannot be reached, searches for it as at the
    /// start, and subscribes at its new address: a device that restarted may listen at another port. Returns whether it does.
    async fn has_moved(&mut self) -> bool {
        if self.attachment.is_subscribed() {
            match self.is_outdated {
                true => self.describe_again().await,
                false => self.attachment.verify_subscriptions().await,
            }
            return false;
        }
        let Ok(found) = self.session.device(self.device).await else {
            return false;
        };
        if addresses(&found).eq(addresses(&self.description)) {
            return false;
        }
        let at = found.contact.address;
        output::note(format_args!("{} is at {at} now", found.name()));
        self.describe(found).await;
        true
    }

    /// Reads the description of a device that subscribed again or announced another one, before its next event is read.
    /// Without an answer it stays outdated.
    async fn describe_again(&mut self) {
        self.is_outdated = true;
        let found = &self.description.found;
        let Ok(description) = self.session.client.describe(found).await else {
            return;
        };
        let is_same = documents(&description).eq(documents(&self.description))
            && addresses(&description).eq(addresses(&self.description));
        if is_same {
            self.is_outdated = false;
            return;
        }
        output::note(format_args!("{} has a new description", description.name()));
        self.describe(Box::new(description)).await;
    }

    async fn describe(&mut self, description: Box<Description>) {
        self.description = description;
        let rules = Rules::default();
        self.attachment
            .describe(&self.session.client, &self.description, &rules)
            .await;
        self.is_outdated = self.attachment.needs_description();
    }
}

/// The documents of a device's services, of which its streams are made.
fn documents(description: &Description) -> impl Iterator<Item = &Document> {
    let services = description.services.iter();
    services.flat_map(|service| &service.documents)
}

/// The services of a device with their addresses.
fn addresses(description: &Description) -> impl Iterator<Item = (&str, &str, SocketAddr)> {
    let services = description.services.iter();
    services.map(|service| {
        let endpoint = &*service.endpoint.address;
        (&*service.id, endpoint, service.contact.address)
    })
}

/// Membership in notification trees, as the flags ask for.
fn tree(flags: &Watch) -> Result<ClientTree, Failure> {
    Ok(ClientTree {
        criticality: flags.criticality,
        windows: flags.seen.clone(),
        ..ClientTree::new(Key::from_seed(chappe_transport::seed()?))
    })
}

/// Prints the counts of the tree when the command ends, for any reason.
struct TreeNote<'a>(&'a Session, bool);

impl Drop for TreeNote<'_> {
    fn drop(&mut self) {
        if self.1 {
            let counts = self.0.client.tree_counts();
            output::note(json!({
                "event": "tree", "delivered": counts.delivered, "late": counts.late,
                "duplicates": counts.duplicates, "missed": counts.missed,
                "forged": counts.forged, "unreadable": counts.unreadable,
            }));
        }
    }
}

fn print(offer: &Offer, element: &StreamElement, json: bool) {
    let fields = offer.schema.fields.iter().zip(&element.values);
    if json {
        let values: serde_json::Map<_, _> = fields
            .map(|(field, value)| (field.name.clone(), as_json(value)))
            .collect();
        output::json(&json!({
            "stream": offer.name, "source_time_ns": element.source_time.0,
            "quality": element.quality, "key": element.key, "values": values,
        }));
        return;
    }
    let words: Vec<_> = fields
        .map(|(field, value)| {
            let unit = field.unit.as_deref().unwrap_or_default();
            format!("{} {} {unit}", field.name, text(value))
                .trim_end()
                .to_owned()
        })
        .collect();
    let key = element
        .key
        .as_deref()
        .map(|key| format!(" [{key}]"))
        .unwrap_or_default();
    output::line(super::find::clean(&format!(
        "{}{key}  {}",
        offer.name,
        words.join("  ")
    )));
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Text(text) => text.clone(),
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Value::Samples(samples) => output::sparkline(&samples.values),
    }
}

fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Boolean(value) => json!(value),
        Value::Integer(value) => json!(value),
        Value::Double(value) => json!(value),
        Value::Text(text) => json!(text),
        Value::Bytes(bytes) => json!(
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        ),
        Value::Samples(samples) => json!({
            "start_ns": samples.start.0, "period_s": samples.period_ns as f64 / 1e9,
            "values": samples.values,
        }),
    }
}
