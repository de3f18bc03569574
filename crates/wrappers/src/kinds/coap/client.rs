//! A client that observes resources of one server, without input and output: registrations and their refresh (RFC 7641),
//! polling of resources that cannot be observed, transfers in blocks (RFC 7959), retransmission and deduplication (RFC 7252,
//! section 4). One request is on its way at a time, as NSTART demands (section 4.7).

use std::collections::VecDeque;
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output};
use coap_lite::{MessageClass, MessageType, ResponseType};
use ring::digest::{SHA256, digest};

use super::message::{Block, Received, Response, TOKEN_BYTES, Target, Token, empty, get, read};
use super::seen::{Reply, Seen};

/// Time to the first retransmission; the pauses double (RFC 7252, section 4.8).
const ACK_TIMEOUT: Duration = Duration::from_secs(2);
/// Retransmissions of a request (section 4.8).
const RETRANSMIT_MAX: u32 = 4;
/// Time to wait for a response that comes apart from the acknowledgement. 30 s: a server that computes longer is silent.
const RESPONSE_TIME: Duration = Duration::from_secs(30);
/// Time after which any sequence number is newer (RFC 7641, section 3.4).
const SEQUENCE_TIME: Duration = Duration::from_secs(128);
/// Longest representation. 1 MiB, the longest that is decoded.
pub(super) const BODY_MAX: usize = 1 << 20;
/// How often a transfer begins again because the representation changed; reason: one that always changes is never whole.
const RESTARTS_MAX: u32 = 3;
/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// Shortest time between two registrations; reason: a server may say that its state is old at once.
const REFRESH_MIN: Duration = Duration::from_secs(1);

/// The beginning of the checksum of a state; reason: the mark has one for each resource.
pub type Sum = [u8; 8];

/// An event for the wrapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A new state of a resource.
    State {
        /// The number of the resource, in the order of the targets.
        resource: usize,
        /// Its representation.
        body: Vec<u8>,
        /// The content format that the server names.
        content_format: Option<u16>,
        /// The message that is acknowledged once the state is stored.
        acknowledge: Option<u16>,
        /// The checksum of the body.
        sum: Sum,
        /// Whether the body is only a beginning.
        is_cut: bool,
    },
    /// A state of a resource that is not stored.
    Lost {
        /// The number of the resource.
        resource: usize,
        /// Why, as a label of a metric.
        reason: &'static str,
    },
    /// A resource cannot be read now.
    Problem {
        /// The number of the resource.
        resource: usize,
        /// Why.
        text: String,
    },
    /// A resource answers.
    Working {
        /// The number of the resource.
        resource: usize,
    },
}

/// How resources are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Time between two requests for a resource that cannot be observed.
    pub poll: Duration,
    /// Time without a notification after which a resource is registered again.
    pub silence: Duration,
}

#[derive(Debug)]
struct Resource {
    target: Target,
    token: Token,
    /// Sequence number and arrival of the newest notification.
    newest: Option<(u32, Instant)>,
    /// When it is registered or asked for.
    due: Instant,
    /// The checksum of the newest state.
    state: Option<Sum>,
    transfer: Option<Transfer>,
    failures: u32,
    restarts: u32,
}

/// A representation that comes in blocks.
#[derive(Debug)]
struct Transfer {
    token: Token,
    etag: Option<Vec<u8>>,
    content_format: Option<u16>,
    body: Vec<u8>,
    exponent: u8,
    is_notification: bool,
}

/// The request that is on its way.
#[derive(Debug)]
struct Exchange {
    resource: usize,
    is_block: bool,
    id: u16,
    token: Token,
    bytes: Vec<u8>,
    started: Instant,
    /// When it is sent again, or given up.
    due: Instant,
    pause: Duration,
    sent: u32,
    is_acknowledged: bool,
    /// A response with its token came, which may be a notification.
    is_answered: bool,
}

