//! Decides when the dialling side dials again.
//!
//! The wait doubles from attempt to attempt and is drawn at random from its upper half, so that
//! nodes that lost the same peer at the same time do not return at the same time. A budget bounds
//! attempts by the load that connections have carried: at most a tenth as many attempts as units of
//! work, in addition to one attempt per [`ReconnectConfig::wait_max`], which is always allowed.

use core::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output};

/// Times and budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconnectConfig {
    /// The first wait. Default 250 ms.
    pub wait_first: Duration,
    /// The longest wait. Default 30 s.
    pub wait_max: Duration,
    /// Duration of a connection after which the next attempt uses the first wait. Default 10 s.
    pub stable_after: Duration,
    /// Maximum number of saved attempts. Default 10: a short outage causes no delay.
    pub budget_max: u32,
    /// Units of work that earn one attempt. Default 10: a tenth of the load.
    pub work_per_attempt: u32,
}

impl Default for ReconnectConfig {
    fn default() -> Self {
        Self {
            wait_first: Duration::from_millis(250),
            wait_max: Duration::from_secs(30),
            stable_after: Duration::from_secs(10),
            budget_max: 10,
            work_per_attempt: 10,
        }
    }
}

/// A report of the link's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconnectCommand {
    /// Start to dial.
    Start,
    /// The connection is established.
    Connected,
    /// This many units of work were done, for instance frames received.
    Worked(u32),
    /// The attempt failed, or the connection was lost.
    Failed,
    /// Dial no more.
    Stop,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconnectEvent {
    /// Dial now.
    Dial {
        /// The number of the attempt since the last stable connection, from 1.
        attempt: u32,
    },
}

/// The machine; it receives and transmits nothing.
///
/// ```
/// use chappe_flow::{Reconnect, ReconnectCommand, ReconnectConfig, ReconnectEvent};
/// use chappe_machine::{Input, Instant, Output, drain};
/// let mut reconnect = Reconnect::new(ReconnectConfig::default(), 7);
/// let mut dials = 0;
/// let mut take = |output| dials += u32::from(matches!(output, Output::Event(ReconnectEvent::Dial { .. })));
/// drain(&mut reconnect, Instant::ZERO, Input::Command(ReconnectCommand::Start), &mut take);
/// let again = drain(&mut reconnect, Instant::ZERO, Input::Command(ReconnectCommand::Failed), &mut take);
/// drain(&mut reconnect, again.unwrap(), Input::Timeout, &mut take);
/// assert_eq!(dials, 2);
/// ```
#[derive(Debug, Clone)]
pub struct Reconnect {
    config: ReconnectConfig,
    random: fastrand::Rng,
    state: State,
    /// Attempts since the last stable connection.
    attempts: u32,
    /// Attempts allowed by the budget, in units of work.
    budget: u64,
    /// The time of the last attempt.
    dialled_at: Option<Instant>,
    /// Attempts that the budget has delayed.
    put_off: u64,
    event: Option<ReconnectEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Resting,
    /// Waits for the time of the next attempt.
    Waiting(Instant),
    Dialling,
    Connected(Instant),
}

impl Reconnect {
    /// A machine at rest.
    #[must_use]
    pub fn new(config: ReconnectConfig, seed: u64) -> Self {
        let budget = u64::from(config.budget_max) * u64::from(config.work_per_attempt.max(1));
        Self {
            config,
            random: fastrand::Rng::with_seed(seed),
            state: State::Resting,
            attempts: 0,
            budget,
            dialled_at: None,
            put_off: 0,
            event: None,
        }
    }

    /// Attempts since the last stable connection.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The number of attempts that the budget has delayed.
    #[must_use]
    pub fn put_off(&self) -> u64 {
        self.put_off
    }

    fn per_attempt(&self) -> u64 {
        u64::from(self.config.work_per_attempt.max(1))
    }

    /// A random time between half and all of the wait for this number of attempts.
    fn wait(&mut self) -> Duration {
        let doubled = 1_u32 << self.attempts.saturating_sub(1).min(20);
        let most = self.config.wait_first.saturating_mul(doubled);
        let most = most.min(self.config.wait_max);
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.random.u64(most / 2..=most))
    }

    fn dial(&mut self, now: Instant) {
        // One attempt per longest wait is free: a link is never given up, however little it
        // carries.
        let free_at = self.dialled_at.map(|at| at + self.config.wait_max);
        let free = free_at.is_none_or(|at| at <= now);
        if !free && self.budget < self.per_attempt() {
            self.put_off += 1;
            self.state = State::Waiting(free_at.unwrap_or(now));
            return;
        }
        if !free {
            self.budget -= self.per_attempt();
        }
        self.attempts = self.attempts.saturating_add(1);
        self.dialled_at = Some(now);
        self.state = State::Dialling;
        self.event = Some(ReconnectEvent::Dial {
            attempt: self.attempts,
        });
    }
}

impl Machine for Reconnect {
    type Receive = ();
    type Command = ReconnectCommand;
    type Transmit = ();
    type Event = ReconnectEvent;

