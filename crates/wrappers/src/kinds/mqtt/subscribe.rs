//! Subscribes to topics of a broker.

use std::collections::VecDeque;

use chappe_format::{Message as Input, Pattern};
use chappe_stream::DescriptorError;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::broker::{Broker, Connection, Connector, Order, Subscription};
use super::commands::Commands;
use super::ledger::{Ledger, MESSAGES};
use super::session::{Event, Message, Outcome, Receipt};
use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    BATCH_BYTES_MAX, Batch, Command, Condition, Delivery, Lost, Mark, NodeParts, Step, Undecodable,
    Wrapper, WrapperError, WrapperFile, WrapperKind, WrapperOpening,
};

/// Seconds for which the broker keeps the session of a node that is away, unless the file sets another time: a week.
const SESSION_S: u32 = 7 * 24 * 3_600;
/// Most topic filters of a file.
const FILTERS_MAX: usize = 64;
/// Bytes of payloads after which a batch is complete.
const BATCH_BYTES: usize = BATCH_BYTES_MAX / 8;
/// Messages after which a batch is complete; reason: a broker of MQTT 5.0 sends no more without acknowledgements.
const BATCH_MESSAGES: usize = 4_096;
/// Batches on their way to the disk beside which the next one is gathered; reason: the log writes one and has the next
/// ready, and a further one would only add a mark.
const BATCHES_AHEAD: usize = 2;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "mqtt",
    about: "messages of an MQTT broker, 3.1.1 or 5.0",
    delivery: Delivery {
        acknowledges: "by PUBACK or PUBREC, after the message is stored",
        resumes: "the session that the broker keeps, and the identifiers of the newest 512 messages",
        may_double: "messages of quality of service 0 never; others only if a broker of 3.1.1 repeats more than 512, or if it uses one of the last 512 identifiers again",
        may_miss: "what the broker drops: with quality of service 0, after `session_s`, or beyond its queue",
        back_pressure: "acknowledgements wait, and the socket is not read",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: Some(super::browse::browse),
};

/// The keys of a wrapper of kind `mqtt`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(flatten)]
    broker: Broker,
    /// The topics: patterns such as `plant/{line}/+/climate`, whose placeholders name streams and keys. With the prefix
    /// `$share/GROUP/`, the broker divides its messages among the group.
    subscribe: Vec<String>,
    /// The highest quality of service: 0, 1 or 2.
    #[serde(default = "qos")]
    #[schemars(range(max = 2))]
    qos: u8,
    /// Seconds for which the broker keeps the session while this node is away. 0: the broker keeps no session.
    #[serde(default = "session_s")]
    #[schemars(extend("x-unit" = "s"))]
    session_s: u32,
    /// The treatment of retained messages: the last one of each topic, which a broker sends for a new
    /// subscription.
    #[serde(default)]
    retained: Retained,
}

/// What to do with retained messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Retained {
    /// Store them like other messages.
    #[default]
    Store,
    /// Ignore them.
    Ignore,
}

fn qos() -> u8 {
    1
}

fn session_s() -> u32 {
    SESSION_S
}

/// A pattern with its topic filter.
struct Topics {
    pattern: Pattern,
    filter: String,
}

impl Topics {
    fn parse(text: &str) -> Result<Self, String> {
        let (group, pattern) = match text.strip_prefix("$share/") {
            None => (None, text),
            Some(rest) => {
                let form = "write it as $share/GROUP/PATTERN";
                let (group, pattern) = rest.split_once('/').ok_or(form)?;
                if group.is_empty() || group.contains(['+', '#', '{']) {
                    return Err(form.to_owned());
                }
                (Some(group), pattern)
            }
        };
        let pattern = Pattern::topic(pattern).map_err(|error| error.to_string())?;
        let filter = match group {
            Some(group) => format!("$share/{group}/{}", pattern.subscription()),
            None => pattern.subscription(),
        };
        Ok(Self { pattern, filter })
    }
}

