//! The task of one wrapper.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use chappe_links::DeadLetters;
use chappe_stream::StoreError;
use chappe_wrappers::{
    Batch, Condition, Notes, Wrapper as PeerWrapper, WrapperError, WrapperFile, WrapperOpening,
};

use tokio::sync::{mpsc, watch};

use super::attempts::{Attempts, End};
use super::processing::{self, Processing};
use super::reading::Missed;
use super::store::{self, Storer, Storing, Tally};
use super::table::Call;
use super::{PeerState, WrapperHandle, node_parts, notes, wrapper_key};
use crate::catalogue;
use crate::shared::App;

/// Time between two updates of what the node shows about a wrapper.
const SHOW_PERIOD: Duration = Duration::from_secs(1);
/// Batches on their way to the disk; reason: more do not share a sync, and each has a mark.
const BATCHES_MAX: usize = 64;
/// Time that a command may take.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// Time that each of these may take when a wrapper ends: the batch that is being queued, what else it has
/// received, the last acknowledgements.
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
    let (notes, missed) = (notes(&app, &file.name), Missed::default());
    app.registrar.publish(vec![store::entity(&file, &[])]).await;
    loop {
        let mut running = match Running::open(&app, &handle, &notes, &missed).await {
            Ok(running) => running,
            Err(end) => {
                handle.inbox.close();
                trouble(&app, &file.name, &end, false, &mut attempts);
                if attempts.wait(&app, &end, &mut stop).await {
                    break;
                }
                continue;
            }
        };
        let mut patience = stop.clone();
        let (end, is_cut) = tokio::select! {
            end = running.follow(&mut calls, &mut stop) => (end, false),
            // A batch that is being queued ends first, unless the log takes nothing.
            () = stopped_for(&mut patience, END_TIME) => (End::Stopped, true),
        };
        running.finish(&end, is_cut).await;
        let has_stored = running.has_stored;
        drop(running);
        handle.inbox.close();
        if matches!(end, End::Stopped) {
            break;
        }
        trouble(&app, &file.name, &end, has_stored, &mut attempts);
        app.wrappers
            .update(&file.name, |row| row.peer.restarts += 1);
        if attempts.wait(&app, &end, &mut stop).await {
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
    keys.extend(app.devices.retract_all(&file.name));
    app.registrar.remove(keys).await;
}

/// Waits until a wrapper shall end.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender it shall end, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits until a wrapper shall end, and so long after it.
async fn stopped_for(stop: &mut watch::Receiver<bool>, time: Duration) {
    stopped(stop).await;
    tokio::time::sleep(time).await;
}

/// What a step returns if it need not wait. It works within one turn of the task: a peer that never ceases must not
/// hold the thread.
async fn ready<T>(step: impl Future<Output = T>) -> Option<T> {
    tokio::task::yield_now().await;
    let mut step = pin!(step);
    match step.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// Shows why a wrapper does not run.
fn trouble(app: &App, name: &str, end: &End, has_stored: bool, attempts: &mut Attempts) {
    let new = attempts.ended(app, &app.wrappers, name, end, has_stored);
    if let Some(reason) = new {
        let ledger = &app.observability.ledger;
        ledger.changed(&wrapper_key(name), false, &reason);
    }
    app.devices.unconfirm(name);
    app.wrappers.update(name, |row| row.unstored_bytes = 0);
}

/// A wrapper that is open.
struct Running {
    app: App,
    file: Arc<WrapperFile>,
    letters: Arc<DeadLetters>,
    wrapper: Box<dyn PeerWrapper>,
    condition: Condition,
    /// The inputs, if it is a processor.
    processing: Option<Processing>,
    storer: Storer,
    in_flight: VecDeque<Storing>,
    /// The batch that is being queued.
    queueing: Tally,
    unstored_bytes: u64,
    /// Whether a batch was stored since it was opened.
    has_stored: bool,
    /// The number of streams when its entity was published.
    published: usize,
}

impl Running {
    async fn open(
        app: &App,
        handle: &WrapperHandle,
        notes: &Notes,
        missed: &Missed,
    ) -> Result<Self, End> {
        let WrapperHandle { file, letters, .. } = handle;
        let mut storer = Storer::open(app, file, letters.clone()).await?;
        if let Some(former) = &file.keys.continues {
            storer.continue_from(former).await??;
        }
        storer.define().await?.map_err(WrapperError::settings)?;
        let invalid =
            |error: chappe_stream::DescriptorError| WrapperError::settings(error.to_string());
        let kind = file.kind().map_err(invalid)?;
        let condition = Condition::default();
        let open = |mark| {
            (kind.open)(WrapperOpening {
                file,
                mark,
                condition: condition.clone(),
                notes: notes.clone(),
                drops: app.observability.drops.clone(),
                inbox: handle.inbox.open(),
            })
        };
        let stored = storer.mark();
        let (is_processed, mark) = match stored.map(|mark| (processing::split(mark), mark)) {
            Some((Some((_, state)), _)) => (true, Some(state)),
            Some((None, mark)) => (false, Some(mark.clone())),
            None => (false, None),
        };
        let mark = mark.filter(|mark| !mark.bytes().is_empty());
        let mut wrapper = open(mark)?;
        let mut stored = stored.cloned();
        if stored.is_some() && wrapper.inputs().is_some() != is_processed {
            // The file had inputs before, or has some now: the mark is of another kind.
            wrapper = open(None)?;
            stored = None;
        }
        wrapper.attach(&node_parts(app))?;
        let processing = wrapper
            .inputs()
            .map(|inputs| Processing::open(app, &file.name, inputs, stored.as_ref(), missed));
        Ok(Self {
            app: app.clone(),
            file: file.clone(),
            letters: letters.clone(),
            wrapper,
            condition,
            processing,
            storer,
            in_flight: VecDeque::new(),
            queueing: Tally::default(),
            unstored_bytes: 0,
            has_stored: false,
            published: 0,
        })
    }

    /// Reads and stores until a step fails.
    async fn follow(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
        stop: &mut watch::Receiver<bool>,
    ) -> End {
        match self.try_follow(calls, stop).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn try_follow(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<std::convert::Infallible, End> {
        let mut show = tokio::time::interval(SHOW_PERIOD);
        show.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let key = wrapper_key(&self.file.name);
        let mut changes = self.app.catalogue.changes();
        self.follow_inputs().await?;
        self.app.observability.ledger.changed(&key, true, "opened");
        loop {
            let is_full = self.unstored_bytes >= self.file.keys.limits.unstored_bytes
                || self.in_flight.len() >= BATCHES_MAX;
            tokio::select! {
                biased;
                () = stopped(stop) => return Err(End::Stopped),
                _ = show.tick() => {
                    self.show().await;
                    if let Some(processing) = &self.processing {
                        processing.check_loops()?;
                    }
                    if self.in_flight.is_empty() {
                        self.storer.refresh().await?;
                    }
                }
                stored = finish(&mut self.in_flight) => {
                    stored?;
                    self.acknowledge().await?;
                }
                Some(call) = calls.recv() => self.call(call).await?,
                // The catalogue lives as long as the node.
                _ = changes.changed(), if self.processing.is_some() => self.follow_inputs().await?,
                batch = self.wrapper.next(), if !is_full => self.read(batch?).await?,
                batch = inputs(&mut self.processing), if !is_full => self.pass(batch?).await?,
            }
        }
    }

    /// Follows the inputs that are selected now.
    async fn follow_inputs(&mut self) -> Result<(), End> {
        let Some(processing) = &mut self.processing else {
            return Ok(());
        };
        if let Some(mark) = processing.follow()? {
            let batch = Batch {
                mark,
                ..Batch::default()
            };
            self.store(batch).await?;
        }
        Ok(())
    }

    /// Passes inputs to a processor.
    async fn pass(&mut self, batch: Batch) -> Result<(), End> {
        if let Some(processing) = &mut self.processing {
            processing.pass(&batch);
        }
        Ok(self.wrapper.input(&batch).await?)
    }

    /// Queues a batch that the wrapper returned.
    async fn read(&mut self, mut batch: Batch) -> Result<(), End> {
        if let Some(processing) = &mut self.processing {
            processing.answered(&mut batch);
        }
        self.store(batch).await
    }

    /// Queues a batch.
    async fn store(&mut self, batch: Batch) -> Result<(), End> {
        if !batch.has_volatile_mark
            && let Some(exceeded) = self.storer.exceeded_share(&batch)
        {
            self.wrapper.exceeded(&batch.mark, exceeded);
            return Ok(());
        }
        if !self.wrapper.repeats() {
            self.queueing = Tally::of(&batch);
        }
        let (mut storing, dead) = self.storer.store(batch).await?;
        storing.tally = std::mem::take(&mut self.queueing);
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
            row.peer.elements += storing.elements;
            if let Some(newest) = storing.newest {
                row.newest_time = Some(newest.to_string());
            }
        });
        if storing.refused > 0 {
            let reason = storing.refusal.as_deref().unwrap_or_default();
            self.wrapper
                .refused_because(&storing.mark, storing.refused, reason);
        }
        if let Some(processing) = &mut self.processing {
            processing.stored(&storing.mark);
        }
        let acknowledged = self.wrapper.stored(&storing.mark).await;
        self.storer.stored(storing);
        acknowledged
    }

    async fn call(&mut self, call: Call) -> Result<(), WrapperError> {
        let calling = match &call.device {
            Some(device) => self.wrapper.operate(device, &call.command),
            None => self.wrapper.command(&call.command),
        };
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

    /// Ends it: stores what can be stored, tells the peer, and counts what is lost. Nothing more is stored if
    /// it `is_cut` off while it queued a batch: a later mark would stand for that batch, too.
    async fn finish(&mut self, end: &End, is_cut: bool) {
        if matches!(end, End::Stopped) && !is_cut {
            let _ = tokio::time::timeout(END_TIME, self.store_received()).await;
        }
        // Batches under way are stored in any case; the peer is acknowledged if they are.
        let _ = tokio::time::timeout(END_TIME, self.settle()).await;
        if !self.wrapper.repeats() {
            for storing in self.in_flight.drain(..) {
                self.storer
                    .record_unstored(storing.tally, "not acknowledged");
            }
            let queueing = std::mem::take(&mut self.queueing);
            self.storer.record_unstored(queueing, "not stored");
            if !matches!(end, End::Peer(_)) {
                self.count_received().await;
            }
        }
    }

    /// Stores what the wrapper has received already: after a change of its file nobody else has it.
    async fn store_received(&mut self) {
        while self.unstored_bytes < self.file.keys.limits.unstored_bytes
            && self.in_flight.len() < BATCHES_MAX
            && let Some(Ok(batch)) = ready(self.wrapper.next()).await
        {
            if self.read(batch).await.is_err() {
                return;
            }
        }
    }

    /// Counts what the wrapper has received and nobody stores.
    async fn count_received(&mut self) {
        for _ in 0..BATCHES_MAX {
            let Some(Ok(batch)) = ready(self.wrapper.next()).await else {
                return;
            };
            self.storer.record_unstored(Tally::of(&batch), "not stored");
        }
    }

    /// Stores what is on its way, and tells the peer.
    async fn settle(&mut self) {
        while !self.in_flight.is_empty() {
            if finish(&mut self.in_flight).await.is_err() {
                if let Some(failed) = self.in_flight.pop_front() {
                    self.storer
                        .record_unstored(failed.tally, "not acknowledged");
                }
                continue;
            }
            // The peer may be gone.
            let _ = self.acknowledge().await;
        }
    }

    /// Updates what the node shows.
    async fn show(&mut self) {
        let (mut waits, streams) = (self.condition.reason(), self.storer.stream_names());
        let inputs = self.processing.as_ref().map(Processing::shown);
        if inputs.as_ref().is_some_and(Vec::is_empty) {
            waits.get_or_insert_with(|| "no stream is selected by inputs".to_owned());
        }
        self.storer.retract_expired().await;
        self.letters.forget_removed();
        let (letters, dropped) = (self.letters.count(), self.letters.dropped());
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
            row.peer.set_state(state, waits, None);
            row.streams = streams;
            row.inputs = inputs.unwrap_or_default();
            row.unstored_bytes = self.unstored_bytes;
            row.peer.dead_letters = letters;
            row.peer.dead_letters_dropped = dropped;
        });
    }
}

/// The next inputs of a processor; never for another wrapper.
async fn inputs(processing: &mut Option<Processing>) -> Result<Batch, StoreError> {
    match processing {
        Some(processing) => processing.next().await,
        None => std::future::pending().await,
    }
}

/// Waits until the first batch is stored; forever if there is none.
async fn finish(in_flight: &mut VecDeque<Storing>) -> Result<(), chappe_log::Error> {
    match in_flight.front_mut() {
        Some(storing) => storing.finish().await,
        None => std::future::pending().await,
    }
}
