//! `chappe watch DEVICE`: values of a device, without a node.

use chappe_device::client::ClientTree;
use chappe_device::mapping::rules::Rules;
use chappe_device::mapping::{Offer, Trouble};
use chappe_identity::Key;
use chappe_stream::{StreamElement, Value};
use chappe_wrappers::dpws::{Attachment, AttachmentEvent};
use serde_json::json;

use super::session::Session;
use crate::cli::Watch;
use crate::output::{self, Failure, Outcome};

/// Subscribes to a device and prints its elements until the count is reached.
pub(crate) async fn watch(device: &str, flags: &Watch, json: bool) -> Outcome {
    let tree = match flags.tree {
        true => Some(tree(flags)?),
        false => None,
    };
    let session = Session::start_with(&flags.network, tree)?;
    let description = session.device(device).await?;
    let mut attachment = Attachment::new(&session.client, &description, &Rules::default()).await;
    let mut left = flags.count.unwrap_or(u64::MAX);
    let tree_note = TreeNote(&session, flags.tree);
    while let Some(yields) = attachment.next().await {
        for one in yields {
            match one {
                AttachmentEvent::Element(offer, element)
                | AttachmentEvent::Current(offer, element) => {
                    let Some(offer) = attachment.offers().get(offer) else {
                        continue;
                    };
                    print(offer, &element, json);
                    left -= 1;
                    if left == 0 {
                        drop(tree_note);
                        drop(attachment);
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
                    "{} has {} streams",
                    description.name(),
                    attachment.offers().len()
                )),
                _ => {}
            }
        }
    }
    Err(Failure::new("the device has no values to watch")
        .hint("list its events: chappe describe DEVICE"))
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
