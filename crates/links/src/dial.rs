//! Dials an origin, and dials again when the connection is lost.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use chappe_flow::{Reconnect, ReconnectCommand, ReconnectConfig, ReconnectEvent};
use chappe_machine::{Input, Machine as _, Output};
use chappe_transport::Clock;

use super::LinkState;
use super::link::Link;
use super::session::{ConnectionError, FrameConnection, subscribe};

/// Makes connections to one origin.
pub trait Dialler: Send + Sync + 'static {
    /// The type of its connections.
    type Connection: FrameConnection;

    /// Opens a new connection.
    fn dial(&self) -> impl Future<Output = Result<Self::Connection, ConnectionError>> + Send;
}

/// The retry delays of all kinds of links.
pub(crate) struct RetryTimer {
    machine: Reconnect,
    clock: Clock,
}

impl RetryTimer {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            machine: Reconnect::new(ReconnectConfig::default(), seed),
            clock: Clock::process(),
        }
    }

    /// Reports the outcome of an attempt, and waits until the next may start.
    pub(crate) async fn wait(&mut self, outcome: ReconnectCommand) {
        let mut dial = self.give(Input::Command(outcome));
        while !dial {
            match self.machine.deadline() {
                Some(at) => tokio::time::sleep_until(self.clock.at(at)).await,
                None => return,
            }
            dial = self.give(Input::Timeout);
        }
    }

    /// Reports progress.
    pub(crate) fn report(&mut self, outcome: ReconnectCommand) {
        self.give(Input::Command(outcome));
    }

    fn give(&mut self, input: Input<(), ReconnectCommand>) -> bool {
        let mut dial = false;
        chappe_machine::drain(&mut self.machine, self.clock.now(), input, |output| {
            if let Output::Event(ReconnectEvent::Dial { .. }) = output {
                dial = true;
            }
        });
        dial
    }
}

/// Runs reliable sessions, one after another, until the link is removed.
pub(crate) async fn sessions<D: Dialler>(link: Arc<Link>, dialler: D) {
    let mut retry = RetryTimer::new(link.shared.host.random());
    retry.wait(ReconnectCommand::Start).await;
    loop {
        link.end(LinkState::Connecting);
        let dialled = tokio::time::timeout(DIAL_DEADLINE, dialler.dial()).await;
        let ended = match dialled {
            Ok(Ok(connection)) => {
                retry.report(ReconnectCommand::Connected);
                let before = link.live().bytes_received;
                let ended = subscribe(link.clone(), connection).await;
                let bytes = link.live().bytes_received.saturating_sub(before);
                let work = u32::try_from(bytes / WORK_BYTES).unwrap_or(u32::MAX);
                retry.report(ReconnectCommand::Worked(work));
                ended
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ConnectionError {
                text: format!("{} does not answer", link.config.address),
                hint: Some(
                    "check that the origin runs, and that no firewall blocks the connection"
                        .to_owned(),
                ),
            }),
        };
        let error = ended.err().unwrap_or(ConnectionError {
            text: "the session ended".to_owned(),
            hint: None,
        });
        link.disconnected(error.text, error.hint);
        retry.wait(ReconnectCommand::Failed).await;
    }
}

/// Time limit for opening a connection.
const DIAL_DEADLINE: Duration = Duration::from_secs(10);
/// Received bytes that count as one unit of work for the retry budget.
const WORK_BYTES: u64 = 1_024;