fn settings(
    file: &WrapperFile,
) -> Result<(Settings, Vec<Topics>, Decoder, Commands), DescriptorError> {
    let settings: Settings = file.settings()?;
    settings.broker.check(file)?;
    let wrong = |key: &str, text: String| Err(file.fault(key, text, None));
    if !(1..=FILTERS_MAX).contains(&settings.subscribe.len()) {
        return wrong("subscribe", format!("it has 1 to {FILTERS_MAX} patterns"));
    }
    if settings.qos > 2 {
        return wrong("qos", "it is 0, 1 or 2".to_owned());
    }
    let mut topics = Vec::new();
    for text in &settings.subscribe {
        match Topics::parse(text) {
            Ok(one) => topics.push(one),
            Err(text) => return wrong("subscribe", text),
        }
    }
    let mut names: Vec<String> = Vec::new();
    for name in topics.iter().flat_map(|one| one.pattern.names()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let decoder = Decoder::new(file, &names)?;
    let commands = Commands::of(file)?;
    Ok((settings, topics, decoder, commands))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let (settings, topics, decoder, commands) =
        settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let mut connector = settings.broker.resolve(file)?;
    connector.opening.session_s = settings.session_s;
    connector.opening.receive_maximum = MESSAGES as u16;
    let known = opening.mark.as_ref().and_then(Ledger::of);
    let has_mark = known.is_some();
    let mut ledger = known.unwrap_or_default();
    let filters: Vec<String> = topics.iter().map(|one| one.filter.clone()).collect();
    let is_known = ledger.subscribe(&filters, settings.qos);
    Ok(Box::new(MqttWrapper {
        name: file.name.clone(),
        connector,
        subscription: Subscription {
            filters,
            qos: settings.qos,
            takes_retained: settings.retained == Retained::Store,
            is_known,
        },
        topics,
        decoder,
        commands,
        ledger,
        has_mark,
        keeps_session: settings.session_s > 0,
        connecting: None,
        connection: None,
        arrived: VecDeque::new(),
        gathered: Gathered::default(),
        waiting: VecDeque::new(),
        confirming: None,
        condition: opening.condition,
        orders: 0,
    }))
}

struct MqttWrapper {
    name: String,
    connector: Connector,
    subscription: Subscription,
    topics: Vec<Topics>,
    decoder: Decoder,
    commands: Commands,
    ledger: Ledger,
    /// Whether it ran before.
    has_mark: bool,
    keeps_session: bool,
    /// The connection under way, which outlives a step that is dropped.
    connecting: Option<Step<'static, Result<Connection, WrapperError>>>,
    connection: Option<Connection>,
    /// Events that were received and not looked at yet.
    arrived: VecDeque<Event>,
    gathered: Gathered,
    /// What is acknowledged when a batch is stored.
    waiting: VecDeque<Waiting>,
    /// The number of the newest message whose acknowledgement the broker has when it answers a ping.
    confirming: Option<u64>,
    condition: Condition,
    /// Commands so far.
    orders: u64,
}

/// The next batch. It outlives a step that is dropped.
#[derive(Default)]
struct Gathered {
    batch: Batch,
    receipts: Vec<Receipt>,
    messages: usize,
    /// Bytes of payloads.
    bytes: usize,
    /// It has a message that the broker does not send again.
    is_urgent: bool,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        let Batch {
            parts, undecodable, ..
        } = &self.batch;
        self.receipts.is_empty() && parts.is_empty() && undecodable.is_empty()
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.messages >= BATCH_MESSAGES
    }
}

/// What a batch with this mark acknowledges.
struct Waiting {
    mark: Mark,
    receipts: Vec<Receipt>,
    /// The number of its newest message.
    newest: u64,
}

impl Wrapper for MqttWrapper {
    fn attach(&mut self, node: &NodeParts) -> Result<(), WrapperError> {
        let opening = &mut self.connector.opening;
        if opening.client_id.is_empty() {
            opening.client_id = super::client_id(&node.id, &self.name);
        }
        Ok(())
    }

