//! One virtual sensor: bound to streams, fed from the log, its output stored.
//!
//! A compiled statement is evaluated on the thread that reads the elements, since switching threads
//! would cost more than the evaluation. Work that may take long (SQLite, a large window, binding) runs
//! on another thread.
//!
//! The sensor reads elements as soon as they have their positions in the log, and its outputs are
//! appended after its inputs, so an output is durable only together with its inputs. After a restart,
//! and after a full disk rolled back its inputs, it resumes after the last evaluated element, with its
//! windows restored.

mod bind;
mod choices;
mod evaluate;
mod follow;
mod output;
mod running;
mod show;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_log::{Error, Level};
use chappe_machine::Input;
use chappe_registry::{EntityKind, FeedItem, Principal, Subscription};
use chappe_stream::binding::BindingLimits;
use chappe_stream::{
    Binding, Descriptor, Selection, SensorCommand, SensorInput, SensorLimits, StoreError,
    StreamElement, VirtualSensor, WindowClock,
};
use chappe_transport::Clock;
use chappe_wrappers::WrapperFile;
use tokio::sync::watch;

use super::candidates::sensor_key;
use super::commands;
use super::dead_letters;
use super::dropped::Dropped;
use super::facts::entities;
use super::inline;
use super::progress::Progress;
use crate::catalogue::{self, CatalogueError, Entry};
use crate::clock;
use crate::shared::App;
use bind::Rebinding;
use evaluate::continued;
use follow::next_batch;
use running::{Running, fail, fail_with};

/// Time between two flushes of progress.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);

