//! A wrapper that follows what clients of a broker announce: a machine says what each message is, what to subscribe to,
//! and what to answer.

use std::collections::VecDeque;

use chappe_stream::{StreamSchema, Timestamp};

use super::broker::{Connection, Connector, Order, Subscription};
use super::session::{Event, Message, Receipt};
use crate::clock::now;
use crate::{
    BATCH_BYTES_MAX, Batch, Condition, Mark, NodeParts, Notes, Step, Wrapper, WrapperError,
};

/// Bytes of payloads and elements after which a batch is complete; reason: one message can become elements of many
/// streams.
const BATCH_BYTES: usize = BATCH_BYTES_MAX / 8;
/// Messages after which a batch is complete; reason: one message can become elements of many streams.
const BATCH_MESSAGES: usize = 256;
/// Most messages that the broker has on their way.
pub(in crate::kinds) const IN_FLIGHT: u16 = 64;

/// What a message led to.
#[derive(Debug, Default)]
pub(in crate::kinds) struct Output {
    pub(in crate::kinds) batch: Batch,
    /// What the broker is asked for.
    pub(in crate::kinds) orders: Vec<Order>,
    /// For the operator.
    pub(in crate::kinds) notes: Vec<String>,
}

/// What a kind does with messages.
pub(in crate::kinds) trait Machine: Send {
    /// Gives it the parts of the node.
    fn attach(&mut self, node: &NodeParts);

    /// Takes a message that arrived at `now`.
    fn receive(&mut self, message: &Message, now: Timestamp, output: &mut Output);

    /// Why there is nothing to receive, if so.
    fn waits_for(&self) -> Option<&'static str>;

    /// The mark of the next batch.
    fn mark(&mut self) -> Mark;
}

/// The wrapper.
pub(in crate::kinds) struct Follower<M> {
    name: String,
    connector: Connector,
    subscription: Subscription,
    machine: M,
    /// The connection under way, which outlives a step that is dropped.
    connecting: Option<Step<'static, Result<Connection, WrapperError>>>,
    connection: Option<Connection>,
    /// Events that were received and not looked at yet.
    arrived: VecDeque<Event>,
    /// Orders that wait for the connection.
    orders: VecDeque<Order>,
    /// What is acknowledged when the batch with this mark is stored.
    waiting: VecDeque<(Mark, Vec<Receipt>)>,
    condition: Condition,
    notes: Notes,
}

impl<M: Machine> Follower<M> {
    /// A wrapper that begins with these subscriptions.
    pub(in crate::kinds) fn new(
        name: &str,
        mut connector: Connector,
        filters: Vec<String>,
        machine: M,
        condition: Condition,
        notes: Notes,
    ) -> Self {
        connector.opening.receive_maximum = IN_FLIGHT;
        Self {
            name: name.to_owned(),
            connector,
            subscription: Subscription {
                filters,
                qos: 1,
                takes_retained: true,
                is_known: false,
            },
            machine,
            connecting: None,
            connection: None,
            arrived: VecDeque::new(),
            orders: VecDeque::new(),
            waiting: VecDeque::new(),
            condition,
            notes,
        }
    }

    async fn connect(&mut self) -> Result<(), WrapperError> {
        let connecting = self.connecting.get_or_insert_with(|| {
            let connector = self.connector.clone();
            Box::pin(connector.connect(Some(self.subscription.clone())))
        });
        let connected = connecting.await;
        self.connecting = None;
        self.connection = Some(connected?);
        self.show();
        Ok(())
    }

    fn show(&self) {
        match self.machine.waits_for() {
            Some(reason) => self.condition.waits(reason),
            None => self.condition.runs(),
        }
    }
}

impl<M: Machine> Wrapper for Follower<M> {
    fn attach(&mut self, node: &NodeParts) -> Result<(), WrapperError> {
        let opening = &mut self.connector.opening;
        if opening.client_id.is_empty() {
            opening.client_id = super::client_id(&node.id, &self.name);
        }
        self.machine.attach(node);
        Ok(())
    }

