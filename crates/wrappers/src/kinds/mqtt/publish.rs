//! Publishes elements to a broker, one message each.

use std::collections::HashMap;

use chappe_format::{Encoder, Encoding};
use chappe_stream::{DescriptorError, Position, StreamElement, Value};
use schemars::JsonSchema;
use serde::Deserialize;

use super::broker::{Broker, Connection, Connector, Order, is_topic};
use super::home_assistant::{AnnounceSettings, Announcer};
use super::session::{Event, Outcome, Publication};
use crate::kinds::template::Template;
use crate::{
    Batch, Delivered, Exporter, ExporterFile, ExporterKind, ExporterOpening, NodeParts, Notes,
    Part, Refused, Step, WrapperError, Written,
};

/// The user property that identifies an element: stream, epoch and number.
const IDENTITY: &str = "chappe-element";
/// The tokens of announcements; reason: those of elements count from zero.
const ANNOUNCEMENTS: u64 = 1 << 32;
/// The placeholders of a topic.
const NAMES: [&str; 2] = ["stream", "key"];

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "mqtt",
    about: "publishes elements to an MQTT broker, 3.1.1 or 5.0",
    written: "the broker has acknowledged the message; with quality of service 0, when it is sent",
    may_double: "messages of the last batch after a crash or a broken connection; in MQTT 5.0 the user property `chappe-element` identifies them",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
};

/// The keys of an exporter of kind `mqtt`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(flatten)]
    broker: Broker,
    /// The topic of an element, with the placeholders `{stream}` and `{key}`. Dots of a stream's name become levels.
    #[serde(default = "topic")]
    topic: String,
    /// How an element is written. Default: JSON.
    #[serde(default = "json")]
    format: Encoding,
    /// Publish only the text of this field, in place of the element.
    field: Option<String>,
    /// The quality of service: 0, 1 or 2.
    #[serde(default = "qos")]
    #[schemars(range(max = 2))]
    qos: u8,
    /// Whether the broker keeps the last message of each topic for later subscribers.
    #[serde(default)]
    retain: bool,
    /// Announce the fields of the streams to Home Assistant: true, or a table with the `prefix` of its topics.
    home_assistant: Option<AnnounceSettings>,
}

fn topic() -> String {
    "chappe/{stream}".to_owned()
}

fn json() -> Encoding {
    Encoding::Json
}

fn qos() -> u8 {
    1
}

fn settings(file: &ExporterFile) -> Result<(Settings, Template), DescriptorError> {
    let settings: Settings = file.settings()?;
    settings.broker.check(file)?;
    let wrong = |key: &str, text: String| Err(file.fault(key, text, None));
    if settings.qos > 2 {
        return wrong("qos", "it is 0, 1 or 2".to_owned());
    }
    if !is_topic(&settings.topic) {
        return wrong(
            "topic",
            "a message has a topic without wildcards".to_owned(),
        );
    }
    let template = match Template::parse(&settings.topic) {
        Ok(template) => template,
        Err(text) => return wrong("topic", text.to_owned()),
    };
    if let Some(name) = template.names().find(|name| !NAMES.contains(name)) {
        return wrong(
            "topic",
            format!("{{{name}}} is neither {{stream}} nor {{key}}"),
        );
    }
    let prefix = settings
        .home_assistant
        .as_ref()
        .and_then(AnnounceSettings::prefix);
    if let Some(prefix) = prefix {
        if settings.format != Encoding::Json && settings.field.is_none() {
            let text = "Home Assistant reads JSON, or the text of one field".to_owned();
            return wrong("home_assistant", text);
        }
        if !is_topic(&prefix) {
            let text = "the prefix is the beginning of a topic, without wildcards".to_owned();
            return wrong("home_assistant", text);
        }
    }
    Ok((settings, template))
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let file = opening.file;
    let (settings, topic) =
        settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    Ok(Box::new(MqttExporter {
        name: file.name.clone(),
        connector: settings.broker.resolve(file)?,
        connection: None,
        topic,
        format: settings.format,
        field: settings.field,
        qos: settings.qos,
        is_retained: settings.retain,
        prefix: settings
            .home_assistant
            .as_ref()
            .and_then(AnnounceSettings::prefix),
        announcer: None,
        connecting: None,
        notes: opening.notes,
    }))
}

