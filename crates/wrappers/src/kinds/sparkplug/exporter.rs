//! The exporter of kind `sparkplug`: an edge node.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use chappe_stream::{DescriptorError, Position};
use chappe_transport::{Drops, Hop};
use schemars::JsonSchema;
use serde::Deserialize;

use super::edge::{Edge, PrimaryHost};
use super::host::refused as refused_commands;
use super::payload::{NAMESPACE, is_identifier};
use crate::clock::now;
use crate::kinds::mqtt::broker::{Broker, Connection, Connector, Order, Subscription};
use crate::kinds::mqtt::client_id;
use crate::kinds::mqtt::session::{Event, Message, Outcome, Publication, Will};
use crate::{
    Batch, Delivered, Exporter, ExporterFile, ExporterKind, ExporterOpening, NodeParts, Notes,
    Refused, Step, WrapperError, Written,
};

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "sparkplug",
    about: "publishes elements as a Sparkplug B edge node, whose devices are the streams",
    written: "the broker has answered a ping that followed the messages",
    may_double: "messages of the last batch after a crash or a broken connection",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
};

/// The keys of an exporter of kind `sparkplug`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(flatten)]
    broker: Broker,
    /// The group of the edge node.
    group: String,
    /// The name of the edge node, unique in its group.
    edge_node: String,
    /// The name of the primary host application. While it is not online, elements wait; then they are sent as
    /// historical ones.
    primary_host: Option<String>,
}

fn settings(file: &ExporterFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    settings.broker.check(file)?;
    let names = [
        ("group", Some(&settings.group)),
        ("edge_node", Some(&settings.edge_node)),
        ("primary_host", settings.primary_host.as_ref()),
    ];
    for (key, name) in names {
        if name.is_some_and(|name| !is_identifier(name)) {
            let text = "it is one level of a topic, without / + #".to_owned();
            return Err(file.fault(key, text, None));
        }
    }
    if settings.broker.has_availability() {
        let text = "the death certificate of the edge node is the last will".to_owned();
        return Err(file.fault("availability", text, None));
    }
    Ok(settings)
}

/// The number that binds birth and death certificates of a connection: one more than that of the connection before
/// (5.2). The first is taken from the clock, so that it differs from the last one before a restart.
fn next_bd_seq(group: &str, node: &str) -> u8 {
    static LAST: Mutex<BTreeMap<(String, String), u8>> = Mutex::new(BTreeMap::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let id = (group.to_owned(), node.to_owned());
    let by_clock = (now().0 / 1_000_000_000) as u8;
    let next = last.get(&id).map_or(by_clock, |last| last.wrapping_add(1));
    last.insert(id, next);
    next
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let mut connector = settings.broker.resolve(file)?;
    let (group, node) = (&settings.group, &settings.edge_node);
    let edge = Edge::new(group, node, next_bd_seq(group, node));
    let (topic, payload) = edge.death(now());
    connector.opening.will = Some(Will {
        topic,
        payload,
        is_retained: false,
    });
    let state = settings
        .primary_host
        .map(|host| format!("{NAMESPACE}/STATE/{host}"));
    Ok(Box::new(SparkplugExporter {
        name: file.name.clone(),
        drops: opening.drops,
        notes: opening.notes,
        connector,
        edge,
        state,
        primary: PrimaryHost::default(),
        connecting: None,
        connection: None,
        must_be_born: true,
        outbox: VecDeque::new(),
    }))
}

struct SparkplugExporter {
    name: String,
    drops: Drops,
    notes: Notes,
    connector: Connector,
    edge: Edge,
    /// The STATE topic of the primary host application.
    state: Option<String>,
    primary: PrimaryHost,
    /// The connection under way, which outlives a step that is dropped.
    connecting: Option<Step<'static, Result<Connection, WrapperError>>>,
    connection: Option<Connection>,
    /// Whether birth certificates must be published before any data.
    must_be_born: bool,
    /// Messages that wait for the connection.
    outbox: VecDeque<Publication>,
}

impl Exporter for SparkplugExporter {
    fn attach(
        &mut self,
        node: &NodeParts,
        _exported: &BTreeMap<String, Position>,
    ) -> Result<(), WrapperError> {
        let opening = &mut self.connector.opening;
        if opening.client_id.is_empty() {
            opening.client_id = client_id(&node.id, &format!("{}-out", self.name));
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.edge.is_born() && !self.must_be_born
    }

    fn delivered(&mut self) -> Step<'_, Result<Delivered, WrapperError>> {
        Box::pin(async move {
            self.connect().await?;
            loop {
                if self.must_be_born && (self.state.is_none() || self.primary.is_online()) {
                    self.outbox.extend(self.edge.births(now()));
                    self.must_be_born = false;
                    self.flush().await?;
                    // There is room now.
                    return Ok(Delivered::default());
                }
                self.flush().await?;
                let events = self.events().await?;
                for event in events {
                    self.take(event)?;
                }
            }
        })
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async move {
            self.flush().await?;
            let mut refused = Vec::new();
            for part in &batch.parts {
                let mut messages = Vec::new();
                let mut refuse = |index: usize, reason: String| {
                    refused.push(Refused {
                        stream: part.stream.to_string(),
                        position: part.elements[index].position,
                        reason,
                    });
                };
                for (index, reason) in self.edge.elements(part, now(), &mut messages) {
                    refuse(index, reason);
                }
                let (publications, ranges): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
                for (token, reason) in self.publish(publications).await? {
                    let range = usize::try_from(token).ok().and_then(|at| ranges.get(at));
                    for index in range.cloned().unwrap_or_default() {
                        refuse(index, reason.clone());
                    }
                }
                // Birth certificates that were asked for come before the next data (5.10).
                if self.must_be_born {
                    self.outbox.extend(self.edge.births(now()));
                    self.must_be_born = false;
                    self.flush().await?;
                }
            }
            Ok(Written {
                refused,
                partial: None,
            })
        })
    }
}

