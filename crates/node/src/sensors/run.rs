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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_log::{Appended, Error, Level};
use chappe_machine::{Input, Output, drain};
use chappe_registry::{Entity, EntityKind, FeedItem, Principal, Subscription};
use chappe_stream::binding::{BindingChange, BindingChangeKind, BindingLimits};
use chappe_stream::{
    Binding, Candidate, Descriptor, Extent, Fallback, Position, Selection, SensorCommand,
    SensorEvent, SensorInput, SensorLimits, StoreError, StreamElement, StreamFollower,
    StreamSchema, VirtualSensor, WindowClock,
};
use chappe_transport::{Clock, Hop};
use chappe_wrappers::WrapperFile;
use tokio::sync::watch;

use super::candidates::{self, sensor_entity, sensor_key};
use super::choices;
use super::command_view;
use super::commands;
use super::dead_letters;
use super::dropped::Dropped;
use super::facts;
use super::follow::next_batch;
use super::inline;
use super::interrupt::Interrupting;
use super::progress::Progress;
use super::table::{Bound, Event, Sensor, SensorError, SensorState, Source};
use crate::catalogue::{self, Entry, FULL_PAUSE};
use crate::clock;
use crate::notices::NoticeKind;
use crate::producer::Producer;
use crate::view::FieldView;

use crate::shared::App;

/// Time for which a sensor may occupy the serving thread before the rest of a batch moves to another
/// thread; reason: a tenth of the delay that a reader of live data notices.
const INLINE_MAX: Duration = Duration::from_millis(2);
/// Slow evaluations in a row after which all evaluations move to another thread; reason: a single one
/// may be slow because the thread waited for a processor.
const SLOW_IN_A_ROW_MAX: u32 = 4;
/// Time between two flushes of progress.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);
/// Events in a sensor's history.
const HISTORY_MAX: usize = 100;

pub(super) type SensorMachineInput = Input<SensorInput, SensorCommand>;

/// The entry of a sensor before it runs.
pub(super) fn describe(descriptor: &Descriptor, file: &str, toml: &str) -> Sensor {
    let extents = descriptor.sources.iter().map(|source| {
        let (window, slide) = (extent(source.window), extent(source.slide));
        let per = source.per.as_ref();
        let per = per.map_or(String::new(), |per| format!(" per {}", per.column));
        let clock = match source.timing.clock {
            WindowClock::Source => "",
            WindowClock::Node => " of the node's clock",
        };
        format!("{}: {window}{per} every {slide}{clock}", source.alias)
    });
    let source = |source: &chappe_stream::descriptor::Source| {
        let (query, stream) = match &source.selection {
            Selection::Query(query) => (Some(candidates::describe(query)), None),
            named => (None, descriptor.stream_of(named)),
        };
        Source {
            alias: source.alias.clone(),
            wrapper: match &source.selection {
                Selection::Wrapper(_) => Some(descriptor.wrapper_name(source, 0)),
                _ => None,
            },
            query,
            stream,
            unbound_reason: Some("the search has not finished".to_owned()),
            ..Source::default()
        }
    };
    Sensor {
        name: descriptor.name.clone(),
        stream: descriptor.output.stream.clone(),
        file: file.to_owned(),
        sql: descriptor.sql(),
        window: extents.collect::<Vec<_>>().join("; "),
        fields: descriptor
            .output
            .schema
            .fields
            .iter()
            .map(FieldView::of)
            .collect(),
        sources: descriptor.sources.iter().map(source).collect(),
        commands: command_view::views(descriptor),
        wrappers: wrappers_of(descriptor),
        toml: toml.to_owned(),
        ..Sensor::default()
    }
}