struct MqttExporter {
    name: String,
    connector: Connector,
    connection: Option<Connection>,
    topic: Template,
    format: Encoding,
    field: Option<String>,
    qos: u8,
    is_retained: bool,
    /// The first level of the topics on which Home Assistant expects announcements, if it gets them.
    prefix: Option<String>,
    announcer: Option<Announcer>,
    /// The connection under way, which outlives a step that is dropped.
    connecting: Option<Step<'static, Result<Connection, WrapperError>>>,
    notes: Notes,
}

impl Exporter for MqttExporter {
    fn attach(
        &mut self,
        node: &NodeParts,
        _exported: &std::collections::BTreeMap<String, Position>,
    ) -> Result<(), WrapperError> {
        let opening = &mut self.connector.opening;
        if opening.client_id.is_empty() {
            opening.client_id = super::client_id(&node.id, &format!("{}-out", self.name));
        }
        if let Some(prefix) = &self.prefix {
            let client = self.connector.opening.client_id.clone();
            if self.connector.opening.will.is_none() {
                let topic = format!("chappe/{}/status", level(&client));
                self.connector.announce_availability(topic);
            }
            let will = self.connector.opening.will.as_ref();
            let availability = will.map(|will| will.topic.clone()).unwrap_or_default();
            let (prefix, field) = (prefix.clone(), self.field.clone());
            self.announcer = Some(Announcer::new(prefix, &client, availability, field));
        }
        Ok(())
    }

    fn delivered(&mut self) -> Step<'_, Result<Delivered, WrapperError>> {
        Box::pin(async move {
            // Without somebody who watches whether this client is there, the first element connects.
            if self.connector.opening.will.is_none() {
                return std::future::pending().await;
            }
            self.connect().await?;
            let ended = || WrapperError::peer("the connection has ended");
            loop {
                let connection = self.connection.as_mut().ok_or_else(ended)?;
                for event in connection.events.recv().await.ok_or_else(ended)? {
                    if let Event::Failed(reason) = event {
                        return Err(WrapperError::peer(reason));
                    }
                }
            }
        })
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async move {
            self.connect().await?;
            let (mut messages, mut refused) = (Vec::new(), Vec::new());
            for part in &batch.parts {
                self.encode(part, &mut messages, &mut refused);
            }
            let tokens: Vec<(&Part, Position)> = messages
                .iter()
                .map(|(part, position, _)| (*part, *position))
                .collect();
            let announcements = self.announcements(&messages);
            let messages = messages.into_iter().map(|(_, _, message)| message);
            let outcomes = self
                .publish(announcements.into_iter().chain(messages).collect())
                .await?;
            let mut later = None;
            for (token, outcome) in outcomes {
                let Some((part, position)) =
                    usize::try_from(token).ok().and_then(|at| tokens.get(at))
                else {
                    if let Outcome::Refused(reason) | Outcome::Later(reason) = outcome {
                        self.notes
                            .add(format!("the broker refuses an announcement: {reason}"));
                    }
                    continue;
                };
                match outcome {
                    Outcome::Taken => {}
                    Outcome::Refused(reason) => refused.push(Refused {
                        stream: part.stream.to_string(),
                        position: *position,
                        reason,
                    }),
                    Outcome::Later(reason) => later = Some(reason),
                }
            }
            self.notes.pass();
            match later {
                // The whole batch is repeated.
                Some(reason) => Err(WrapperError::peer(format!("the broker refuses: {reason}"))),
                None => Ok(Written {
                    refused,
                    partial: None,
                }),
            }
        })
    }
}

impl MqttExporter {
    async fn connect(&mut self) -> Result<(), WrapperError> {
        if self.connection.is_none() {
            let connecting = self.connecting.get_or_insert_with(|| {
                let connector = self.connector.clone();
                Box::pin(connector.connect(None))
            });
            let connected = connecting.await;
            self.connecting = None;
            self.connection = Some(connected?);
        }
        Ok(())
    }

    /// What Home Assistant must know before these messages.
    fn announcements(&mut self, messages: &[(&Part, Position, Publication)]) -> Vec<Publication> {
        let Some(announcer) = &mut self.announcer else {
            return Vec::new();
        };
        let (mut made, mut last) = (Vec::new(), None);
        for (part, position, message) in messages {
            // Elements of one topic mostly follow each other.
            if last == Some(&message.topic) {
                continue;
            }
            last = Some(&message.topic);
            let at = part
                .elements
                .binary_search_by_key(position, |it| it.position);
            let key = at.ok().and_then(|at| part.elements[at].key.as_deref());
            if key.is_some() && !self.topic.names().any(|name| name == "key") {
                let text = format!("the topic needs {{key}} to announce {}", part.stream);
                self.notes.add(text);
                continue;
            }
            match announcer.announce(&part.stream, key, &part.definition, &message.topic) {
                Ok(publications) => made.extend(publications),
                Err(reason) => self.notes.add(reason),
            }
        }
        for (index, one) in made.iter_mut().enumerate() {
            one.token = ANNOUNCEMENTS + index as u64;
        }
        made
    }