/// Runs a sensor until `stop` becomes true.
pub(super) async fn run(
    app: App,
    descriptor: Descriptor,
    wrappers: Vec<WrapperFile>,
    mut stop: watch::Receiver<bool>,
) {
    let name = descriptor.name.clone();
    let output = &descriptor.output;
    let made = app
        .catalogue
        .create(&output.stream, &output.schema, &name, Some(output.level))
        .await;
    let entry = match made {
        Ok(entry) => entry,
        Err(error) => {
            let is_taken = matches!(error, CatalogueError::Taken { .. });
            let hint = "give the sensor another name, or set `stream` under [output]";
            let hint = is_taken.then(|| hint.to_owned());
            return fail_with(&app, &name, error.to_string(), hint);
        }
    };
    let letters = match dead_letters::open(&app, &descriptor).await {
        Ok(letters) => letters,
        Err(error) => return fail(&app, &name, error.to_string()),
    };
    let calls = match commands::open(&app, &descriptor).await {
        Ok(calls) => calls,
        Err(error) => return fail(&app, &name, error.to_string()),
    };
    let progress = match open_progress(&app, &entry, &descriptor).await {
        Ok(progress) => progress,
        Err(error) => return fail(&app, &name, error.to_string()),
    };
    let feed = app
        .registry
        .subscribe(app.registry.revision() + 1, Principal::Operator);
    app.registrar
        .publish(entities(&descriptor, &entry.name))
        .await;
    let wrappers = inline::OwnWrappers::start(&app, &name, wrappers);
    let bindings = descriptor.sources.iter().map(|source| {
        let limits = BindingLimits::default();
        Binding::new(source.alias.clone(), source.policy, limits)
    });
    let machine = VirtualSensor::new(descriptor.clone(), SensorLimits::default());
    let level = entry.log.log().level();
    let own = sensor_key(&name);
    let running = Running {
        reads_uncommitted: level != Level::Memory,
        progress,
        shape: shape(&descriptor),
        rollbacks_seen: 0,
        last_position: None,
        must_rebind: false,
        may_unbind: false,
        bindings: bindings.collect(),
        fallbacks: choices::fallbacks(&descriptor),
        from_newest: BTreeSet::new(),
        read_before: Vec::new(),
        machine: Some(continued(machine, &entry).await),
        slow_evaluations: 0,
        dropped: Dropped::default(),
        failed_after: None,
        dead_letters: letters.clone(),
        offered: VecDeque::new(),
        followers: BTreeMap::new(),
        last_stream: "".into(),
        history: VecDeque::new(),
        app: app.clone(),
        name,
        output: entry.clone(),
        descriptor,
    };
    tokio::select! {
        () = running.follow(feed) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    wrappers.stop(&app).await;
    let letters = letters.map(|letters| letters.key());
    let calls = calls.iter().map(|calls| calls.key());
    let keys = [own, entry.key()].into_iter().chain(letters).chain(calls);
    app.registrar.remove(keys.collect()).await;
}

/// Sets the output's retention and reads the sensor's progress; both may block on the disk.
async fn open_progress(
    app: &App,
    output: &Entry,
    descriptor: &Descriptor,
) -> Result<Progress, StoreError> {
    let (store, log, name) = (
        app.storage.log.clone(),
        output.log.clone(),
        descriptor.name.clone(),
    );
    let retention = descriptor.output.retention;
    let opened = tokio::task::spawn_blocking(move || {
        log.set_retention(retention)?;
        Ok(Progress::open(&store, &name, log.log().level())?)
    });
    let closed = |_| Err(chappe_log::Error::Closed.into());
    opened.await.unwrap_or_else(closed)
}

/// A number that differs for other windows, and for other queries by which windows on the node's clock find their
/// streams; another release may give another number.
fn shape(descriptor: &Descriptor) -> u64 {
    let mut hasher = DefaultHasher::new();
    for source in &descriptor.sources {
        let shape = (source.window, source.slide, source.late, source.timing);
        format!("{} {shape:?} {:?}", source.alias, source.per).hash(&mut hasher);
        if let (Selection::Query(query), WindowClock::Node) =
            (&source.selection, source.timing.clock)
        {
            format!("{query:?}").hash(&mut hasher);
        }
    }
    hasher.finish()
}

impl Running {
    async fn follow(mut self, mut feed: Subscription) {
        let clock = Clock::process();
        let mut rebinding = Rebinding::default();
        let recalled = self.recall_streams();
        // Without them, a source waits for its device.
        self.read_before = recalled.await.unwrap_or_default();
        self.bind().await;
        let mut flush = tokio::time::interval(FLUSH_PERIOD);
        flush.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if self.must_rebind {
                self.restart().await;
            }
            self.rollbacks_seen = self.app.storage.log.retractions();
            let deadline = self
                .machine
                .as_ref()
                .and_then(chappe_machine::Machine::deadline);
            let timeout = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(clock.at(deadline)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                item = feed.next() => {
                    let mut changed = concerns_streams(&item);
                    while let Some(item) = feed.try_next() {
                        changed |= concerns_streams(&item);
                    }
                    if changed {
                        rebinding.request();
                    }
                }
                () = rebinding.due() => {
                    let started = Instant::now();
                    self.bind().await;
                    rebinding.done(started);
                }
                () = timeout => {
                    self.step(vec![Input::Timeout]).await;
                }
                // Before the elements: a backlog must hold up neither the clock nor a choice.
                _ = flush.tick() => {
                    self.flush_progress();
                    self.set_clock().await;
                    if self.may_unbind || self.fallbacks.iter().any(Option::is_some) {
                        rebinding.request();
                    }
                }
                (stream, batch) = next_batch(&mut self.followers, &mut self.last_stream) => {
                    self.feed(stream, batch).await;
                    if self.may_unbind {
                        rebinding.request();
                    }
                }
            }
        }
    }

    /// Sets the machine's clock, if it has a source that runs on it.
    async fn set_clock(&mut self) {
        if self
            .machine
            .as_ref()
            .is_some_and(VirtualSensor::follows_clock)
        {
            let clock = SensorCommand::Clock(clock::now());
            self.step(vec![Input::Command(clock)]).await;
        }
    }

    /// Passes elements to the machine.
    async fn feed(&mut self, stream: Arc<str>, batch: Result<Vec<StreamElement>, StoreError>) {
        match batch {
            Ok(mut elements) => {
                self.shape_as_bound(&stream, &mut elements).await;
                let inputs = elements.into_iter().map(|element| {
                    let (stream, element) = (stream.clone(), Arc::new(element));
                    Input::Receive(SensorInput { stream, element })
                });
                self.step(inputs.collect()).await;
            }
            Err(StoreError::Log(error @ Error::Gap { .. })) => {
                self.drop("gap", error.to_string());
            }
            Err(StoreError::Log(Error::Retracted { .. })) => self.must_rebind = true,
            Err(error) => {
                self.drop("not readable", error.to_string());
                self.followers.remove(&stream);
                self.may_unbind |= self.app.catalogue.get(&stream).is_none();
            }
        }
    }
}

fn concerns_streams(item: &FeedItem) -> bool {
    use chappe_registry::Change;
    match item {
        FeedItem::Change { change, .. } => match change {
            Change::Published { key, kind, .. } | Change::Removed { key, kind } => {
                matches!(kind, EntityKind::Stream | EntityKind::Metadata)
                    || catalogue::stream_name(key).is_some()
            }
        },
        FeedItem::Resync { .. } => true,
    }
}
