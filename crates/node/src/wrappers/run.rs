//! The task of one wrapper.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chappe_links::DeadLetters;
use chappe_wrappers::{
    Batch, Condition, Wrapper as PeerWrapper, WrapperError, WrapperFile, WrapperOpening,
};

use tokio::sync::{mpsc, watch};

use super::attempts::{Attempts, End};
use super::store::{self, Storer, Storing};
use super::table::Call;
use super::{PeerState, Row as _, WrapperHandle, node_parts, wrapper_key};
use crate::catalogue;
use crate::shared::App;

/// Time between two updates of what the node shows about a wrapper.
const SHOW_PERIOD: Duration = Duration::from_secs(1);
/// Batches on their way to the disk; reason: more do not share a sync, and each has a mark.
const BATCHES_MAX: usize = 64;
/// Time that a command may take.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// Time that the last acknowledgements may take when a wrapper ends.
const END_TIME: Duration = Duration::from_secs(5);

/// Runs a wrapper until `stop` becomes true.
pub(super) async fn run(
    app: App,
    handle: WrapperHandle,
    mut calls: mpsc::Receiver<Call>,
    mut stop: watch::Receiver<bool>,
) {
    let file = handle.file.clone();
    let mut attempts = Attempts::default();
    app.registrar.publish(vec![store::entity(&file, &[])]).await;
    loop {
        let mut running = match Running::open(&app, &handle).await {
            Ok(running) => running,
            Err(end) => {
                trouble(&app, &file.name, &end, false, &mut attempts);
                if attempts.wait(&mut stop).await {
                    break;
                }
                continue;
            }
        };
        let end = tokio::select! {
            end = running.follow(&mut calls) => Some(end),
            _ = stop.wait_for(|stop| *stop) => None,
        };
        let has_stored = running.has_stored;
        // Batches under way are stored in any case; the peer is acknowledged if they are.
        let _ = tokio::time::timeout(END_TIME, running.settle()).await;
        drop(running);
        let Some(end) = end else { break };
        trouble(&app, &file.name, &end, has_stored, &mut attempts);
        app.wrappers.update(&file.name, |row| row.restarts += 1);
        if attempts.wait(&mut stop).await {
            break;
        }
    }
    let key = wrapper_key(&file.name);
    app.observability.ledger.changed(&key, false, "stopped");
    // The streams stay in the log but are unregistered.
    let entries = app.catalogue.entries();
    let streams = entries.iter().filter(|entry| entry.source() == key);
    let mut keys: Vec<String> = streams.map(|entry| catalogue::key(&entry.name)).collect();
    keys.push(key);
    app.registrar.remove(keys).await;
}

/// Shows why a wrapper does not run.
fn trouble(app: &App, name: &str, end: &End, has_stored: bool, attempts: &mut Attempts) {
    let new = attempts.ended(app, &app.wrappers, name, end, has_stored);
    if let Some(reason) = new {
        let ledger = &app.observability.ledger;
        ledger.changed(&wrapper_key(name), false, &reason);
    }
    app.wrappers.update(name, |row| row.unstored_bytes = 0);
}

/// A wrapper that is open.
struct Running {
    app: App,
    file: Arc<WrapperFile>,
    letters: Arc<DeadLetters>,
    wrapper: Box<dyn PeerWrapper>,
    condition: Condition,
    storer: Storer,
    in_flight: VecDeque<Storing>,
    unstored_bytes: u64,
    /// Whether a batch was stored since it was opened.
    has_stored: bool,
    /// The number of streams when its entity was published.
    published: usize,
}

impl Running {
    async fn open(app: &App, handle: &WrapperHandle) -> Result<Self, End> {
        let WrapperHandle { file, letters, .. } = handle;
        let mut storer = Storer::open(app, file, letters.clone()).await?;
        storer.define().await?.map_err(WrapperError::settings)?;
        let invalid =
            |error: chappe_stream::DescriptorError| WrapperError::settings(error.to_string());
        let kind = file.kind().map_err(invalid)?;
        let condition = Condition::default();
        let mut wrapper = (kind.open)(WrapperOpening {
            file,
            mark: storer.mark().cloned(),
            condition: condition.clone(),
            inbox: handle.inbox.open(),
        })?;
        wrapper.attach(&node_parts(app))?;
        Ok(Self {
            app: app.clone(),
            file: file.clone(),
            letters: letters.clone(),
            wrapper,
            condition,
            storer,
            in_flight: VecDeque::new(),
            unstored_bytes: 0,
            has_stored: false,
            published: 0,
        })
    }