impl SparkplugExporter {
    async fn connect(&mut self) -> Result<(), WrapperError> {
        if self.connection.is_none() {
            let filters = [self.edge.commands(), self.edge.device_commands()];
            let filters = filters.into_iter().chain(self.state.clone());
            let subscription = Subscription {
                filters: filters.collect(),
                qos: 1,
                takes_retained: true,
                is_known: false,
            };
            let connecting = self.connecting.get_or_insert_with(|| {
                let connector = self.connector.clone();
                Box::pin(connector.connect(Some(subscription)))
            });
            let connected = connecting.await;
            self.connecting = None;
            self.connection = Some(connected?);
        }
        Ok(())
    }

    fn connection(&mut self) -> Result<&mut Connection, WrapperError> {
        let ended = || WrapperError::peer("the connection has ended");
        self.connection.as_mut().ok_or_else(ended)
    }

    async fn events(&mut self) -> Result<Vec<Event>, WrapperError> {
        let ended = || WrapperError::peer("the connection has ended");
        let notes = self.notes.clone();
        let connection = self.connection()?;
        loop {
            let note = notes.due();
            let due = note.unwrap_or_else(tokio::time::Instant::now);
            tokio::select! {
                events = connection.events.recv() => return events.ok_or_else(ended),
                () = tokio::time::sleep_until(due), if note.is_some() => notes.pass(),
            }
        }
    }

    /// Passes what waits to the connection.
    async fn flush(&mut self) -> Result<(), WrapperError> {
        while !self.outbox.is_empty() {
            let orders = self.connection()?.orders.clone();
            let ended = |_| WrapperError::peer("the connection has ended");
            let permit = orders.reserve().await.map_err(ended)?;
            if let Some(message) = self.outbox.pop_front() {
                permit.send(Order::Publish(message));
            }
        }
        Ok(())
    }

    /// Publishes messages, and returns when the broker has them: those that it never takes, with the reason.
    async fn publish(
        &mut self,
        messages: Vec<Publication>,
    ) -> Result<Vec<(u64, String)>, WrapperError> {
        let orders = self.connection()?.orders.clone();
        let publishing = async move {
            for (token, mut message) in (0..).zip(messages) {
                message.token = token;
                if orders.send(Order::Publish(message)).await.is_err() {
                    return;
                }
            }
            // An ended connection is an event.
            let _ = orders.send(Order::Ping).await;
        };
        let answers = async {
            let (mut refused, mut is_answered) = (Vec::new(), false);
            while !is_answered {
                for event in self.events().await? {
                    match event {
                        Event::Answered => is_answered = true,
                        Event::Published(token, Outcome::Refused(reason)) => {
                            refused.push((token, reason));
                        }
                        other => self.take(other)?,
                    }
                }
            }
            Ok(refused)
        };
        let ((), answered) = tokio::join!(publishing, answers);
        answered
    }

    /// Counts commands to metrics, which are elements of streams that nobody can change.
    fn refuse_commands(&self, message: &Message) {
        let is_of_node = message.topic == self.edge.commands();
        let refused = refused_commands(&message.payload, is_of_node);
        let Some(first) = refused.first() else {
            return;
        };
        let times = refused.len() as u64;
        let detail = format!("{}: {first} is not set by commands", message.topic);
        let hint = "a metric shows a stream; write to the source of the stream".to_owned();
        self.drops.record_times(
            times,
            Hop::Element,
            "command_refused",
            &self.name,
            detail.clone(),
            Some(hint),
        );
        self.notes
            .add(format!("refused {times} commands: {detail}"));
    }

    /// Takes an event that is none of a message of ours.
    fn take(&mut self, event: Event) -> Result<(), WrapperError> {
        match event {
            Event::Message(message) => {
                if let (Some(receipt), Some(connection)) = (message.receipt, &self.connection) {
                    // A connection that has ended is reported by its last event.
                    let _ = connection.orders.try_send(Order::Acknowledge(receipt));
                }
                if self.state.as_ref() == Some(&message.topic) {
                    self.primary.receive(&message.payload);
                    if self.edge.is_born() && !self.primary.is_online() {
                        return Err(WrapperError::peer(
                            "the primary host application is offline",
                        ));
                    }
                } else {
                    if message.topic == self.edge.commands()
                        && Edge::asks_for_birth(&message.payload)
                    {
                        self.must_be_born = self.edge.is_born() || self.must_be_born;
                    }
                    self.refuse_commands(&message);
                }
                Ok(())
            }
            Event::Failed(reason) => Err(WrapperError::peer(reason)),
            _ => Ok(()),
        }
    }
}
