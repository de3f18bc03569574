//! The contract of all protocol machines, and small parts that several of them share.
//!
//! A machine is protocol logic without I/O: its inputs are arrivals and the time, its outputs are
//! messages to send, events and the next deadline. The same machine runs on real sockets
//! (`chappe-transport`) and on the virtual networks of the tests.
//!
//! # The contract
//!
//! 1. Time is an argument. [`Instant`] is a point on a monotonic line whose origin the driver
//!    chooses; a machine never reads a clock. `now` never decreases between two calls.
//! 2. Randomness is a seed, passed when the machine is created.
//! 3. After each [`Machine::handle_input`] the driver calls [`Machine::poll_output`] until `None`.
//!    A machine may rely on being drained, and must reach `None` after finitely many outputs.
//! 4. [`Machine::deadline`], read after the drain, is the machine's one next deadline; `None` means
//!    that only an input makes it act. When it has passed, the driver passes [`Input::Timeout`]; an
//!    early one is harmless.
//!
//! [`drain`] is that loop, written once.
//!
//! # Example
//!
//! ```
//! use chappe_machine::{Input, Instant, Machine, Output, drain};
//! use std::time::Duration;
//!
//! /// Answers each number with its double, and reports silence after a second.
//! #[derive(Default)]
//! struct Doubler { replies: Vec<u32>, silent_at: Option<Instant>, silent: bool }
//!
//! impl Machine for Doubler {
//!     type Receive = u32;
//!     type Command = ();
//!     type Transmit = u32;
//!     type Event = &'static str;
//!     fn handle_input(&mut self, now: Instant, input: Input<u32, ()>) {
//!         match input {
//!             Input::Receive(number) => {
//!                 self.replies.push(number * 2);
//!                 self.silent_at = Some(now + Duration::from_secs(1));
//!             }
//!             Input::Timeout if self.silent_at.is_some_and(|at| at <= now) => {
//!                 self.silent_at = None;
//!                 self.silent = true;
//!             }
//!             _ => {}
//!         }
//!     }
//!     fn poll_output(&mut self) -> Option<Output<u32, &'static str>> {
//!         if let Some(reply) = self.replies.pop() {
//!             return Some(Output::Transmit(reply));
//!         }
//!         std::mem::take(&mut self.silent).then_some(Output::Event("silence"))
//!     }
//!     fn deadline(&self) -> Option<Instant> { self.silent_at }
//! }
//!
//! let mut machine = Doubler::default();
//! let mut sent = Vec::new();
//! let deadline = drain(&mut machine, Instant::ZERO, Input::Receive(21), |output| {
//!     if let Output::Transmit(number) = output { sent.push(number) }
//! });
//! assert_eq!(sent, [42]);
//! assert_eq!(deadline, Some(Instant::ZERO + Duration::from_secs(1)));
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod harness;
mod instant;
mod invisible;
mod replay_window;
mod round_trip;
mod time_unit;
mod timers;
mod token_bucket;
pub mod wire;

pub use harness::{Harness, Invariant, Outputs, Violation};
pub use instant::Instant;
pub use invisible::is_invisible;
pub use replay_window::ReplayWindow;
pub use round_trip::RoundTripEstimator;
pub use time_unit::time_unit;
pub use timers::Timers;
pub use token_bucket::{TokenBucket, TokenRate};

/// An input of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input<R, C> {
    /// Something arrived from outside: a datagram, a request, a completed write.
    Receive(R),
    /// A command of the application.
    Command(C),
    /// The machine's last deadline has passed.
    Timeout,
}

/// An output of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<T, E> {
    /// Send this.
    Transmit(T),
    /// An event that may concern the application.
    Event(E),
}

/// Protocol logic without I/O. The contract is in the [crate documentation](crate).
pub trait Machine {
    /// The messages received.
    type Receive;
    /// The commands of the application.
    type Command;
    /// The messages sent.
    type Transmit;
    /// An event for the application.
    type Event;

    /// Processes one input at `now`, which never decreases.
    fn handle_input(&mut self, now: Instant, input: Input<Self::Receive, Self::Command>);

    /// The next output; called until `None` after each input.
    fn poll_output(&mut self) -> Option<Output<Self::Transmit, Self::Event>>;

    /// The time for the next [`Input::Timeout`]; read once the outputs are drained.
    fn deadline(&self) -> Option<Instant>;
}

/// Passes `machine` one input, passes every output to `take`, and returns the next deadline.
///
/// This is the only loop that runs machines: sockets, simulation and tests all go through it.
pub fn drain<M: Machine>(
    machine: &mut M,
    now: Instant,
    input: Input<M::Receive, M::Command>,
    mut take: impl FnMut(Output<M::Transmit, M::Event>),
) -> Option<Instant> {
    machine.handle_input(now, input);
    while let Some(output) = machine.poll_output() {
        take(output);
    }
    machine.deadline()
}