    /// Reads and stores until a step fails.
    async fn follow(&mut self, calls: &mut mpsc::Receiver<Call>) -> End {
        match self.try_follow(calls).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn try_follow(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
    ) -> Result<std::convert::Infallible, End> {
        let mut show = tokio::time::interval(SHOW_PERIOD);
        show.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let key = wrapper_key(&self.file.name);
        self.app.observability.ledger.changed(&key, true, "opened");
        loop {
            let is_full = self.unstored_bytes >= self.file.keys.limits.unstored_bytes
                || self.in_flight.len() >= BATCHES_MAX;
            tokio::select! {
                biased;
                _ = show.tick() => {
                    self.show().await;
                    if self.in_flight.is_empty() {
                        self.storer.refresh().await?;
                    }
                }
                stored = finish(&mut self.in_flight) => {
                    stored?;
                    self.acknowledge().await?;
                }
                Some(call) = calls.recv() => self.call(call).await?,
                batch = self.wrapper.next(), if !is_full => self.store(batch?).await?,
            }
        }
    }

    /// Queues a batch.
    async fn store(&mut self, batch: Batch) -> Result<(), End> {
        let (storing, dead) = self.storer.store(batch).await?;
        self.unstored_bytes += storing.weight;
        self.in_flight.push_back(storing);
        if dead > 0 {
            let name = &self.file.name;
            self.app
                .wrappers
                .update(name, |row| row.undecodable += dead);
        }
        Ok(())
    }

    /// The first batch is stored: the peer may be acknowledged.
    async fn acknowledge(&mut self) -> Result<(), WrapperError> {
        let Some(storing) = self.in_flight.pop_front() else {
            return Ok(());
        };
        self.has_stored = true;
        self.unstored_bytes -= storing.weight;
        self.app.wrappers.update(&self.file.name, |row| {
            row.elements += storing.elements;
            if let Some(newest) = storing.newest {
                row.newest_time = Some(newest.to_string());
            }
        });
        if storing.refused > 0 {
            self.wrapper.refused(&storing.mark, storing.refused);
        }
        let acknowledged = self.wrapper.stored(&storing.mark).await;
        self.storer.stored(storing);
        acknowledged
    }

    async fn call(&mut self, call: Call) -> Result<(), WrapperError> {
        let calling = self.wrapper.command(&call.command);
        let answer = tokio::time::timeout(COMMAND_TIME, calling).await;
        let answer = answer.unwrap_or_else(|_| {
            let text = format!("the peer did not answer within {COMMAND_TIME:?}");
            Err(WrapperError::Command(text))
        });
        let failed = match &answer {
            Err(error @ (WrapperError::Peer { .. } | WrapperError::Settings { .. })) => {
                Err(error.clone())
            }
            _ => Ok(()),
        };
        // The caller may have gone.
        let _ = call.reply.send(answer);
        failed
    }

    /// Stores what is on its way, and tells the peer.
    async fn settle(&mut self) {
        while !self.in_flight.is_empty() {
            if finish(&mut self.in_flight).await.is_err() {
                self.in_flight.pop_front();
                continue;
            }
            // The peer may be gone.
            let _ = self.acknowledge().await;
        }
    }

    /// Updates what the node shows.
    async fn show(&mut self) {
        let (waits, streams) = (self.condition.reason(), self.storer.stream_names());
        let letters = self.letters.count();
        if streams.len() != self.published {
            self.published = streams.len();
            let entity = store::entity(&self.file, &streams);
            self.app.registrar.publish(vec![entity]).await;
        }
        self.app.wrappers.update(&self.file.name, |row| {
            let state = match waits {
                Some(_) => PeerState::Waiting,
                None => PeerState::Running,
            };
            row.set_state(state, waits, None);
            row.streams = streams;
            row.unstored_bytes = self.unstored_bytes;
            row.dead_letters = letters;
        });
    }
}

/// Waits until the first batch is stored; forever if there is none.
async fn finish(in_flight: &mut VecDeque<Storing>) -> Result<(), chappe_log::Error> {
    match in_flight.front_mut() {
        Some(storing) => storing.finish().await,
        None => std::future::pending().await,
    }
}