/// The names of the wrappers in the file of a sensor.
fn wrappers_of(descriptor: &Descriptor) -> Vec<String> {
    let mut names = Vec::new();
    for source in &descriptor.sources {
        for (choice, selection) in source.choices().enumerate() {
            if matches!(selection, Selection::Wrapper(_)) {
                names.push(descriptor.wrapper_name(source, choice));
            }
        }
    }
    names
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

fn extent(extent: Extent) -> String {
    match extent {
        Extent::Count(1) => "1 element".to_owned(),
        Extent::Count(count) => format!("{count} elements"),
        Extent::Time(length) => format!("{length:?}"),
    }
}

/// Reads the newest elements of the output, after which a new machine continues.
pub(super) async fn continued(mut machine: VirtualSensor, output: &Entry) -> VirtualSensor {
    let needed = machine.outputs_needed();
    if needed > 0 {
        let log = output.log.clone();
        let read = tokio::task::spawn_blocking(move || log.newest(needed)).await;
        // Without them, rates and unique times start again.
        if let Ok(Ok(outputs)) = read {
            machine.continue_after(&outputs);
        }
    }
    machine
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
        Err(error) => return fail(&app, &name, error.to_string()),
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

/// The registry entities of a sensor and its stream.
pub(super) fn entities(descriptor: &Descriptor, stream: &str) -> Vec<Entity> {
    let (name, text) = (&descriptor.name, descriptor.description.as_deref());
    let schema = &descriptor.output.schema;
    let mut sensor = sensor_entity(name, stream);
    sensor.triples.extend(facts::triples(descriptor));
    vec![
        sensor,
        Producer::new(&sensor_key(name)).stream(stream, schema, text),
    ]
}

fn fail(app: &App, name: &str, message: String) {
    app.sensors.update(name, |sensor| {
        sensor.state = SensorState::Failed;
        sensor.error = Some(SensorError {
            message,
            ..SensorError::default()
        });
    });
}

pub(super) struct Running {
    pub(super) app: App,
    pub(super) name: String,
    pub(super) descriptor: Descriptor,
    pub(super) output: Arc<Entry>,
    pub(super) bindings: Vec<Binding>,
    /// By source, if it has one.
    pub(super) fallbacks: Vec<Option<Fallback>>,
    /// Streams of a choice that took the place of another: they are read from their newest element on.
    pub(super) from_newest: BTreeSet<String>,
    /// By source: the stream that an earlier run read, until the source is bound.
    pub(super) read_before: Vec<Option<Candidate>>,
    /// `None` while another thread runs it.
    pub(super) machine: Option<VirtualSensor>,
    /// Slow evaluations in a row of a compiled statement.
    pub(super) slow_evaluations: u32,
    /// The reported counts of unused elements.
    pub(super) dropped: Dropped,
    /// The stream of refused elements, if a source wants it.
    pub(super) dead_letters: Option<Arc<Entry>>,
    /// Whether it reads elements before they are durable. False at level `memory`, where outputs
    /// would be acknowledged before their inputs are stored.
    pub(super) reads_uncommitted: bool,
    /// Appended batches of the output that are not yet acknowledged.
    pub(super) offered: VecDeque<Appended>,
    pub(super) progress: Progress,
    /// Stands for the windows of the descriptor.
    pub(super) shape: u64,
    /// Number of rollbacks of the log before the last elements were read.
    pub(super) rollbacks_seen: u64,
    /// The input position that the last output carries.
    pub(super) last_position: Option<Position>,
    /// Its inputs or outputs were rolled back, so it must restart from the stored state.
    pub(super) must_rebind: bool,
    /// A binding may end without a change in the registry: its stream stays bound only until its stored elements
    /// are read, or was removed.
    pub(super) may_unbind: bool,
    pub(super) followers: BTreeMap<Arc<str>, StreamFollower>,
    /// The stream that was read last.
    pub(super) last_stream: Arc<str>,
    pub(super) history: VecDeque<Event>,
}

/// An update of the bindings that took less is followed by the next one without a pause: a new stream is
/// read from its binding on.
const UPDATE_PROMPT: Duration = Duration::from_millis(50);
/// The longest pause between two updates of the bindings.
const UPDATE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// When the bindings are next updated. A search among very many streams takes a while, and streams may
/// appear at any rate: after a long update, the pause is nine times as long as it took.
#[derive(Default)]
struct Rebinding {
    is_requested: bool,
    not_before: Option<Instant>,
}

impl Rebinding {
    fn request(&mut self) {
        self.is_requested = true;
    }

    /// Resolves when an update is requested and its time has come.
    async fn due(&self) {
        match (self.is_requested, self.not_before) {
            (false, _) => std::future::pending().await,
            (true, Some(time)) => tokio::time::sleep_until(time.into()).await,
            (true, None) => {}
        }
    }

    fn done(&mut self, started: Instant) {
        let now = Instant::now();
        self.is_requested = false;
        let spent = now.duration_since(started);
        self.not_before = (spent > UPDATE_PROMPT).then(|| now + (9 * spent).min(UPDATE_PAUSE_MAX));
    }
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

    /// Converts elements to the schema with which their stream is bound. If the stream's schema has
    /// changed, the stream is rebound first, because values of one field could otherwise be taken for
    /// those of another. Elements that come again, because the stream is then followed anew, are removed.
    async fn shape_as_bound(&mut self, stream: &str, elements: &mut Vec<StreamElement>) {
        let follower = self.followers.get(stream);
        let Some(schema) = follower.map(|follower| follower.schema().clone()) else {
            return;
        };
        if self.bound_schema(stream) == Some(&schema) {
            return;
        }
        self.bind().await;
        let next = self
            .followers
            .get(stream)
            .map_or(0, StreamFollower::next_sequence);
        elements.retain(|element| element.position.sequence < next);
        if let Some(bound) = self.bound_schema(stream) {
            for element in elements {
                element.values = bound.project(&schema, std::mem::take(&mut element.values));
            }
        }
    }

    fn bound_schema(&self, stream: &str) -> Option<&StreamSchema> {
        let mut bound = self.bindings.iter().flat_map(Binding::bound);
        let bound = bound.find(|bound| bound.candidate.stream == stream)?;
        Some(&bound.candidate.schema)
    }

    /// Updates the bindings from the registry.
    async fn bind(&mut self) {
        let now = clock::now();
        // Unbound sources later resume from their last position.
        self.store_progress();
        let mut kept = self.bound_counts();
        let mut updates: Vec<(Vec<SensorMachineInput>, Vec<BindingChange>)> = Vec::new();
        let mut ends: Vec<SensorMachineInput> = Vec::new();
        self.may_unbind = false;
        for index in 0..self.bindings.len() {
            let mut choice = Vec::new();
            let Some(mut found) = self.find(index, now, &mut choice).await else {
                continue;
            };
            let unread = self.unread(index, &found);
            self.may_unbind |= !unread.is_empty();
            found.extend(unread);
            found.extend(self.silent(index, &found));
            let binding = &mut self.bindings[index];
            let before: Vec<String> = names(binding).map(str::to_owned).collect();
            let changes = binding.update(now, &found);
            let is_kept = |stream: &String| names(binding).any(|bound| bound == stream);
            if !before.is_empty() && !before.iter().any(is_kept) {
                let alias = binding.alias().to_owned();
                ends.push(Input::Command(SensorCommand::EndSlides { alias }));
            }
            updates.push((choice, changes));
        }
        if !ends.is_empty() {
            // By themselves, so that a stream that returns continues after them.
            self.step(ends).await;
            self.store_progress();
        }
        let mut commands: Vec<SensorMachineInput> = Vec::new();
        for (choice, changes) in updates {
            commands.extend(choice);
            for change in changes {
                let stream = change.candidate.stream.clone();
                let (alias, schema) = (change.alias.clone(), change.candidate.schema.clone());
                let verb = match change.kind {
                    BindingChangeKind::Bound => "bound to",
                    BindingChangeKind::Unbound => "unbound from",
                };
                let shown = self.app.catalogue.names().current(&stream);
                let text = format!("{alias} {verb} {shown}: {}", change.reason);
                self.app.observability.notices.notify(
                    NoticeKind::Binding,
                    &self.name,
                    text.clone(),
                );
                self.remember(change.at.to_string(), text);
                if change.kind == BindingChangeKind::Unbound
                    && let Some(count) = kept.get_mut(&stream)
                {
                    *count = count.saturating_sub(1);
                }
                let shared: Arc<str> = stream.as_str().into();
                commands.push(Input::Command(match change.kind {
                    BindingChangeKind::Bound => SensorCommand::Bind {
                        alias,
                        stream: shared,
                        schema,
                    },
                    BindingChangeKind::Unbound => SensorCommand::Unbind {
                        alias,
                        stream: shared,
                    },
                }));
            }
        }
        // A stream that was unbound everywhere is followed again, and its windows are filled again, even if it is
        // bound again at once: with other fields, or by another device.
        self.followers
            .retain(|stream, _| kept.get(&**stream).is_none_or(|count| *count > 0));
        commands.extend(self.follow_bound().await);
        self.step(commands).await;
        self.show_bindings();
    }

    /// The number of sources to which each stream is bound.
    fn bound_counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for bound in self.bindings.iter().flat_map(Binding::bound) {
            *counts.entry(bound.candidate.stream.clone()).or_default() += 1;
        }
        counts
    }

    /// Restarts from the stored state, after the log was full.
    async fn restart(&mut self) {
        tokio::time::sleep(FULL_PAUSE).await;
        for offered in std::mem::take(&mut self.offered) {
            // The stored state decides, whatever the result.
            let _ = offered.await;
        }
        self.progress.roll_back();
        self.must_rebind = false;
        self.followers.clear();
        let limits = SensorLimits::default();
        let machine = VirtualSensor::new(self.descriptor.clone(), limits);
        self.machine = Some(continued(machine, &self.output).await);
        let mut commands = Vec::new();
        for (index, binding) in self.bindings.iter().enumerate() {
            let source = &self.descriptor.sources[index];
            let fallback = self.fallbacks[index].as_ref();
            if let Some(choice) = fallback.and_then(Fallback::current) {
                let alias = source.alias.clone();
                commands.push(Input::Command(SensorCommand::Choose { alias, choice }));
            }
            commands.extend(binding.bound().map(|bound| {
                Input::Command(SensorCommand::Bind {
                    alias: source.alias.clone(),
                    stream: bound.candidate.stream.as_str().into(),
                    schema: bound.candidate.schema.clone(),
                })
            }));
        }
        commands.extend(self.follow_bound().await);
        self.step(commands).await;
    }

    /// Runs the machine, on this thread if that is cheap, and stores its outputs.
    async fn step(&mut self, inputs: Vec<SensorMachineInput>) {
        let mut events = Vec::new();
        let mut inputs = VecDeque::from(inputs);
        if let Some(machine) = &mut self.machine
            && machine.is_compiled()
            && self.slow_evaluations < SLOW_IN_A_ROW_MAX
        {
            let (now, started) = (Clock::process().now(), Instant::now());
            let mut before = Duration::ZERO;
            // Binding recompiles the statement, which is expensive.
            while inputs.front().is_some_and(|input| !is_command(input))
                && let Some(input) = inputs.pop_front()
            {
                evaluate(machine, now, input, &mut events);
                let elapsed = started.elapsed();
                let is_slow = elapsed - before > INLINE_MAX;
                before = elapsed;
                self.slow_evaluations = if is_slow {
                    self.slow_evaluations + 1
                } else {
                    0
                };
                if elapsed > INLINE_MAX {
                    break;
                }
            }
        }
        if !inputs.is_empty() {
            self.compute(inputs, &mut events).await;
        }
        self.report_dropped();
        self.handle_events(events).await;
    }

    /// Reports the elements that the machine did not use.
    fn report_dropped(&mut self) {
        let Some(machine) = &self.machine else {
            return;
        };
        let sources = self.descriptor.sources.iter();
        let aliases = sources.map(|source| source.alias.as_str());
        for one in self.dropped.take_new(machine, aliases) {
            let of_source = one
                .alias
                .map_or(String::new(), |alias| format!("{alias}: "));
            let detail = format!("{of_source}{} elements most recently", one.count);
            let (hop, name) = (Hop::Element, &self.name);
            let drops = &self.app.observability.drops;
            drops.record_times(one.count, hop, one.reason, name, detail, None);
            self.app.sensors.update(name, |sensor| {
                *sensor.dropped.entry(one.reason.to_owned()).or_default() += one.count;
            });
        }
    }

    /// Runs the machine on another thread.
    async fn compute(
        &mut self,
        inputs: VecDeque<SensorMachineInput>,
        events: &mut Vec<SensorEvent>,
    ) {
        let Some(mut machine) = self.machine.take() else {
            return;
        };
        if inputs.iter().any(is_command) {
            self.slow_evaluations = 0;
        }
        // If the sensor ends, nobody waits for this.
        let interrupting = Interrupting::default();
        let computation = interrupting.computation();
        let computed = tokio::task::spawn_blocking(move || {
            let mut events = Vec::new();
            for input in inputs {
                if !computation.begin(&machine) {
                    break;
                }
                evaluate(&mut machine, Clock::process().now(), input, &mut events);
            }
            computation.end();
            (machine, events)
        });
        let computed = computed.await;
        drop(interrupting);
        match computed {
            Ok((machine, computed)) => {
                self.show_plan(&machine);
                self.machine = Some(machine);
                events.extend(computed);
            }
            Err(_) => fail(&self.app, &self.name, "the computation failed".to_owned()),
        }
    }

    /// Publishes how the statement is evaluated.
    fn show_plan(&self, machine: &VirtualSensor) {
        let plan = machine.plan().map(ToString::to_string);
        self.app.sensors.update(&self.name, |sensor| {
            if sensor.plan != plan {
                sensor.plan = plan;
            }
        });
    }

    async fn handle_events(&mut self, events: Vec<SensorEvent>) {
        let (mut outputs, mut letters) = (Vec::new(), Vec::new());
        for event in events {
            match event {
                SensorEvent::Output(element) => outputs.push(element),
                SensorEvent::DeadLetter {
                    alias,
                    reason,
                    input,
                } => {
                    let schema = self.bound_schema(&input.stream);
                    letters.push(dead_letters::letter(alias, reason, &input, schema));
                }
                SensorEvent::Running => self.set_state(SensorState::Running, None),
                SensorEvent::Waiting { .. } => self.set_state(SensorState::Waiting, None),
                SensorEvent::Failed { reason } => self.set_state(SensorState::Failed, Some(reason)),
                SensorEvent::EvaluationFailed { reason } => {
                    self.drop("evaluation failed", reason.clone());
                    let state = SensorState::Running;
                    self.set_state(state, Some(format!("the last evaluation failed: {reason}")));
                }
                SensorEvent::Stopped => {}
            }
        }
        self.store_letters(letters).await;
        if !outputs.is_empty() {
            self.offer(outputs).await;
        }
    }

    fn set_state(&self, state: SensorState, message: Option<String>) {
        let error = message.map(|message| SensorError {
            message,
            ..SensorError::default()
        });
        self.app.sensors.update(&self.name, |sensor| {
            sensor.state = state;
            sensor.error = error;
        });
    }

    pub(super) fn drop(&self, reason: &'static str, detail: String) {
        self.app
            .observability
            .drops
            .record(Hop::Element, reason, &self.name, detail, None);
    }

    fn remember(&mut self, at: String, what: String) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(Event { at, what });
    }

    /// The number of the last element that was read of a stream.
    fn read_of(&self, stream: &str) -> Option<u64> {
        let follower = self.followers.get(stream)?;
        Some(follower.next_sequence().saturating_sub(1))
    }

    /// Shows how far each stream was read.
    pub(super) fn show_progress(&self) {
        self.app.sensors.update(&self.name, |sensor| {
            for bound in sensor.sources.iter_mut().flat_map(|it| &mut it.bound) {
                bound.read = self.read_of(&bound.stream);
            }
        });
    }

    fn show_bindings(&self) {
        self.app.sensors.update(&self.name, |sensor| {
            sensor.history = self.history.iter().cloned().collect();
            let bindings = self.bindings.iter().enumerate();
            for (source, (index, binding)) in sensor.sources.iter_mut().zip(bindings) {
                source.choices = self.shown_choices(index);
                let bound = binding.bound().map(|bound| Bound {
                    stream: bound.candidate.stream.clone(),
                    since: bound.since.to_string(),
                    why: bound.candidate.why.clone(),
                    read: self.read_of(&bound.candidate.stream),
                });
                source.bound = bound.collect();
                source.unbound_reason = binding.unbound_reason();
            }
        });
    }
}

/// The streams that a source is bound to.
fn names(binding: &Binding) -> impl Iterator<Item = &str> {
    binding.bound().map(|bound| &*bound.candidate.stream)
}

/// Whether an input may take long, as preparing the statement does.
fn is_command(input: &SensorMachineInput) -> bool {
    match input {
        Input::Command(command) => !matches!(command, SensorCommand::Clock(_)),
        _ => false,
    }
}

fn evaluate(
    machine: &mut VirtualSensor,
    now: chappe_machine::Instant,
    input: SensorMachineInput,
    events: &mut Vec<SensorEvent>,
) {
    drain(machine, now, input, |output| match output {
        Output::Event(event) => events.push(event),
        Output::Transmit(never) => match never {},
    });
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