    fn repeats(&self) -> bool {
        self.subscription.qos > 0 && self.keeps_session
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            if self.connection.is_none() {
                let mut batch = Batch::default();
                self.connect(&mut batch).await?;
                if !batch.lost.is_empty() {
                    batch.mark = self.ledger.mark();
                    return Ok(batch);
                }
            }
            loop {
                let mut has_failed = false;
                while !self.gathered.is_full()
                    && !has_failed
                    && let Some(event) = self.arrived.pop_front()
                {
                    match event {
                        Event::Message(message) => self.take(&message),
                        Event::Answered => {
                            if let Some(newest) = self.confirming.take() {
                                self.ledger.confirm(newest);
                            }
                        }
                        Event::Failed(reason) if self.gathered.is_empty() => {
                            return Err(WrapperError::peer(reason));
                        }
                        failed @ Event::Failed(_) => {
                            self.arrived.push_front(failed);
                            has_failed = true;
                        }
                        _ => {}
                    }
                }
                let gathered = &self.gathered;
                // A stop would lose what the broker does not send again.
                let may_wait = self.repeats() && !gathered.is_urgent && !has_failed;
                let is_due = self.waiting.len() < BATCHES_AHEAD || !may_wait;
                if gathered.is_full() || (is_due && !gathered.is_empty()) {
                    break;
                }
                let Some(connection) = &mut self.connection else {
                    return Err(WrapperError::peer("not connected"));
                };
                match connection.events.recv().await {
                    Some(events) => self.arrived.extend(events),
                    None => return Err(WrapperError::peer("the connection has ended")),
                }
            }
            self.condition.runs();
            let Gathered {
                mut batch,
                receipts,
                ..
            } = std::mem::take(&mut self.gathered);
            batch.mark = self.ledger.mark();
            self.waiting.push_back(Waiting {
                mark: batch.mark.clone(),
                receipts,
                newest: self.ledger.newest(),
            });
            Ok(batch)
        })
    }

    fn stored<'a>(&'a mut self, mark: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        Box::pin(async move {
            let at = self.waiting.iter().position(|one| one.mark == *mark);
            let stored = self.waiting.drain(..at.map_or(0, |at| at + 1));
            let Some(connection) = &self.connection else {
                return Ok(());
            };
            // A connection that has ended is reported by the next step.
            for one in stored {
                for receipt in one.receipts {
                    let _ = connection.orders.send(Order::Acknowledge(receipt)).await;
                }
                if self.confirming.is_none() {
                    self.confirming = Some(one.newest);
                    let _ = connection.orders.send(Order::Ping).await;
                }
            }
            Ok(())
        })
    }

    fn command<'a>(&'a mut self, command: &'a Command) -> Step<'a, Result<Value, WrapperError>> {
        Box::pin(async move {
            self.orders += 1;
            let mut publication = self.commands.publication(command)?;
            publication.token = self.orders;
            let Some(connection) = &mut self.connection else {
                let text = "the broker is not connected".to_owned();
                return Err(WrapperError::Command(text));
            };
            let gone = || WrapperError::Command("the connection has ended".to_owned());
            let order = Order::Publish(publication);
            connection.orders.send(order).await.map_err(|_| gone())?;
            loop {
                let events = connection.events.recv().await.ok_or_else(gone)?;
                let mut outcome = None;
                for event in events {
                    match event {
                        Event::Published(token, answer) if token == self.orders => {
                            outcome = Some(answer);
                        }
                        other => self.arrived.push_back(other),
                    }
                }
                match outcome {
                    None if matches!(self.arrived.back(), Some(Event::Failed(_))) => {
                        return Err(gone());
                    }
                    None => {}
                    Some(Outcome::Taken) => return Ok(json!({ "acknowledged": true })),
                    Some(Outcome::Refused(reason) | Outcome::Later(reason)) => {
                        return Err(WrapperError::Command(format!(
                            "the broker refuses it: {reason}"
                        )));
                    }
                }
            }
        })
    }
}

impl MqttWrapper {
    async fn connect(&mut self, batch: &mut Batch) -> Result<(), WrapperError> {
        let connecting = self.connecting.get_or_insert_with(|| {
            let connector = self.connector.clone();
            Box::pin(connector.connect(Some(self.subscription.clone())))
        });
        let connected = connecting.await;
        self.connecting = None;
        let connection = connected?;
        self.confirming = None;
        self.condition.waits("no message has arrived");
        if self.has_mark && !connection.had_session {
            self.ledger.forget();
            if self.keeps_session {
                batch.lost.push(Lost {
                    stream: self.decoder.only_stream().map(str::to_owned),
                    reason: "session_expired",
                    messages: 0,
                });
            }
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// Adds a message to the next batch, unless it is stored already.
    fn take(&mut self, message: &Message) {
        let Gathered {
            batch,
            receipts,
            messages,
            bytes,
            is_urgent,
        } = &mut self.gathered;
        *messages += 1;
        *bytes += message.payload.len();
        let is_stored = self.ledger.has(message);
        let is_ignored = message.is_retained && !self.subscription.takes_retained;
        let matched = self
            .topics
            .iter()
            .find_map(|one| one.pattern.matches(&message.topic));
        if let Some(attributes) = matched.filter(|_| !is_stored && !is_ignored) {
            match message.cut_of {
                None => {
                    let input = Input::new(&message.payload, now()).with(&attributes);
                    self.decoder.attributed(&input, batch);
                }
                Some(bytes) => batch.undecodable.push(Undecodable {
                    stream: self.decoder.only_stream().map(str::to_owned),
                    reason: format!(
                        "{}: a packet of {bytes} bytes exceeds the limit",
                        message.topic
                    ),
                    message: message.payload.clone(),
                    is_cut: true,
                }),
            }
            self.ledger.add(message);
        }
        let Some(receipt) = message.receipt else {
            *is_urgent = true;
            return;
        };
        // Acknowledgements are in the order of the messages (MQTT 5.0, 4.6).
        let adds_nothing = batch.parts.is_empty() && batch.undecodable.is_empty();
        let is_next = receipts.is_empty() && self.waiting.is_empty() && adds_nothing;
        let order = Order::Acknowledge(receipt);
        let sent = match &self.connection {
            Some(connection) if is_next => connection.orders.try_send(order).is_ok(),
            _ => false,
        };
        if !sent {
            receipts.push(receipt);
        }
    }
}
