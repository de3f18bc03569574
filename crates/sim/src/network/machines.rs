//! Machines on the raw network: one on each node, run by the one drain loop.

use chappe_machine::{Input, Instant, Machine, Output, drain};

use super::{Network, Node, Step};

/// What a machine's messages are on a network.
pub trait Wire: Machine {
    /// The content of a message.
    type Payload: Clone;
    /// The machine's input for a message.
    fn receive(from: Node, payload: Self::Payload) -> Self::Receive;
    /// The destination of a message, its size, and its content.
    fn transmit(transmit: Self::Transmit) -> (Node, u32, Self::Payload);
}

struct Slot<M> {
    machine: Option<M>,
    /// The earliest timer that is set for it.
    timer: Option<Instant>,
}

/// A machine on each node of a raw network.
pub struct Nodes<M: Wire> {
    /// The network; its links and nodes may be changed at any time.
    pub network: Network<M::Payload>,
    slots: Vec<Slot<M>>,
}

impl<M: Wire> Nodes<M> {
    /// Starts with an empty network.
    #[must_use]
    pub fn new(network: Network<M::Payload>) -> Self {
        Self {
            network,
            slots: Vec::new(),
        }
    }

    /// Adds a node with its machine. The machine is asked for its deadline; it acts on an input.
    pub fn add(&mut self, machine: M) -> Node {
        let node = self.network.add_node();
        self.slots.push(Slot {
            machine: None,
            timer: None,
        });
        self.put(node, machine);
        node
    }

    /// Replaces the machine of a node: a restart.
    pub fn put(&mut self, node: Node, machine: M) {
        let deadline = machine.deadline();
        let slot = &mut self.slots[node.0 as usize];
        slot.machine = Some(machine);
        slot.timer = None;
        self.set_deadline(node, deadline);
    }

    /// A node's machine.
    #[must_use]
    pub fn machine(&self, node: Node) -> Option<&M> {
        self.slots.get(node.0 as usize)?.machine.as_ref()
    }

    /// A node's machine, for preparation; its outputs appear with the next input.
    pub fn machine_mut(&mut self, node: Node) -> Option<&mut M> {
        self.slots.get_mut(node.0 as usize)?.machine.as_mut()
    }

    /// Passes an input to a node's machine, and its events to `heard`.
    pub fn input(
        &mut self,
        node: Node,
        input: Input<M::Receive, M::Command>,
        mut heard: impl FnMut(Instant, Node, M::Event),
    ) {
        let now = self.network.now();
        let Some(machine) = &mut self.slots[node.0 as usize].machine else {
            return;
        };
        let network = &mut self.network;
        let deadline = drain(machine, now, input, |output| match output {
            Output::Transmit(transmit) => {
                let (to, bytes, payload) = M::transmit(transmit);
                network.send(node, to, bytes, payload);
            }
            Output::Event(event) => heard(now, node, event),
        });
        self.set_deadline(node, deadline);
    }

    fn set_deadline(&mut self, node: Node, deadline: Option<Instant>) {
        let Some(at) = deadline else { return };
        let slot = &mut self.slots[node.0 as usize];
        // An early timeout is harmless; a later timer is set when the earlier one has passed.
        if slot.timer.is_none_or(|timer| at < timer) {
            slot.timer = Some(at);
            self.network.set_timer(node, at, at.as_nanos());
        }
    }

    /// Advances the time; events of the machines go to `heard`.
    pub fn run_until(&mut self, until: Instant, mut heard: impl FnMut(Instant, Node, M::Event)) {
        while let Some(step) = self.network.next(until) {
            match step {
                Step::Arrived {
                    node,
                    from,
                    payload,
                } => self.input(node, Input::Receive(M::receive(from, payload)), &mut heard),
                Step::Timer { node, key } => {
                    let slot = &mut self.slots[node.0 as usize];
                    if slot.timer != Some(Instant::from_nanos(key)) {
                        continue;
                    }
                    slot.timer = None;
                    self.input(node, Input::Timeout, &mut heard);
                }
                _ => {}
            }
        }
    }
}
