//! Connections: the behaviour of TCP as seen by a program, without packets.
//!
//! Each end sends on a *half*. A message on a half leaves when the rates allow it, is late by one
//! or more retransmission times when it is lost, and never overtakes an earlier one. Where a cut
//! holds it back, the half retries after growing pauses, as TCP does, so that healing is noticed
//! late. Bytes count against the sender's buffer until the other program has read them and the
//! acknowledgement is back; so a slow or stopped receiver holds its sender back, and lost
//! acknowledgements do the same.

use std::collections::VecDeque;
use std::time::Duration;

use chappe_machine::Instant;

use super::nodes::outgoing;
use super::{Event, Network, Node, State, Step};

/// A connection, by a unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection {
    slot: u32,
    generation: u32,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The other end closed it; everything it sent before has arrived.
    Ended,
    /// The other end or its host reset it; data in flight is lost.
    Reset,
    /// No program listens.
    Refused,
    /// The other end was silent for too long.
    TimedOut,
}

/// Why a message was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError<P> {
    /// The buffer is full: the message is returned; [`Step::Writable`] reports when to try again.
    Full(P),
    /// The connection has ended, or never was.
    Closed(P),
}

/// The limits of all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Bytes sent and not yet acknowledged: both ends' buffers together. Default 256 KiB.
    pub buffer_bytes: u64,
    /// Time limit for connecting. Default 20 s.
    pub connect_timeout: Duration,
    /// How long sent bytes may be unacknowledged. Default 15 min, as in Linux.
    pub silence_timeout: Duration,
    /// The first retransmission time. Default 200 ms.
    pub retry_first: Duration,
    /// The largest retransmission time. Default 2 min.
    pub retry_most: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            buffer_bytes: 256 * 1024,
            connect_timeout: Duration::from_secs(20),
            silence_timeout: Duration::from_secs(15 * 60),
            retry_first: Duration::from_millis(200),
            retry_most: Duration::from_secs(120),
        }
    }
}

/// A message in flight; without payload it is the end of the half.
#[derive(Debug)]
struct Flight<P> {
    /// The time of its arrival, once it has left.
    at: Instant,
    bytes: u32,
    payload: Option<P>,
}

#[derive(Debug)]
pub(super) struct Half<P> {
    /// On the wire, in order; one event each. All were sent before the stalled ones.
    in_flight: VecDeque<Flight<P>>,
    /// Held back by a cut.
    stalled: VecDeque<Flight<P>>,
    /// Bytes of messages that have arrived and were not read yet, one number each.
    arrived: VecDeque<u32>,
    /// Bytes sent and not acknowledged.
    outstanding: u64,
    /// Acknowledgements in flight.
    acknowledgements: VecDeque<(Instant, u64)>,
    /// Bytes read whose acknowledgement met a cut.
    unheard: u64,
    last_arrival: Instant,
    blocked: bool,
    attempts: u32,
    retries: bool,
    stuck_since: Instant,
}

impl<P> Half<P> {
    fn new() -> Self {
        Self {
            in_flight: VecDeque::new(),
            stalled: VecDeque::new(),
            arrived: VecDeque::new(),
            outstanding: 0,
            acknowledgements: VecDeque::new(),
            unheard: 0,
            last_arrival: Instant::ZERO,
            blocked: false,
            attempts: 0,
            retries: false,
            stuck_since: Instant::ZERO,
        }
    }

