//! The machine of a session between nodes at one end of its connection.

use std::collections::VecDeque;

use bytes::Bytes;
use chappe_machine::{Input, Instant, Machine, Output, drain};

use super::{Connection, Network, Node, SendError};

/// A frame of a session, with its connection.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) connection: Connection,
    pub(crate) bytes: Bytes,
}

/// A machine of a session on its connection.
pub(crate) struct Line<M> {
    pub(crate) connection: Connection,
    pub(crate) machine: M,
    /// The key of the node's timer that is the session's.
    timer_key: u64,
    /// Frames that the connection had no room for.
    outbox: VecDeque<Bytes>,
    timer: Option<Instant>,
}

impl<M: Machine<Transmit = Bytes>> Line<M> {
    pub(crate) fn new(connection: Connection, machine: M, timer_key: u64) -> Self {
        Self {
            connection,
            machine,
            timer_key,
            outbox: VecDeque::new(),
            timer: None,
        }
    }

    /// Passes the machine an input; sends its frames and returns its events.
    pub(crate) fn drive(
        &mut self,
        network: &mut Network<Frame>,
        node: Node,
        input: Input<M::Receive, M::Command>,
    ) -> Vec<M::Event> {
        let mut events = Vec::new();
        let outbox = &mut self.outbox;
        let now = network.now();
        let deadline = drain(&mut self.machine, now, input, |output| match output {
            Output::Transmit(bytes) => outbox.push_back(bytes),
            Output::Event(event) => events.push(event),
        });
        self.flush(network, node);
        if let Some(at) = deadline
            && self.timer.is_none_or(|timer| at < timer || timer < now)
        {
            self.set_timer(network, node, at);
        }
        events
    }

    /// Whether the machine's deadline has passed; a timer for an earlier deadline is ignored.
    pub(crate) fn is_due(&mut self, network: &mut Network<Frame>, node: Node) -> bool {
        let now = network.now();
        self.timer = self.timer.filter(|timer| *timer > now);
        match self.machine.deadline() {
            Some(at) if at <= now => true,
            Some(at) if self.timer.is_none() => {
                self.set_timer(network, node, at);
                false
            }
            _ => false,
        }
    }

    fn set_timer(&mut self, network: &mut Network<Frame>, node: Node, at: Instant) {
        self.timer = Some(at);
        network.set_timer(node, at, self.timer_key);
    }

    /// Sends the frames that there is room for.
    pub(crate) fn flush(&mut self, network: &mut Network<Frame>, node: Node) {
        let connection = self.connection;
        while let Some(bytes) = self.outbox.pop_front() {
            let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let frame = Frame { connection, bytes };
            match network.write(node, connection, size, frame) {
                Ok(()) => {}
                Err(SendError::Full(frame)) => {
                    self.outbox.push_front(frame.bytes);
                    return;
                }
                Err(SendError::Closed(_)) => self.outbox.clear(),
            }
        }
    }
}