    fn repeats(&self) -> bool {
        false
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            if self.connection.is_none() {
                self.connect().await?;
            }
            if let Some(connection) = &self.connection {
                flush(connection, &mut self.orders).await?;
            }
            let (mut output, mut receipts) = (Output::default(), Vec::new());
            let (mut messages, mut bytes) = (0, 0);
            loop {
                while let Some(event) = self.arrived.pop_front() {
                    match event {
                        Event::Message(message) => {
                            messages += 1;
                            bytes += message.payload.len();
                            self.machine.receive(&message, now(), &mut output);
                            self.orders.extend(output.orders.drain(..));
                            receipts.extend(message.receipt);
                        }
                        Event::Subscribed(Err((filter, reason))) => {
                            let text =
                                format!("the broker refuses the subscription {filter:?}: {reason}");
                            output.notes.push(text);
                        }
                        Event::Failed(reason) => {
                            if messages > 0 {
                                self.arrived.push_front(Event::Failed(reason));
                                break;
                            }
                            return Err(WrapperError::peer(reason));
                        }
                        _ => {}
                    }
                    let weight = bytes + output.batch.weight();
                    if weight >= BATCH_BYTES || messages >= BATCH_MESSAGES {
                        break;
                    }
                }
                output.notes.drain(..).for_each(|note| self.notes.add(note));
                let batch = &output.batch;
                let is_empty =
                    batch.parts.is_empty() && batch.undecodable.is_empty() && batch.lost.is_empty();
                if !receipts.is_empty() || !is_empty {
                    break;
                }
                let ended = || WrapperError::peer("the connection has ended");
                let connection = self.connection.as_mut().ok_or_else(ended)?;
                flush(connection, &mut self.orders).await?;
                let note_due = self.notes.due();
                tokio::select! {
                    events = connection.events.recv() => {
                        self.arrived.extend(events.ok_or_else(ended)?);
                    }
                    () = async {
                        match note_due {
                            Some(due) => tokio::time::sleep_until(due).await,
                            None => std::future::pending().await,
                        }
                    } => self.notes.pass(),
                }
            }
            self.show();
            let mut batch = output.batch;
            batch.mark = self.machine.mark();
            self.waiting.push_back((batch.mark.clone(), receipts));
            Ok(batch)
        })
    }

    fn stored<'a>(&'a mut self, mark: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        Box::pin(async move {
            let at = self.waiting.iter().position(|(one, _)| one == mark);
            for (_, receipts) in self.waiting.drain(..at.map_or(0, |at| at + 1)) {
                for receipt in receipts {
                    let Some(connection) = &self.connection else {
                        continue;
                    };
                    // A connection that has ended is reported by the next step.
                    let _ = connection.orders.send(Order::Acknowledge(receipt)).await;
                }
            }
            Ok(())
        })
    }
}

/// Why elements of a stream cannot have this schema: those that it has already have another unit or type, and would
/// change their meaning. `recent` is the schema of elements that may not be stored yet.
pub(in crate::kinds) fn other_meaning(
    node: &NodeParts,
    stream: &str,
    recent: Option<&StreamSchema>,
    schema: &StreamSchema,
) -> Option<String> {
    let stored = (node.stream)(stream).filter(|stream| stream.last > 0);
    let former = stored.as_ref().map(|stream| &stream.schema).or(recent)?;
    let shown = |schema: &StreamSchema| {
        let fields = schema.fields.iter().map(|field| match &field.unit {
            Some(unit) => format!("{:?} in {unit:?}", field.field_type),
            None => format!("{:?} without a unit", field.field_type),
        });
        fields.collect::<Vec<_>>().join(", ")
    };
    let (former, new) = (shown(former), shown(schema));
    (former != new).then(|| format!("the elements of {stream} are {former}, not {new}"))
}

/// Passes orders to the connection. Dropping it loses none.
async fn flush(connection: &Connection, orders: &mut VecDeque<Order>) -> Result<(), WrapperError> {
    while !orders.is_empty() {
        let ended = |_| WrapperError::peer("the connection has ended");
        let permit = connection.orders.reserve().await.map_err(ended)?;
        if let Some(order) = orders.pop_front() {
            permit.send(order);
        }
    }
    Ok(())
}
