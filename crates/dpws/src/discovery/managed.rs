//! Whether a client asks discovery proxies or the multicast groups (WS-Discovery 1.1, section 2.2.2).
//!
//! [`Managed`] has proxies that the application trusts checked periodically. While one of them answers, the
//! multicast groups are not asked; a proxy counts as gone after [`MISSED_MAX`] checks without an answer. With
//! [`PERIOD`] and [`TIME_LIMIT`] a client is back at multicast within 8 s of a proxy's end, and asks the proxy
//! again within 4 s of its return.
//!
//! Proxies that only announced themselves are not here: whoever can send a datagram could silence the client.

use std::collections::VecDeque;
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output};

/// Time between the result of a check and the next one.
pub const PERIOD: Duration = Duration::from_secs(2);
/// Time limit for the answer to a check, which the application enforces.
pub const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Consecutive checks without an answer after which a proxy is gone. Reason: one answer may be lost.
pub const MISSED_MAX: u32 = 2;
/// Proxies that are checked. Reason: a site has one, and a second for its outage.
pub const PROXIES_MAX: usize = 8;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// The number of the proxy.
    pub proxy: usize,
    /// Whether it answered.
    pub answered: bool,
}

/// A command of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Check one more proxy; its number is the count of those before. Beyond [`PROXIES_MAX`] it is ignored.
    Add,
}

/// A check that the application makes, with the limit [`TIME_LIMIT`]; its result is [`Checked`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// The number of the proxy.
    pub proxy: usize,
}

/// An event for the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A proxy answers: it is new or back, and has to be asked for everything.
    Up {
        /// Its number.
        proxy: usize,
    },
    /// A proxy no longer answers.
    Down {
        /// Its number.
        proxy: usize,
    },
    /// The first proxy answers (`true`), or the last one no longer does (`false`): the groups are to be asked
    /// for everything.
    Mode {
        /// Whether proxies are asked instead of the groups.
        is_managed: bool,
    },
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    is_up: bool,
    was_checked: bool,
    missed: u32,
    /// When the next check is due; `None` while one is under way.
    next: Option<Instant>,
}

/// The machine that checks proxies and chooses the mode.
///
/// ```
/// use chappe_dpws::discovery::managed::{Check, Checked, Command, Event, Managed};
/// use chappe_machine::{Harness, Input, Output};
/// let mut harness = Harness::new(Managed::default(), 7);
/// let outputs = harness.input(Input::Command(Command::Add)).unwrap();
/// assert!(matches!(outputs[..], [Output::Transmit(Check { proxy: 0 })]));
/// let answer = Checked { proxy: 0, answered: true };
/// let outputs = harness.input(Input::Receive(answer)).unwrap();
/// assert!(matches!(outputs[..], [
///     Output::Event(Event::Up { proxy: 0 }),
///     Output::Event(Event::Mode { is_managed: true }),
/// ]));
/// ```
#[derive(Debug, Default)]
pub struct Managed {
    proxies: Vec<State>,
    is_managed: bool,
    outputs: VecDeque<Output<Check, Event>>,
}

impl Managed {
    /// Whether proxies are asked instead of the groups.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// Whether a proxy answers.
    #[must_use]
    pub fn is_up(&self, proxy: usize) -> bool {
        self.proxies.get(proxy).is_some_and(|state| state.is_up)
    }

    /// Whether every proxy was checked at least once.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.proxies.iter().all(|state| state.was_checked)
    }

    fn checked(&mut self, now: Instant, Checked { proxy, answered }: Checked) {
        let Some(state) = self.proxies.get_mut(proxy) else {
            return;
        };
        // A result without a check under way is late.
        if state.next.is_some() {
            return;
        }
        state.next = Some(now + PERIOD);
        state.was_checked = true;
        let was_up = state.is_up;
        match answered {
            true => (state.missed, state.is_up) = (0, true),
            false => state.missed = (state.missed + 1).min(MISSED_MAX),
        }
        state.is_up &= state.missed < MISSED_MAX;
        match (was_up, state.is_up) {
            (false, true) => self.event(Event::Up { proxy }),
            (true, false) => self.event(Event::Down { proxy }),
            _ => {}
        }
        let is_managed = self.proxies.iter().any(|state| state.is_up);
        if is_managed != self.is_managed {
            self.is_managed = is_managed;
            self.event(Event::Mode { is_managed });
        }
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn check_due(&mut self, now: Instant) {
        for (proxy, state) in self.proxies.iter_mut().enumerate() {
            if state.next.is_some_and(|at| at <= now) {
                state.next = None;
                self.outputs.push_back(Output::Transmit(Check { proxy }));
            }
        }
    }
}

impl Machine for Managed {
    type Receive = Checked;
    type Command = Command;
    type Transmit = Check;
    type Event = Event;

    fn handle_input(&mut self, now: Instant, input: Input<Checked, Command>) {
        match input {
            Input::Receive(checked) => self.checked(now, checked),
            Input::Command(Command::Add) if self.proxies.len() < PROXIES_MAX => {
                self.proxies.push(State {
                    next: Some(now),
                    ..State::default()
                });
            }
            Input::Command(Command::Add) | Input::Timeout => {}
        }
        self.check_due(now);
    }

    fn poll_output(&mut self) -> Option<Output<Check, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.proxies.iter().filter_map(|state| state.next).min()
    }
}

impl Invariant for Managed {
    fn check(&self) -> Result<(), String> {
        let is_up = self.proxies.iter().any(|state| state.is_up);
        if self.proxies.len() > PROXIES_MAX || is_up != self.is_managed {
            return Err(format!("{:?} with mode {}", self.proxies, self.is_managed));
        }
        Ok(())
    }
}