/// The client.
#[derive(Debug)]
pub struct Client {
    seed: [u8; 32],
    numbers: u64,
    next_id: u16,
    pace: Pace,
    resources: Vec<Resource>,
    exchange: Option<Exchange>,
    seen: Seen,
    outputs: VecDeque<Output<Vec<u8>, Event>>,
}

impl Client {
    /// A client for these resources, which it registers with the first [`Input::Timeout`]. The seed must be secret: tokens are
    /// made of it.
    pub fn new(targets: Vec<Target>, pace: Pace, seed: [u8; 32]) -> Self {
        let mut client = Self {
            seed,
            numbers: 0,
            next_id: 0,
            pace,
            resources: Vec::new(),
            exchange: None,
            seen: Seen::default(),
            outputs: VecDeque::new(),
        };
        client.next_id = client.random() as u16;
        for target in targets {
            let token = client.token();
            client.resources.push(Resource {
                target,
                token,
                newest: None,
                due: Instant::ZERO,
                state: None,
                transfer: None,
                failures: 0,
                restarts: 0,
            });
        }
        client
    }

    /// The checksums of the states that are stored. An answer with one of them is nothing new.
    pub fn known(&mut self, sums: impl IntoIterator<Item = Option<Sum>>) {
        for (resource, sum) in self.resources.iter_mut().zip(sums) {
            resource.state = sum;
        }
    }

    /// 64 bits that only one who knows the seed can foretell.
    fn random(&mut self) -> u64 {
        self.numbers += 1;
        let input = [&self.seed[..], &self.numbers.to_be_bytes()].concat();
        let sum = digest(&SHA256, &input);
        let first = sum.as_ref().first_chunk().copied().unwrap_or_default();
        u64::from_be_bytes(first)
    }

    fn token(&mut self) -> Token {
        self.random().to_be_bytes()
    }

    /// A part of a time between two shares of 1,024.
    fn share(&mut self, time: Duration, from: u32, to: u32) -> Duration {
        let share = from + (self.random() % u64::from(to - from + 1)) as u32;
        time / 1_024 * share
    }