    fn handle_input(&mut self, now: Instant, input: Input<(), ReconnectCommand>) {
        match input {
            Input::Command(ReconnectCommand::Start) if self.state == State::Resting => {
                self.dial(now);
            }
            Input::Command(ReconnectCommand::Connected) if self.state == State::Dialling => {
                self.state = State::Connected(now);
            }
            Input::Command(ReconnectCommand::Worked(units)) => {
                let most = u64::from(self.config.budget_max) * self.per_attempt();
                self.budget = (self.budget + u64::from(units)).min(most);
            }
            Input::Command(ReconnectCommand::Failed)
                if matches!(self.state, State::Dialling | State::Connected(_)) =>
            {
                if let State::Connected(since) = self.state
                    && now - since >= self.config.stable_after
                {
                    self.attempts = 0;
                }
                let wait = self.wait();
                self.state = State::Waiting(now + wait);
            }
            Input::Command(ReconnectCommand::Stop) => self.state = State::Resting,
            Input::Command(_) | Input::Receive(()) | Input::Timeout => {}
        }
        if let State::Waiting(at) = self.state
            && at <= now
        {
            self.dial(now);
        }
    }

    fn poll_output(&mut self) -> Option<Output<(), ReconnectEvent>> {
        self.event.take().map(Output::Event)
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Waiting(at) => Some(at),
            State::Resting | State::Dialling | State::Connected(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use chappe_machine::drain;

    struct Run {
        machine: Reconnect,
        now: Instant,
        deadline: Option<Instant>,
        dials: Vec<Instant>,
    }

    impl Run {
        fn new(seed: u64) -> Self {
            let mut run = Self {
                machine: Reconnect::new(ReconnectConfig::default(), seed),
                now: Instant::ZERO,
                deadline: None,
                dials: Vec::new(),
            };
            run.input(Input::Command(ReconnectCommand::Start));
            run
        }

        fn input(&mut self, input: Input<(), ReconnectCommand>) {
            let (now, dials) = (self.now, &mut self.dials);
            self.deadline = drain(&mut self.machine, now, input, |_| dials.push(now));
        }

        fn command(&mut self, command: ReconnectCommand) {
            self.input(Input::Command(command));
        }

        /// Every attempt fails at once, for this long.
        fn outage(&mut self, duration: Duration) {
            let end = self.now + duration;
            self.command(ReconnectCommand::Failed);
            while let Some(at) = self.deadline.filter(|at| *at <= end) {
                self.now = at;
                let before = self.dials.len();
                self.input(Input::Timeout);
                if self.dials.len() > before {
                    self.command(ReconnectCommand::Failed);
                }
            }
            self.now = end;
        }
    }

    #[test]
    fn waits_double_to_the_longest_and_are_drawn_from_the_upper_half() {
        for seed in 0..200 {
            let mut run = Run::new(seed);
            run.outage(Duration::from_secs(600));
            let waits = run.dials.windows(2).map(|pair| pair[1] - pair[0]);
            for (attempt, wait) in waits.enumerate().take(7) {
                let most = Duration::from_millis(250 << attempt);
                assert!(wait <= most && wait >= most / 2, "seed {seed}: {wait:?}");
            }
            let last = run.dials[run.dials.len() - 1];
            assert!(run.now - last <= Duration::from_secs(30), "seed {seed}");
        }
    }

    #[test]
    fn nodes_that_lost_the_same_peer_do_not_return_together() {
        let first = |seed| {
            let mut run = Run::new(seed);
            run.command(ReconnectCommand::Failed);
            run.deadline.unwrap()
        };
        let mut times: Vec<_> = (0..24).map(first).collect();
        times.sort_unstable();
        times.dedup();
        assert_eq!(times.len(), 24);
    }

    #[test]
    fn a_flapping_connection_costs_a_tenth_of_what_it_carries() {
        for seed in 0..50 {
            let mut run = Run::new(seed);
            let hour = Instant::ZERO + Duration::from_secs(3_600);
            let mut worked = 0_u64;
            while run.now < hour {
                run.command(ReconnectCommand::Connected);
                run.now += Duration::from_millis(1);
                run.command(ReconnectCommand::Worked(2));
                worked += 2;
                run.command(ReconnectCommand::Failed);
                let dials = run.dials.len();
                while run.dials.len() == dials {
                    run.now = run.deadline.unwrap();
                    run.input(Input::Timeout);
                }
            }
            let free = 3_600 / 30 + 10 + 1;
            assert!(
                run.dials.len() as u64 <= worked / 10 + free,
                "seed {seed}: {} attempts for {worked}",
                run.dials.len()
            );
        }
    }

    #[test]
    fn a_stable_connection_begins_anew() {
        let mut run = Run::new(3);
        run.outage(Duration::from_secs(300));
        while run.machine.state != State::Dialling {
            run.now = run.deadline.unwrap();
            run.input(Input::Timeout);
        }
        run.command(ReconnectCommand::Connected);
        run.now += Duration::from_secs(10);
        run.command(ReconnectCommand::Worked(1_000));
        run.command(ReconnectCommand::Failed);
        assert!(run.deadline.unwrap() - run.now <= Duration::from_millis(250));
        run.command(ReconnectCommand::Stop);
        assert_eq!(run.deadline, None);
    }
}