    /// The messages of a part.
    fn encode<'b>(
        &self,
        part: &'b Part,
        messages: &mut Vec<(&'b Part, Position, Publication)>,
        refused: &mut Vec<Refused>,
    ) {
        let schema = std::sync::Arc::new(part.definition.schema.clone());
        let encoder = Encoder::new(self.format, &part.stream, schema);
        for element in &part.elements {
            let token = messages.len() as u64;
            match self.message(part, &encoder, element, token) {
                Ok(message) => messages.push((part, element.position, message)),
                Err(reason) => refused.push(Refused {
                    stream: part.stream.to_string(),
                    position: element.position,
                    reason,
                }),
            }
        }
    }

    fn message(
        &self,
        part: &Part,
        encoder: &Encoder,
        element: &StreamElement,
        token: u64,
    ) -> Result<Publication, String> {
        let payload = match &self.field {
            None => {
                let mut text = encoder.header().unwrap_or_default();
                encoder
                    .encode(element, &mut text)
                    .map_err(|error| error.to_string())?;
                text.truncate(text.trim_end_matches('\n').len());
                text
            }
            Some(field) => {
                let fields = &part.definition.schema.fields;
                let at = fields.iter().position(|it| it.name == *field);
                match at.and_then(|at| element.values.get(at)) {
                    None => return Err(format!("the stream has no field {field:?}")),
                    Some(value) => text(value)?,
                }
            }
        };
        let mut values = serde_json::Map::new();
        values.insert("stream".to_owned(), part.stream.replace('.', "/").into());
        if let Some(key) = &element.key {
            values.insert("key".to_owned(), level(key).into());
        }
        let topic = self.topic.fill(&values);
        let topic = topic.map_err(|error| format!("the topic: {error}"))?;
        Ok(Publication {
            token,
            topic,
            payload: payload.into_bytes(),
            qos: self.qos,
            is_retained: self.is_retained,
            property: Some((IDENTITY, format!("{} {}", part.stream, element.position))),
        })
    }

    /// Publishes messages; returns what became of each.
    async fn publish(
        &mut self,
        messages: Vec<Publication>,
    ) -> Result<HashMap<u64, Outcome>, WrapperError> {
        let Some(connection) = &mut self.connection else {
            return Err(WrapperError::peer("not connected"));
        };
        let expected = messages.len();
        let (orders, events) = (&connection.orders, &mut connection.events);
        let publishing = async {
            for message in messages {
                if orders.send(Order::Publish(message)).await.is_err() {
                    break;
                }
            }
            // The answers decide.
            std::future::pending::<()>().await;
        };
        let mut outcomes = HashMap::new();
        let answers = async {
            while outcomes.len() < expected {
                let ended = || WrapperError::peer("the connection has ended");
                for event in events.recv().await.ok_or_else(ended)? {
                    match event {
                        Event::Published(token, outcome) => {
                            outcomes.insert(token, outcome);
                        }
                        Event::Failed(reason) => return Err(WrapperError::peer(reason)),
                        _ => {}
                    }
                }
            }
            Ok(())
        };
        tokio::select! {
            answered = answers => answered?,
            () = publishing => {}
        }
        Ok(outcomes)
    }
}

/// A key as one level of a topic.
pub(in crate::kinds) fn level(key: &str) -> String {
    let mut level = String::new();
    for c in key.chars() {
        match c {
            '/' | '+' | '#' | '%' => level.push_str(&format!("%{:02X}", c as u32)),
            c if c.is_control() => level.push_str(&format!("%{:02X}", c as u32)),
            c => level.push(c),
        }
    }
    match level.is_empty() {
        true => "%".to_owned(),
        false => level,
    }
}

/// A value as a text of its own.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::Boolean(flag) => Ok(flag.to_string()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Double(number) => Ok(number.to_string()),
        Value::Text(text) => Ok(text.clone()),
        Value::Bytes(_) | Value::Samples(_) => Err("a field of this type is not text".to_owned()),
    }
}