    fn send(&mut self, bytes: Vec<u8>) {
        self.outputs.push_back(Output::Transmit(bytes));
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Begins the next request that is due, if none is on its way.
    fn advance(&mut self, now: Instant) {
        if self.exchange.is_some() {
            return;
        }
        // A transfer goes on before another resource is asked for.
        let transfer = self.resources.iter().position(|it| it.transfer.is_some());
        let due = self
            .resources
            .iter()
            .enumerate()
            .filter(|(_, it)| it.due <= now);
        let due = due.min_by_key(|(_, it)| it.due).map(|(index, _)| index);
        let Some(resource) = transfer.or(due) else {
            return;
        };
        let own = &self.resources[resource];
        let (token, block) = match &own.transfer {
            None => (own.token, None),
            Some(transfer) => {
                let block = Block {
                    number: (transfer.body.len() >> (transfer.exponent + 4)) as u32,
                    has_more: false,
                    exponent: transfer.exponent,
                };
                (transfer.token, Some(block))
            }
        };
        self.next_id = self.next_id.wrapping_add(1);
        let id = self.next_id;
        let bytes = get(id, &token, &own.target, block);
        // ACK_RANDOM_FACTOR is 1.5.
        let pause = self.share(ACK_TIMEOUT, 1_024, 1_536);
        self.exchange = Some(Exchange {
            resource,
            is_block: block.is_some(),
            id,
            token,
            bytes: bytes.clone(),
            started: now,
            due: now + pause,
            pause,
            sent: 0,
            is_acknowledged: false,
            is_answered: false,
        });
        self.send(bytes);
    }

    /// The time of an exchange has passed.
    fn timeout(&mut self, now: Instant) {
        let Some(exchange) = self.exchange.as_mut().filter(|it| it.due <= now) else {
            return;
        };
        if !exchange.is_acknowledged && exchange.sent < RETRANSMIT_MAX {
            exchange.sent += 1;
            exchange.pause *= 2;
            exchange.due = now + exchange.pause;
            let bytes = exchange.bytes.clone();
            return self.send(bytes);
        }
        let (resource, is_answered) = (exchange.resource, exchange.is_answered);
        self.exchange = None;
        if !is_answered {
            self.fail(now, resource, "the server does not answer".to_owned());
        }
    }

    /// A resource cannot be read: it is registered again, as one that the server does not know.
    fn fail(&mut self, now: Instant, resource: usize, text: String) {
        let token = self.token();
        let own = &mut self.resources[resource];
        let was_in_transfer = own.transfer.take().is_some();
        // An answer to a request under the former token would be that of an observation that is given up.
        self.exchange.take_if(|it| it.resource == resource);
        (own.token, own.newest) = (token, None);
        let pause = PAUSES.0 * 2_u32.saturating_pow(own.failures.min(16));
        own.failures += 1;
        own.due = now + pause.min(PAUSES.1);
        if was_in_transfer {
            let reason = "incomplete";
            self.tell(Event::Lost { resource, reason });
        }
        self.tell(Event::Problem { resource, text });
    }

    fn receive(&mut self, now: Instant, datagram: &[u8]) {
        // What is no message is dropped without a reply (RFC 7252, section 3).
        let Some(received) = read(datagram) else {
            return;
        };
        match received.message_type {
            MessageType::Acknowledgement | MessageType::Reset => self.reply(now, received),
            MessageType::Confirmable | MessageType::NonConfirmable => self.message(now, received),
        }
    }

    /// An acknowledgement or a reset.
    fn reply(&mut self, now: Instant, received: Received) {
        let Some(exchange) = self.exchange.as_mut().filter(|it| it.id == received.id) else {
            return;
        };
        let resource = exchange.resource;
        if received.message_type == MessageType::Reset {
            self.exchange = None;
            return self.fail(
                now,
                resource,
                "the server does not take the request".to_owned(),
            );
        }
        if received.class == MessageClass::Empty {
            exchange.is_acknowledged = true;
            exchange.due = now + RESPONSE_TIME;
            if exchange.is_answered {
                self.exchange = None;
            }
            return;
        }
        if received.token != exchange.token {
            return;
        }
        let (is_block, started) = (exchange.is_block, exchange.started);
        self.exchange = None;
        match is_block {
            true => self.block(now, resource, received),
            false => self.state(now, resource, received, Source::Answer(started)),
        }
    }

    /// A confirmable or non-confirmable message: a notification, or a response that comes apart.
    fn message(&mut self, now: Instant, received: Received) {
        let is_confirmable = received.message_type == MessageType::Confirmable;
        if let Some(reply) = self.seen.repeated(now, received.id) {
            if let Reply::Sent(message_type) = reply {
                self.send(empty(message_type, received.id));
            }
            return;
        }
        let of_token = |token: &Token| *token == received.token[..];
        let is_response = matches!(received.class, MessageClass::Response(_));
        let exchange = self
            .exchange
            .as_ref()
            .filter(|it| is_response && of_token(&it.token));
        if let Some(exchange) = exchange.filter(|it| it.is_block) {
            let resource = exchange.resource;
            self.exchange = None;
            if is_confirmable {
                self.answer(received.id, MessageType::Acknowledgement);
            }
            return self.block(now, resource, received);
        }
        let awaited = exchange.filter(|it| it.is_acknowledged);
        let awaited = awaited.map(|it| it.started);
        let resource = self
            .resources
            .iter()
            .position(|it| is_response && of_token(&it.token));
        let Some(resource) = resource else {
            // The server forgets an observation that this client does not know (RFC 7641, section 3.6).
            if is_confirmable || is_response {
                self.answer(received.id, MessageType::Reset);
            }
            return;
        };
        if awaited.is_some() {
            self.exchange = None;
        } else if let Some(exchange) = self.exchange.as_mut().filter(|it| of_token(&it.token)) {
            exchange.is_answered = true;
        }
        let acknowledge = is_confirmable.then_some(received.id);
        let source = match awaited {
            Some(started) => Source::Separate(started, acknowledge),
            None => Source::Notification(acknowledge),
        };
        self.state(now, resource, received, source);
    }

    /// Sends an empty reply to a message, and again if that is repeated.
    fn answer(&mut self, id: u16, message_type: MessageType) {
        self.seen.replied(id, message_type);
        self.send(empty(message_type, id));
    }

    /// Acknowledges a message at once, if it needs that.
    fn acknowledge(&mut self, source: Source) {
        if let Source::Separate(_, Some(id)) | Source::Notification(Some(id)) = source {
            self.answer(id, MessageType::Acknowledgement);
        }
    }

    /// A response about the state of a resource.
    fn state(&mut self, now: Instant, resource: usize, received: Received, source: Source) {
        let response = match checked(&received) {
            Ok(response) => response,
            Err(text) => {
                self.acknowledge(source);
                return self.fail(now, resource, text);
            }
        };
        let silence = self.pace.silence;
        let pause = match response.observe {
            None => self.pace.poll,
            // Before the state is too old, as the server says it (RFC 7641, section 3.3.1).
            Some(_) => self
                .share(response.max_age.min(silence), 819, 973)
                .max(REFRESH_MIN),
        };
        let own = &mut self.resources[resource];
        let is_notification = matches!(source, Source::Notification(_));
        if !is_notification {
            (own.due, own.failures) = (now + pause, 0);
        }
        // An answer is the newest state, unless a notification came after the request. Its number may be lower: a server that
        // was started again counts from the beginning.
        let is_compared = |at: Instant| match source {
            Source::Notification(_) => true,
            Source::Answer(started) | Source::Separate(started, _) => at >= started,
        };
        let mut is_numbered_again = false;
        if let Some((sequence, (newest, at))) = response.observe.zip(own.newest)
            && !is_newer(sequence, newest, now.saturating_since(at))
        {
            if is_compared(at) {
                self.acknowledge(source);
                // An answer and a notification may tell the same state.
                if sequence != newest {
                    let reason = "reordered";
                    self.tell(Event::Lost { resource, reason });
                }
                return;
            }
            is_numbered_again = sequence != newest;
        }
        own.newest = response.observe.map(|sequence| (sequence, now));
        (own.due, own.failures) = (now + pause, 0);
        if is_numbered_again {
            // Notifications from before cannot be told from later ones by their numbers, only by their token: the resource is
            // registered under another one.
            let token = self.token();
            let own = &mut self.resources[resource];
            (own.token, own.newest, own.due) = (token, None, now);
        }
        let own = &mut self.resources[resource];
        if own.transfer.take().is_some() {
            // A newer state came while an older one was read.
            let reason = "incomplete";
            self.tell(Event::Lost { resource, reason });
            self.end_block(resource);
        }
        self.tell(Event::Working { resource });
        match response.block {
            Some(Block {
                number: 0,
                has_more: true,
                exponent,
            }) => {
                self.acknowledge(source);
                let token = self.token();
                let own = &mut self.resources[resource];
                own.transfer = Some(Transfer {
                    token,
                    etag: response.etag,
                    content_format: response.content_format,
                    body: response.payload,
                    exponent,
                    is_notification,
                });
            }
            Some(Block { number: 1.., .. }) => {
                self.acknowledge(source);
                self.fail(
                    now,
                    resource,
                    "the server begins in the middle of a state".to_owned(),
                );
            }
            _ => self.whole(
                resource,
                response.payload,
                response.content_format,
                source,
                false,
            ),
        }
    }

    /// Ends the request for a block of a transfer that is over.
    fn end_block(&mut self, resource: usize) {
        let is_own = |it: &Exchange| it.is_block && it.resource == resource;
        if self.exchange.as_ref().is_some_and(is_own) {
            self.exchange = None;
        }
    }

    /// The state of a resource is there.
    fn whole(
        &mut self,
        resource: usize,
        body: Vec<u8>,
        content_format: Option<u16>,
        source: Source,
        is_cut: bool,
    ) {
        let sum = digest(&SHA256, &body)
            .as_ref()
            .first_chunk()
            .copied()
            .unwrap_or_default();
        let own = &mut self.resources[resource];
        own.restarts = 0;
        let is_same = own.state.replace(sum) == Some(sum);
        if is_same && !matches!(source, Source::Notification(_)) {
            return self.acknowledge(source);
        }
        let acknowledge = match source {
            Source::Answer(_) => None,
            Source::Separate(_, id) | Source::Notification(id) => id,
        };
        self.tell(Event::State {
            resource,
            body,
            content_format,
            acknowledge,
            sum,
            is_cut,
        });
    }

    /// A block of a transfer.
    fn block(&mut self, now: Instant, resource: usize, received: Received) {
        let response = match checked(&received) {
            Ok(response) => response,
            Err(text) => return self.fail(now, resource, text),
        };
        let own = &mut self.resources[resource];
        let Some(transfer) = &mut own.transfer else {
            return;
        };
        if response.etag != transfer.etag {
            own.restarts += 1;
            own.transfer = None;
            if own.restarts > RESTARTS_MAX {
                let text = "the state changes faster than it can be read".to_owned();
                let reason = "incomplete";
                self.tell(Event::Lost { resource, reason });
                return self.fail(now, resource, text);
            }
            // Registered again under its token, it comes from its first block.
            own.due = now;
            return;
        }
        let fits = |block: &Block| {
            let start = (block.number as usize).checked_mul(block.size());
            let is_full = response.payload.len() == block.size();
            start == Some(transfer.body.len()) && (is_full || !block.has_more)
        };
        let Some(block) = response.block.filter(fits) else {
            return self.fail(now, resource, "the server sends another block".to_owned());
        };
        transfer.exponent = block.exponent;
        transfer.body.extend(&response.payload);
        let is_cut = transfer.body.len() > BODY_MAX;
        if (!block.has_more || is_cut)
            && let Some(transfer) = own.transfer.take()
        {
            let source = match transfer.is_notification {
                true => Source::Notification(None),
                false => Source::Answer(now),
            };
            self.whole(
                resource,
                transfer.body,
                transfer.content_format,
                source,
                is_cut,
            );
        }
    }
}

/// Where a state comes from, and the identifier of a message that needs an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The acknowledgement of a request that was first sent then.
    Answer(Instant),
    /// A message after the acknowledgement of a request.
    Separate(Instant, Option<u16>),
    Notification(Option<u16>),
}

