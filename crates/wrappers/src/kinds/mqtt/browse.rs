//! Listens to a broker for some seconds, and prints a file for what is there: entities of Home Assistant, Sparkplug B,
//! or the topic with the most messages.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::broker::{Broker, Subscription};
use super::session::Event;
use crate::kinds::browse::{json_columns, quoted, stream};
use crate::{WrapperError, WrapperFile};

/// Time to listen; reason: retained messages come at once, and most sensors send within it.
const LISTEN_TIME: Duration = Duration::from_secs(5);
/// Most topics that are listed.
const TOPICS_MAX: usize = 1_000;
/// Most topics that are printed, in comments.
const PRINTED_MAX: usize = 50;
/// Longest message that is looked at.
const SAMPLE_BYTES_MAX: usize = 64 << 10;

#[derive(Deserialize)]
struct Settings {
    #[serde(flatten)]
    broker: Broker,
}

/// What a topic had.
#[derive(Debug, Default)]
struct Heard {
    messages: usize,
    sample: Vec<u8>,
}

type Topics = BTreeMap<String, Heard>;

/// The file of a wrapper for the broker at an address.
pub(super) fn browse(address: &str) -> Result<String, WrapperError> {
    let address = address.to_owned();
    // The caller may run in a runtime of its own, which must not be blocked.
    let listening = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| WrapperError::peer(error.to_string()))?;
        let topics = runtime.block_on(listen(&address))?;
        print(&address, &topics)
    });
    let panicked = |_| Err(WrapperError::peer("listening to the broker failed"));
    listening.join().unwrap_or_else(panicked)
}

async fn listen(address: &str) -> Result<Topics, WrapperError> {
    let text = format!("kind = \"mqtt\"\naddress = {}\n", quoted(address));
    let wrong = |error: chappe_stream::DescriptorError| WrapperError::settings(error.to_string());
    let file = WrapperFile::parse(Path::new("browse.toml"), &text).map_err(wrong)?;
    let settings: Settings = file.settings().map_err(wrong)?;
    let mut connector = settings.broker.resolve(&file)?;
    connector.opening.client_id = format!("chappe-browse-{}", std::process::id());
    let everything = Subscription {
        filters: vec!["#".to_owned()],
        qos: 0,
        takes_retained: true,
        is_known: false,
    };
    let mut connection = connector.connect(Some(everything)).await?;
    let mut topics = Topics::new();
    let until = tokio::time::Instant::now() + LISTEN_TIME;
    while let Ok(Some(events)) = tokio::time::timeout_at(until, connection.events.recv()).await {
        for event in events {
            match event {
                Event::Message(message) => {
                    let is_known = topics.contains_key(&message.topic);
                    if is_known || topics.len() < TOPICS_MAX {
                        let heard = topics.entry(message.topic).or_default();
                        heard.messages += 1;
                        if message.payload.len() <= SAMPLE_BYTES_MAX {
                            heard.sample = message.payload;
                        }
                    }
                }
                Event::Failed(reason) => return Err(WrapperError::peer(reason)),
                _ => {}
            }
        }
    }
    Ok(topics)
}

/// The file for topics.
fn print(address: &str, topics: &Topics) -> Result<String, WrapperError> {
    let announces = |topic: &str| topic.starts_with("homeassistant/") && topic.ends_with("/config");
    let is_sparkplug = |topic: &str| topic.starts_with("spBv1.0/");
    let count = |is_it: &dyn Fn(&str) -> bool| topics.keys().filter(|topic| is_it(topic)).count();
    let (entities, metrics) = (count(&announces), count(&is_sparkplug));
    let address = quoted(address);
    let mut toml = String::new();
    match (entities, metrics) {
        (0, 0) => {}
        (0, _) => {
            let _ = writeln!(
                toml,
                "# {metrics} topics of Sparkplug B. host_id = \"NAME\" tells edge nodes that a host is there."
            );
            let _ = writeln!(toml, "kind = \"sparkplug\"\naddress = {address}");
        }
        (_, _) => {
            let _ = writeln!(toml, "# {entities} announcements for Home Assistant.");
            if metrics > 0 {
                let _ = writeln!(
                    toml,
                    "# {metrics} topics of Sparkplug B, for a file of kind = \"sparkplug\"."
                );
            }
            let _ = writeln!(toml, "kind = \"home_assistant\"\naddress = {address}");
        }
    }
    let own = topics
        .iter()
        .filter(|(topic, _)| !announces(topic) && !is_sparkplug(topic));
    let mut own: Vec<_> = own.collect();
    own.sort_by_key(|(_, heard)| std::cmp::Reverse(heard.messages));
    for (topic, heard) in own.iter().take(PRINTED_MAX) {
        let _ = writeln!(toml, "# {} messages: {}", heard.messages, quoted(topic));
    }
    if entities + metrics > 0 {
        return Ok(toml);
    }
    let json = |heard: &Heard| serde_json::from_slice::<Value>(&heard.sample).ok();
    let found = own.iter().find_map(|(topic, heard)| match json(heard)? {
        value @ Value::Object(_) => Some((topic, value)),
        _ => None,
    });
    let Some((topic, value)) = found else {
        let error = WrapperError::peer(match own.len() {
            0 => format!("no message arrived within {LISTEN_TIME:?}"),
            count => format!("{count} topics, none of which has JSON objects:\n{toml}"),
        });
        return Err(error.with_hint("docs/reference/formats.md shows how other messages are read"));
    };
    let _ = writeln!(
        toml,
        "kind = \"mqtt\"\naddress = {address}\nsubscribe = [{}]",
        quoted(topic)
    );
    toml.push_str("format = \"json\"\n");
    let columns = json_columns(&format!("{value}\n"));
    let name: Vec<String> = topic
        .split('/')
        .filter(|level| !level.is_empty())
        .map(chappe_stream::name_part)
        .collect();
    let name = name.join(".");
    let name = match chappe_stream::check_name(&name) {
        Ok(()) => name,
        Err(_) => "messages".to_owned(),
    };
    stream(&mut toml, &name, None, &columns, true);
    Ok(toml)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(messages: &[(&str, &str)]) -> Topics {
        let mut topics = Topics::new();
        for (topic, payload) in messages {
            let heard = topics.entry((*topic).to_owned()).or_default();
            heard.messages += 1;
            heard.sample = payload.as_bytes().to_vec();
        }
        topics
    }

    #[test]
    fn a_printed_file_is_valid_and_of_the_kind_of_the_topics() {
        let plain = (
            "plant/1/Climate {x}",
            "{\"celsius\": 21.5, \"on\": true, \"\\\"\": \"a\"}",
        );
        for (messages, kind) in [
            (&[("a", "1"), plain][..], "mqtt"),
            (
                &[plain, ("homeassistant/sensor/a/config", "{}")],
                "home_assistant",
            ),
            (&[("spBv1.0/g/NDATA/n", "")], "sparkplug"),
        ] {
            let toml = print("mqtt://127.0.0.1", &topics(messages)).unwrap();
            let file = WrapperFile::parse(Path::new("x.toml"), &toml).unwrap();
            assert_eq!(file.keys.kind, kind, "{toml}");
            file.kind()
                .unwrap_or_else(|error| panic!("{error}: {toml}"));
        }
        assert!(print("mqtt://a", &topics(&[])).is_err());
        assert!(print("mqtt://a", &topics(&[("a", "warm")])).is_err());
    }
}
