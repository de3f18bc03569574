//! The events of the demonstration, from the live events of its node.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::cli::NodeAddress;
use crate::command::node_client::{NodeClient, ServerEvent};
use crate::output::{self, Failure};

/// Prints events until the node ends; `first` is sent with the first element.
pub(crate) async fn narrate(
    address: String,
    started: Instant,
    first: oneshot::Sender<()>,
    json: bool,
) {
    let story = async {
        let node = NodeClient::new(&NodeAddress::at(address))?;
        let mut events = node.events("/api/v1/live?streams=*").await?;
        let mut narrator = Narrator {
            started,
            json,
            first: Some(first),
            streams: BTreeSet::new(),
        };
        while let Some(event) = events.next().await? {
            narrator.handle(&event);
        }
        Ok::<(), Failure>(())
    };
    if let Err(failure) = story.await {
        output::note(format_args!(
            "no more live events of the node: {}",
            failure.message
        ));
    }
}

struct Narrator {
    started: Instant,
    json: bool,
    first: Option<oneshot::Sender<()>>,
    streams: BTreeSet<String>,
}

impl Narrator {
    fn handle(&mut self, event: &ServerEvent) {
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            return;
        };
        match event.name.as_str() {
            "notice" => self.notice(&data),
            "elements" => {
                for element in data["elements"].as_array().into_iter().flatten() {
                    self.element(element);
                }
            }
            _ => {}
        }
    }

    fn notice(&self, data: &Value) {
        let word = |key: &str| data[key].as_str().unwrap_or_default();
        if self.json {
            output::json(&json!({
                "event": "notice", "kind": word("kind"), "subject": word("subject"),
                "text": word("text"), "seconds": self.started.elapsed().as_secs_f64(),
            }));
        } else {
            self.line(&format!("{:<8} {}", word("kind"), word("text")));
        }
    }

    /// Prints the first element of each stream; the console shows the rest.
    fn element(&mut self, element: &Value) {
        let stream = element["stream"].as_str().unwrap_or_default();
        if !self.streams.insert(stream.to_owned()) {
            return;
        }
        let values = element["values"].as_object().into_iter().flatten();
        let values: Vec<_> = values
            .map(|(name, value)| match value["values"].as_array() {
                Some(samples) => format!("{name}: {} samples", samples.len()),
                None => format!("{name}: {value}"),
            })
            .collect();
        if self.json {
            output::json(&json!({
                "event": "first_element", "stream": stream,
                "seconds": self.started.elapsed().as_secs_f64(),
            }));
        } else {
            self.line(&format!("{:<8} {stream}: {}", "stream", values.join(", ")));
        }
        if let Some(first) = self.first.take() {
            let _ = first.send(());
        }
    }

    fn line(&self, text: &str) {
        let clean: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        output::line(format_args!(
            "{:6.2} s  {clean}",
            self.started.elapsed().as_secs_f64()
        ));
    }
}
