//! A wrapper that follows what clients of a broker announce: a machine says what each message is, what to subscribe to,
//! and what to answer.

use std::collections::VecDeque;
use std::time::Duration;

use chappe_stream::{StreamSchema, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::broker::{Connection, Connector, Order, Subscription};
use super::session::{Event, Message, Outcome, Publication, Receipt};
use crate::clock::now;
use crate::{
    BATCH_BYTES_MAX, Batch, Command, Condition, DeviceReport, Mark, NodeParts, Notes, Step,
    Wrapper, WrapperError,
};

/// Bytes of payloads and elements after which a batch is complete; reason: one message can become elements of many
/// streams.
const BATCH_BYTES: usize = BATCH_BYTES_MAX / 8;
/// Messages after which a batch is complete; reason: one message can become elements of many streams.
const BATCH_MESSAGES: usize = 256;
/// Time that an operation of a device may take; reason: less than the node waits for any call, so that the caller reads
/// what is missing.
const OPERATION_TIME: Duration = Duration::from_secs(10);
/// Bytes of messages that may arrive while an operation waits for its device; reason: nothing is stored meanwhile.
const ARRIVED_BYTES_MAX: usize = 4 << 20;
/// Memory of an event besides its payload, for [`ARRIVED_BYTES_MAX`].
const EVENT_BYTES: usize = 256;
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

    /// What is new about devices since the last call.
    fn devices(&mut self) -> Vec<DeviceReport>;

    /// How an operation of a device is called.
    ///
    /// # Errors
    /// There is none, or its arguments do not fit.
    fn operate(&self, device: &str, command: &Command, now: Timestamp) -> Result<Call, String>;

    /// Why there is nothing to receive, if so.
    fn waits_for(&self) -> Option<&'static str>;

    /// The mark of the next batch.
    fn mark(&mut self) -> Mark;
}

/// Tells whether a message shows that a device has carried an operation out.
pub(in crate::kinds) type Confirms = Box<dyn Fn(&Message) -> bool + Send + Sync>;

/// The message that calls an operation.
pub(in crate::kinds) struct Call {
    pub(in crate::kinds) publication: Publication,
    /// Whether a message shows that the device has carried it out; `None`: no message does.
    pub(in crate::kinds) confirms: Option<Confirms>,
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
    /// The number of operations that were called.
    operations: u64,
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
            operations: 0,
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
                output.batch.devices = self.machine.devices();
                let batch = &output.batch;
                let is_empty = batch.parts.is_empty()
                    && batch.undecodable.is_empty()
                    && batch.lost.is_empty()
                    && batch.devices.is_empty();
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

    fn operate<'a>(
        &'a mut self,
        device: &'a str,
        command: &'a Command,
    ) -> Step<'a, Result<Value, WrapperError>> {
        Box::pin(async move {
            let failed = |text: &str| WrapperError::Command(text.to_owned());
            let called = self.machine.operate(device, command, now());
            let mut call = called.map_err(WrapperError::Command)?;
            self.operations += 1;
            call.publication.token = self.operations;
            let gone = || failed("the broker is not connected; the operation was not called");
            let connection = self.connection.as_ref().ok_or_else(gone)?;
            let orders = connection.orders.clone();
            let until = Instant::now() + OPERATION_TIME;
            let sent = orders.send(Order::Publish(call.publication.clone()));
            match tokio::time::timeout_at(until, sent).await {
                Ok(Ok(())) => self.follow_operation(&call, until).await,
                Ok(Err(_)) => Err(gone()),
                Err(_) => Err(failed(
                    "the broker accepts nothing; the operation was not called",
                )),
            }
        })
    }
}

impl<M: Machine> Follower<M> {
    /// Waits until the broker has the message of an operation, and a message shows what the device did. All that arrives
    /// meanwhile is kept for the next step.
    async fn follow_operation(
        &mut self,
        call: &Call,
        until: Instant,
    ) -> Result<Value, WrapperError> {
        let failed = |text: String| Err(WrapperError::Command(text));
        let (mut is_taken, mut arrived_bytes) = (false, 0);
        loop {
            let Some(connection) = &mut self.connection else {
                return failed("the connection to the broker has ended".to_owned());
            };
            let events = match tokio::time::timeout_at(until, connection.events.recv()).await {
                Ok(Some(events)) => events,
                Ok(None) => {
                    return failed(
                        "the connection has ended; the operation may be called".to_owned(),
                    );
                }
                Err(_) if is_taken => {
                    return failed(format!(
                        "the operation was sent, but no message of the device has confirmed it within {OPERATION_TIME:?}"
                    ));
                }
                Err(_) => {
                    return failed(format!(
                        "the broker has not acknowledged it within {OPERATION_TIME:?}; the operation may be called"
                    ));
                }
            };
            let (mut is_confirmed, mut refusal) = (false, None);
            for event in events {
                match &event {
                    Event::Published(token, outcome) if *token == self.operations => {
                        match outcome {
                            Outcome::Taken => is_taken = true,
                            Outcome::Refused(reason) | Outcome::Later(reason) => {
                                refusal = Some(format!("the broker refuses it: {reason}"));
                            }
                        }
                        continue;
                    }
                    Event::Message(message) => {
                        arrived_bytes += EVENT_BYTES + message.payload.len();
                        // A retained message was there before.
                        is_confirmed |= !message.is_retained
                            && call
                                .confirms
                                .as_ref()
                                .is_some_and(|confirms| confirms(message));
                    }
                    Event::Failed(_) => {
                        refusal = Some(
                            "the connection has ended; the operation may be called".to_owned(),
                        );
                    }
                    _ => {}
                }
                self.arrived.push_back(event);
            }
            if is_confirmed || (is_taken && call.confirms.is_none()) {
                return Ok(json!({ "acknowledged": is_taken, "confirmed": is_confirmed }));
            }
            if let Some(reason) = refusal {
                return failed(reason);
            }
            if arrived_bytes > ARRIVED_BYTES_MAX {
                return failed(
                    "the operation was sent, but too many other messages arrive to wait for its confirmation"
                        .to_owned(),
                );
            }
        }
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
