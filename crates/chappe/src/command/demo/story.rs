//! What happens in the demonstration, told as the node's own live events tell it.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};

use crate::cli::NodeAddress;
use crate::command::node_client::{NodeClient, ServerEvent};
use crate::output::{self, Failure};

/// Tells until the node ends.
pub(crate) async fn tell(address: String, started: Instant, json: bool) {
    let story = async {
        let node = NodeClient::new(&NodeAddress::at(address))?;
        let mut events = node.events("/api/v1/live?streams=*").await?;
        let mut teller = Teller {
            started,
            json,
            streams: BTreeSet::new(),
        };
        while let Some(event) = events.next().await? {
            teller.take(&event);
        }
        Ok::<(), Failure>(())
    };
    if let Err(failure) = story.await {
        output::note(format_args!("the story ends here: {}", failure.message));
    }
}

struct Teller {
    started: Instant,
    json: bool,
    streams: BTreeSet<String>,
}

impl Teller {
    fn take(&mut self, event: &ServerEvent) {
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

    /// The first element of each stream; then the console shows the rest.
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