/// The response of a message.
fn checked(received: &Received) -> Result<Response, String> {
    if received.class != MessageClass::Response(ResponseType::Content) {
        let text = received
            .response
            .as_ref()
            .map(|response| response.payload.clone());
        let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
        let text: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
        return Err(match text.is_empty() {
            true => format!("the server answers {}", received.class),
            false => format!("the server answers {}: {text}", received.class),
        });
    }
    received.response.clone().map_err(str::to_owned)
}

/// Whether a sequence number that came so much later is newer (RFC 7641, section 3.4).
fn is_newer(sequence: u32, newest: u32, later: Duration) -> bool {
    let half = 1 << 23;
    (newest < sequence && sequence - newest < half)
        || (newest > sequence && newest - sequence > half)
        || later > SEQUENCE_TIME
}

impl Machine for Client {
    type Receive = Vec<u8>;
    /// The state that came with this message is stored.
    type Command = u16;
    type Transmit = Vec<u8>;
    type Event = Event;

    fn handle_input(&mut self, now: Instant, input: Input<Vec<u8>, u16>) {
        match input {
            Input::Receive(datagram) => self.receive(now, &datagram),
            Input::Command(id) => self.answer(id, MessageType::Acknowledgement),
            Input::Timeout => self.timeout(now),
        }
        self.advance(now);
    }

    fn poll_output(&mut self) -> Option<Output<Vec<u8>, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.exchange {
            Some(exchange) => Some(exchange.due),
            None => self.resources.iter().map(|it| it.due).min(),
        }
    }
}

const _: () = assert!(TOKEN_BYTES == size_of::<u64>());