    fn settle(&mut self, now: Instant) {
        while let Some((at, bytes)) = self.acknowledgements.front().copied() {
            if at > now {
                break;
            }
            self.acknowledgements.pop_front();
            self.outstanding = self.outstanding.saturating_sub(bytes);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndState {
    Connecting,
    Open,
    Closed,
}

#[derive(Debug)]
struct End {
    node: Node,
    state: EndState,
}

#[derive(Debug)]
struct Pipe<P> {
    generation: u32,
    began: Instant,
    ends: [End; 2],
    halves: [Half<P>; 2],
}

impl<P> Pipe<P> {
    fn void(&self) -> bool {
        self.ends.iter().all(|end| end.state == EndState::Closed)
    }

    fn end_of(&self, node: Node) -> Option<u8> {
        // For a connection to itself, the connecting end.
        (0..2).find(|end| self.ends[usize::from(*end)].node == node)
    }
}

#[derive(Debug)]
pub(super) struct Connections<P> {
    pub(super) options: ConnectionOptions,
    slots: Vec<Option<Pipe<P>>>,
    free: Vec<u32>,
    generation: u32,
}

impl<P> Default for Connections<P> {
    fn default() -> Self {
        Self {
            options: ConnectionOptions::default(),
            slots: Vec::new(),
            free: Vec::new(),
            generation: 0,
        }
    }
}

impl<P> Connections<P> {
    fn pipe(&mut self, connection: Connection) -> Option<&mut Pipe<P>> {
        let pipe = self.slots.get_mut(connection.slot as usize)?.as_mut()?;
        (pipe.generation == connection.generation).then_some(pipe)
    }

    /// A node's connections, with the end that is the node's.
    pub(super) fn of(&self, node: Node) -> Vec<(Connection, u8)> {
        let find = |(slot, pipe): (usize, &Option<Pipe<P>>)| {
            let pipe = pipe.as_ref()?;
            let end = pipe.end_of(node)?;
            // A node that has not received the request yet has no connection.
            if end == 1 && pipe.ends[1].state == EndState::Connecting {
                return None;
            }
            let generation = pipe.generation;
            let slot = u32::try_from(slot).ok()?;
            Some((Connection { slot, generation }, end))
        };
        self.slots.iter().enumerate().filter_map(find).collect()
    }

    pub(super) fn forget_closed(&mut self) {
        for (slot, pipe) in self.slots.iter_mut().enumerate() {
            if pipe.as_ref().is_some_and(Pipe::void) {
                *pipe = None;
                self.free.push(slot as u32);
            }
        }
    }

    fn forget_if_void(&mut self, connection: Connection) {
        if self.pipe(connection).is_some_and(|pipe| pipe.void()) {
            self.slots[connection.slot as usize] = None;
            self.free.push(connection.slot);
        }
    }
}

impl<P> Network<P> {
    /// Sets the limits of connections.
    pub fn set_connection_options(&mut self, options: ConnectionOptions) {
        self.connections.options = options;
    }

    /// The number of connections, half-open ones included.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.slots.iter().flatten().count()
    }

    /// Begins to connect; [`Step::Opened`] or [`Step::Closed`] follows.
    ///
    /// # Panics
    /// If there are four thousand million connections.
    pub fn connect(&mut self, from: Node, to: Node) -> Connection {
        let table = &mut self.connections;
        table.generation = table.generation.wrapping_add(1);
        let generation = table.generation;
        let state = EndState::Connecting;
        let pipe = Pipe {
            generation,
            began: self.now,
            ends: [from, to].map(|node| End { node, state }),
            halves: [Half::new(), Half::new()],
        };
        let slot = match table.free.pop() {
            Some(slot) => slot,
            None => {
                table.slots.push(None);
                u32::try_from(table.slots.len() - 1).expect("fewer than 2^32 connections")
            }
        };
        table.slots[slot as usize] = Some(pipe);
        let connection = Connection { slot, generation };
        self.queue.put(self.now, Event::Syn(connection, 0));
        connection
    }

    /// The other end's node, while the connection is known.
    pub fn peer(&mut self, node: Node, connection: Connection) -> Option<Node> {
        let pipe = self.connections.pipe(connection)?;
        let end = pipe.end_of(node)?;
        Some(pipe.ends[usize::from(1 - end)].node)
    }

    /// Sends a message of this size over a connection.
    ///
    /// # Errors
    /// The buffer is full, or the connection has ended; the message is returned. A message larger
    /// than the whole buffer is accepted when the buffer is empty.
    pub fn write(
        &mut self,
        node: Node,
        connection: Connection,
        bytes: u32,
        payload: P,
    ) -> Result<(), SendError<P>> {
        let (now, limit) = (self.now, self.connections.options.buffer_bytes);
        let Some(pipe) = self.connections.pipe(connection) else {
            return Err(SendError::Closed(payload));
        };
        let Some(end) = pipe.end_of(node) else {
            return Err(SendError::Closed(payload));
        };
        if pipe.ends[usize::from(end)].state != EndState::Open {
            return Err(SendError::Closed(payload));
        }
        let half = outgoing(&mut pipe.halves, end);
        half.settle(now);
        if half.outstanding > 0 && half.outstanding + u64::from(bytes) > limit {
            half.blocked = true;
            let soon = half.acknowledgements.front().map(|(at, _)| *at);
            if let Some(at) = soon {
                self.queue.put(at, Event::Writable(connection, end));
            }
            self.counters.buffer_full += 1;
            return Err(SendError::Full(payload));
        }
        half.outstanding += u64::from(bytes);
        let flight = Flight {
            at: now,
            bytes,
            payload: Some(payload),
        };
        self.put_on_half(connection, end, flight);
        Ok(())
    }

    /// Bytes that an end has sent and the other program has not read, as far as this end knows.
    pub fn outstanding(&mut self, node: Node, connection: Connection) -> u64 {
        let now = self.now;
        let Some(pipe) = self.connections.pipe(connection) else {
            return 0;
        };
        let Some(end) = pipe.end_of(node) else {
            return 0;
        };
        let half = outgoing(&mut pipe.halves, end);
        half.settle(now);
        half.outstanding
    }

    /// Closes a connection: data sent earlier still arrives, then the other end is notified.
    pub fn close(&mut self, node: Node, connection: Connection) {
        let end = self
            .connections
            .pipe(connection)
            .and_then(|pipe| pipe.end_of(node));
        if let Some(end) = end {
            self.close_end(connection, end);
            self.connections.forget_if_void(connection);
        }
    }

    /// Resets a connection at both ends: data in flight is lost.
    pub fn reset(&mut self, connection: Connection) {
        for end in 0..2 {
            let event = Event::Close(connection, end, CloseReason::Reset);
            self.queue.put(self.now, event);
        }
    }

    /// Resets a connection between two nodes; false if there is none.
    pub fn reset_between(&mut self, one: Node, other: Node) -> bool {
        let mut found = false;
        for (connection, end) in self.connections.of(one) {
            let joins = self
                .nodes_of(connection, end)
                .is_some_and(|(_, to)| to == other);
            if joins {
                self.reset(connection);
                found = true;
            }
        }
        found
    }

    pub(super) fn close_end(&mut self, connection: Connection, end: u8) {
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let it = &mut pipe.ends[usize::from(end)];
        let was = it.state;
        it.state = EndState::Closed;
        match was {
            EndState::Open => {
                let flight = Flight {
                    at: Instant::ZERO,
                    bytes: 0,
                    payload: None,
                };
                self.put_on_half(connection, end, flight);
            }
            EndState::Connecting => pipe.ends[usize::from(1 - end)].state = EndState::Closed,
            EndState::Closed => {}
        }
    }

    /// The end's host resets: the other end is notified if it can be reached.
    pub(super) fn abort_end(&mut self, connection: Connection, end: u8) {
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let it = &mut pipe.ends[usize::from(end)];
        let was = std::mem::replace(&mut it.state, EndState::Closed);
        if was == EndState::Connecting {
            pipe.ends[usize::from(1 - end)].state = EndState::Closed;
            return;
        }
        let half = outgoing(&mut pipe.halves, end);
        half.in_flight.clear();
        half.stalled.clear();
        if was == EndState::Open {
            self.tell(connection, 1 - end, CloseReason::Reset);
        }
    }

    /// The end's host loses power.
    pub(super) fn vanish(&mut self, connection: Connection, end: u8) {
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        if pipe.ends[usize::from(end)].state == EndState::Connecting && end == 0 {
            pipe.ends[1].state = EndState::Closed;
        }
        pipe.ends[usize::from(end)].state = EndState::Closed;
        let half = outgoing(&mut pipe.halves, end);
        half.in_flight.clear();
        half.stalled.clear();
    }

    /// Notifies one end that the connection is over, when the other's notification reaches it.
    fn tell(&mut self, connection: Connection, end: u8, reason: CloseReason) {
        let Some((sender, receiver)) = self.nodes_of(connection, 1 - end) else {
            return;
        };
        if self.open(sender, receiver) {
            let link = *self.link(sender, receiver);
            let at = self.now + link.latency.draw(&mut self.random);
            self.queue.put(at, Event::Close(connection, end, reason));
        }
    }

    /// The sender and the receiver on the half of an end.
    fn nodes_of(&mut self, connection: Connection, end: u8) -> Option<(Node, Node)> {
        let pipe = self.connections.pipe(connection)?;
        let node = |end: u8| pipe.ends[usize::from(end)].node;
        Some((node(end), node(1 - end)))
    }

    fn put_on_half(&mut self, connection: Connection, end: u8, flight: Flight<P>) {
        let Some((from, to)) = self.nodes_of(connection, end) else {
            return;
        };
        let open = self.open(from, to);
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let half = outgoing(&mut pipe.halves, end);
        if open && half.stalled.is_empty() {
            self.transmit(connection, end, flight);
        } else {
            half.stalled.push_back(flight);
            self.stall(connection, end);
        }
    }

    /// A message leaves on an open direction.
    fn transmit(&mut self, connection: Connection, end: u8, mut flight: Flight<P>) {
        let Some((from, to)) = self.nodes_of(connection, end) else {
            return;
        };
        let link = *self.link(from, to);
        let left = self.leave(from, to, flight.bytes, true).unwrap_or(self.now);
        let mut at = left + link.latency.draw(&mut self.random);
        let mut again = self.connections.options.retry_first;
        while link.loss > 0.0 && self.random.f64() < link.loss.min(0.99) {
            at += again;
            again = (again * 2).min(self.connections.options.retry_most);
            self.counters.sent_again += 1;
        }
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let half = outgoing(&mut pipe.halves, end);
        half.last_arrival = half.last_arrival.max(at);
        let at = half.last_arrival;
        flight.at = at;
        half.in_flight.push_back(flight);
        self.queue.put(at, Event::Flight(connection, end));
    }

    /// Data on the half waits for a cut to heal.
    fn stall(&mut self, connection: Connection, end: u8) {
        let (now, first) = (self.now, self.connections.options.retry_first);
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let half = outgoing(&mut pipe.halves, end);
        if !half.retries {
            half.retries = true;
            half.attempts = 0;
            half.stuck_since = now;
            self.counters.stalled += 1;
            self.queue.put(now + first, Event::Retry(connection, end));
        }
    }

    pub(super) fn flight(&mut self, connection: Connection, end: u8) {
        let Some((from, to)) = self.nodes_of(connection, end) else {
            return;
        };
        let (now, open, host) = (self.now, self.open(from, to), self.state(to).state);
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let over = pipe.ends[usize::from(1 - end)].state == EndState::Closed;
        let half = outgoing(&mut pipe.halves, end);
        // Absent: it was held back, its sender lost its power, or the half was reset.
        if half.in_flight.front().is_none_or(|flight| flight.at > now) {
            return;
        }
        let Some(flight) = half.in_flight.pop_front() else {
            return;
        };
        if !open || host == State::Off {
            // Everything after it waits too, before data sent later: the order stays.
            half.in_flight.push_front(flight);
            half.in_flight.append(&mut half.stalled);
            std::mem::swap(&mut half.in_flight, &mut half.stalled);
            self.stall(connection, end);
        } else if over {
            self.tell(connection, end, CloseReason::Reset);
        } else if let Some(payload) = flight.payload {
            half.arrived.push_back(flight.bytes);
            let node = to;
            self.counters.received += 1;
            self.offer(
                Step::Received {
                    node,
                    connection,
                    payload,
                },
                0,
            );
        } else {
            let (node, reason) = (to, CloseReason::Ended);
            self.offer(
                Step::Closed {
                    node,
                    connection,
                    reason,
                },
                0,
            );
        }
    }

    pub(super) fn retry(&mut self, connection: Connection, end: u8) {
        let (now, options) = (self.now, self.connections.options);
        let Some((from, to)) = self.nodes_of(connection, end) else {
            return;
        };
        let there = self.open(from, to) && self.state(to).state != State::Off;
        let back = self.open(to, from);
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let over = pipe.ends[usize::from(1 - end)].state == EndState::Closed;
        let mine = pipe.ends[usize::from(end)].state;
        let half = outgoing(&mut pipe.halves, end);
        half.retries = false;
        if half.stalled.is_empty() && half.unheard == 0 {
            return;
        }
        if there && over {
            self.tell(connection, end, CloseReason::Reset);
            // Without the notification, it continues to try.
            if back {
                return;
            }
        } else if there {
            let stalled = std::mem::take(&mut half.stalled);
            let unheard = if back {
                std::mem::take(&mut half.unheard)
            } else {
                0
            };
            for flight in stalled {
                self.transmit(connection, end, flight);
            }
            if unheard > 0 {
                self.acknowledge(connection, end, unheard);
            }
        }
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let half = outgoing(&mut pipe.halves, end);
        if half.stalled.is_empty() && half.unheard == 0 {
            return;
        }
        if now - half.stuck_since >= options.silence_timeout {
            half.stalled.clear();
            if mine == EndState::Open {
                let event = Event::Close(connection, end, CloseReason::TimedOut);
                self.queue.put(now, event);
            }
            return;
        }
        half.retries = true;
        half.attempts += 1;
        let pause = options
            .retry_first
            .saturating_mul(1 << half.attempts.min(20));
        let at = now + pause.min(options.retry_most);
        self.queue.put(at, Event::Retry(connection, end));
    }

    /// The program at the other end has read bytes of an end's half.
    fn acknowledge(&mut self, connection: Connection, end: u8, bytes: u64) {
        let Some((from, to)) = self.nodes_of(connection, end) else {
            return;
        };
        let open = self.open(to, from);
        let link = *self.link(to, from);
        let at = self.now + link.latency.draw(&mut self.random);
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let half = outgoing(&mut pipe.halves, end);
        if !open {
            half.unheard += bytes;
            self.stall(connection, end);
            return;
        }
        let at = half
            .acknowledgements
            .back()
            .map_or(at, |(last, _)| at.max(*last));
        half.acknowledgements.push_back((at, bytes));
        if half.blocked && half.acknowledgements.len() == 1 {
            self.queue.put(at, Event::Writable(connection, end));
        }
    }

    pub(super) fn writable(&mut self, connection: Connection, end: u8) {
        let now = self.now;
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let node = pipe.ends[usize::from(end)].node;
        let open = pipe.ends[usize::from(end)].state == EndState::Open;
        let half = outgoing(&mut pipe.halves, end);
        half.settle(now);
        if half.blocked && open {
            half.blocked = false;
            self.offer(Step::Writable { node, connection }, 0);
        }
    }

    pub(super) fn syn(&mut self, connection: Connection, attempt: u32) {
        let Some((from, to)) = self.nodes_of(connection, 0) else {
            return;
        };
        let (began, state) = match self.connections.pipe(connection) {
            Some(pipe) => (pipe.began, pipe.ends[0].state),
            None => return,
        };
        if state != EndState::Connecting {
            return;
        }
        let (forth, back) = (*self.link(from, to), *self.link(to, from));
        let lost = |random: &mut fastrand::Rng, share: f64| share > 0.0 && random.f64() < share;
        let passes = self.open(from, to)
            && self.open(to, from)
            && self.state(to).state != State::Off
            && !lost(&mut self.random, forth.loss)
            && !lost(&mut self.random, back.loss);
        if passes {
            let at = self.now + forth.latency.draw(&mut self.random);
            self.queue.put(at, Event::SynArrives(connection));
        } else if self.now - began >= self.connections.options.connect_timeout {
            let event = Event::Close(connection, 0, CloseReason::TimedOut);
            self.queue.put(self.now, event);
        } else {
            let pause = Duration::from_secs(1 << attempt.min(5));
            let event = Event::Syn(connection, attempt + 1);
            self.queue.put(self.now + pause, event);
        }
    }

    pub(super) fn syn_arrives(&mut self, connection: Connection) {
        let Some((from, to)) = self.nodes_of(connection, 0) else {
            return;
        };
        let latency = self.link(to, from).latency.draw(&mut self.random);
        let at = self.now + latency;
        let host = self.state(to).state;
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        if pipe.ends[0].state != EndState::Connecting {
            return;
        }
        match host {
            State::Up => {
                pipe.ends[1].state = EndState::Open;
                pipe.halves[1].last_arrival = at;
                self.queue.put(at, Event::SynAnswered(connection));
                let node = to;
                self.offer(
                    Step::Accepted {
                        node,
                        connection,
                        from,
                    },
                    0,
                );
            }
            State::Killed => {
                let event = Event::Close(connection, 0, CloseReason::Refused);
                self.queue.put(at, event);
            }
            State::Off => self.queue.put(at, Event::Syn(connection, 1)),
        }
    }

    pub(super) fn syn_answered(&mut self, connection: Connection) {
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        if pipe.ends[0].state != EndState::Connecting {
            return;
        }
        pipe.ends[0].state = EndState::Open;
        let node = pipe.ends[0].node;
        self.counters.opened += 1;
        self.offer(Step::Opened { node, connection }, 0);
    }

    pub(super) fn close_arrives(&mut self, connection: Connection, end: u8, reason: CloseReason) {
        let Some(pipe) = self.connections.pipe(connection) else {
            return;
        };
        let node = pipe.ends[usize::from(end)].node;
        if pipe.ends[usize::from(end)].state == EndState::Closed {
            return;
        }
        // Data in flight to this end is void.
        let half = outgoing(&mut pipe.halves, 1 - end);
        half.in_flight.clear();
        half.stalled.clear();
        self.offer(
            Step::Closed {
                node,
                connection,
                reason,
            },
            0,
        );
    }

    /// Applies a returned step to its connection; `None` if it has become void.
    pub(super) fn connection_step(&mut self, step: Step<P>) -> Option<Step<P>> {
        match &step {
            Step::Arrived { .. } | Step::Timer { .. } => {}
            Step::Accepted {
                node, connection, ..
            }
            | Step::Opened { node, connection }
            | Step::Writable { node, connection } => {
                let pipe = self.connections.pipe(*connection)?;
                let end = pipe.end_of(*node)?;
                if pipe.ends[usize::from(end)].state != EndState::Open {
                    return None;
                }
            }
            Step::Received {
                node, connection, ..
            } => {
                let pipe = self.connections.pipe(*connection)?;
                let end = pipe.end_of(*node)?;
                let half = outgoing(&mut pipe.halves, 1 - end);
                let bytes = half.arrived.pop_front().unwrap_or(0);
                if pipe.ends[usize::from(end)].state != EndState::Open {
                    return None;
                }
                self.acknowledge(*connection, 1 - end, u64::from(bytes));
            }
            Step::Closed {
                node,
                connection,
                reason,
            } => {
                let pipe = self.connections.pipe(*connection)?;
                let end = pipe.end_of(*node)?;
                let it = &mut pipe.ends[usize::from(end)];
                if it.state == EndState::Closed {
                    return None;
                }
                it.state = EndState::Closed;
                match reason {
                    CloseReason::Refused => self.counters.refused += 1,
                    CloseReason::Reset => self.counters.reset += 1,
                    CloseReason::TimedOut => self.counters.timed_out += 1,
                    CloseReason::Ended => {}
                }
                // A node that never received the request has no connection.
                let refused = end == 0 && *reason != CloseReason::Ended;
                if refused && pipe.ends[usize::from(1 - end)].state == EndState::Connecting {
                    pipe.ends[usize::from(1 - end)].state = EndState::Closed;
                }
                self.connections.forget_if_void(*connection);
            }
        }
        Some(step)
    }
}
