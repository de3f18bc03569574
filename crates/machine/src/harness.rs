//! The harness that checks a machine's invariants at every step, on virtual time.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::{Input, Instant, Machine, Output, drain};

/// Maximum number of outputs after one input; more count as an endless loop.
///
/// Reason: the largest honest burst is one message to each of 100,000 sinks.
const OUTPUTS_PER_INPUT_MAX: usize = 1_000_000;

/// The invariants of a machine after every drained input.
pub trait Invariant {
    /// Returns the broken invariant.
    ///
    /// # Errors
    /// A description of the broken invariant, with the values that show it.
    fn check(&self) -> Result<(), String>;
}

/// A broken invariant, with the data needed to repeat the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The virtual time of the step.
    pub at: Instant,
    /// The number of the step, from 1.
    pub step: u64,
    /// The broken invariant.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}, step {}, at {:?}: {}",
            self.seed, self.step, self.at, self.what
        )
    }
}

impl core::error::Error for Violation {}

/// All outputs of one input.
pub type Outputs<M> = Vec<Output<<M as Machine>::Transmit, <M as Machine>::Event>>;

/// Runs one machine on virtual time and checks its invariants after every input.
///
/// ```
/// # use chappe_machine::{Harness, Input, Instant, Invariant, Machine, Output};
/// struct Counter(u32);
/// impl Machine for Counter {
///     type Receive = ();
///     type Command = ();
///     type Transmit = ();
///     type Event = ();
///     fn handle_input(&mut self, _: Instant, _: Input<(), ()>) { self.0 += 1 }
///     fn poll_output(&mut self) -> Option<Output<(), ()>> { None }
///     fn deadline(&self) -> Option<Instant> { None }
/// }
/// impl Invariant for Counter {
///     fn check(&self) -> Result<(), String> {
///         if self.0 > 1 { Err(format!("counted to {}", self.0)) } else { Ok(()) }
///     }
/// }
/// let mut harness = Harness::new(Counter(0), 7);
/// assert!(harness.input(Input::Receive(())).is_ok());
/// let violation = harness.input(Input::Receive(())).unwrap_err();
/// assert_eq!(violation.to_string(), "seed 7, step 2, at 0ns: counted to 2");
/// ```
#[derive(Debug)]
pub struct Harness<M> {
    machine: M,
    seed: u64,
    now: Instant,
    step: u64,
    deadline: Option<Instant>,
}

impl<M: Machine + Invariant> Harness<M> {
    /// A harness at the origin of time; `seed` is the seed of the machine's choices.
    pub fn new(machine: M, seed: u64) -> Self {
        Self {
            machine,
            seed,
            now: Instant::ZERO,
            step: 0,
            deadline: None,
        }
    }

    /// The machine in its current state.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The machine's next deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Passes one input, drains the outputs and checks.
    ///
    /// # Errors
    /// The first invariant that does not hold afterwards.
    pub fn input(&mut self, input: Input<M::Receive, M::Command>) -> Result<Outputs<M>, Violation> {
        self.step += 1;
        let mut outputs = Vec::new();
        self.deadline = drain(&mut self.machine, self.now, input, |output| {
            // An endless machine must not exhaust memory before it is found.
            assert!(
                outputs.len() < OUTPUTS_PER_INPUT_MAX,
                "endless outputs after one input"
            );
            outputs.push(output);
        });
        let late = self.deadline.is_some_and(|at| at < self.now);
        let what = match (self.machine.check(), late) {
            (Err(what), _) => what,
            (Ok(()), true) => String::from("the deadline after a drain is in the past"),
            (Ok(()), false) => return Ok(outputs),
        };
        Err(Violation {
            seed: self.seed,
            at: self.now,
            step: self.step,
            what,
        })
    }

    /// Lets `duration` pass and passes the machine each timeout.
    ///
    /// # Errors
    /// The first invariant that does not hold after one of the timeouts.
    pub fn advance(&mut self, duration: Duration) -> Result<Outputs<M>, Violation> {
        let end = self.now + duration;
        let mut outputs = Vec::new();
        while let Some(at) = self.deadline.filter(|at| *at <= end) {
            let stuck = at == self.now;
            self.now = at.max(self.now);
            outputs.append(&mut self.input(Input::Timeout)?);
            if stuck && self.deadline == Some(at) {
                let what = String::from("a timeout does not move the deadline");
                return Err(Violation {
                    seed: self.seed,
                    at,
                    step: self.step,
                    what,
                });
            }
        }
        self.now = end;
        Ok(outputs)
    }
}
