//! One virtual sensor: bound to streams, fed from the log, its output stored.
//!
//! A compiled statement is evaluated where the elements come in, since another thread would cost more
//! than the evaluation; what may take long (SQLite, a large window, binding) is computed on another
//! thread.
//!
//! Elements come from the log as soon as they have their places there, and what they bring forth is
//! stored behind them: what a sensor says is durable only together with what it has seen. After a
//! restart, and when a full disk has taken back what it saw, it goes on behind what it has evaluated,
//! with its windows as they were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_log::{Appended, Error, Level};
use chappe_machine::{Input, Output, drain};
use chappe_registry::{Entity, EntityKind, FeedItem, Principal, Subscription};
use chappe_stream::binding::{BindingChangeKind, BindingLimits};
use chappe_stream::{
    Binding, Descriptor, Extent, Position, Selection, SensorCommand, SensorEvent, SensorInput,
    SensorLimits, StoreError, StreamElement, StreamFollower, StreamSchema, VirtualSensor,
};
use chappe_transport::{Clock, Hop};
use tokio::sync::watch;

use super::candidates::{self, candidates, sensor_entity, sensor_key};
use super::dropped::Dropped;
use super::follow::next_batch;
use super::progress::Progress;
use super::table::{Bound, Event, Sensor, SensorError, SensorState, Source};
use crate::catalogue::{self, Entry, FULL_PAUSE};
use crate::clock::{self, rfc3339};
use crate::devices::of_stream;
use crate::notices::NoticeKind;
use crate::view::FieldView;

use crate::shared::App;

/// Time that a sensor may take of the thread that serves, before the rest of a batch goes to another;
/// reason: a tenth of what a reader of live data notices.
const INLINE_MAX: Duration = Duration::from_millis(2);
/// Evaluations one after another that took longer, after which all go to another thread; reason: one
/// may be long because the thread had to wait for a processor.
const SLOW_IN_A_ROW: u32 = 4;
/// How often a sensor without new elements looks after its last batch.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// Events of a sensor's history that are shown.
const HISTORY_MAX: usize = 100;

pub(super) type Given = Input<SensorInput, SensorCommand>;

/// How a sensor is shown before it runs.
pub(super) fn shown(descriptor: &Descriptor, file: &str, toml: &str) -> Sensor {
    let extents = descriptor.sources.iter().map(|source| {
        let (window, slide) = (extent(source.window), extent(source.slide));
        format!("{}: {window} every {slide}", source.alias)
    });
    let source = |source: &chappe_stream::descriptor::Source| {
        let (query, stream) = match &source.selection {
            Selection::Query(query) => (Some(candidates::shown(query)), None),
            Selection::Stream(name) => (None, Some(name.clone())),
        };
        Source {
            alias: source.alias.clone(),
            query,
            stream,
            unbound_reason: Some("it is being looked for".to_owned()),
            ..Source::default()
        }
    };
    Sensor {
        name: descriptor.name.clone(),
        stream: descriptor.output.stream.clone(),
        file: file.to_owned(),
        sql: descriptor.output.sql.clone(),
        window: extents.collect::<Vec<_>>().join("; "),
        fields: descriptor
            .output
            .schema
            .fields
            .iter()
            .map(FieldView::of)
            .collect(),
        sources: descriptor.sources.iter().map(source).collect(),
        toml: toml.to_owned(),
        ..Sensor::default()
    }
}

fn extent(extent: Extent) -> String {
    match extent {
        Extent::Count(1) => "1 element".to_owned(),
        Extent::Count(count) => format!("{count} elements"),
        Extent::Time(length) => format!("{length:?}"),
    }
}

/// Records how long the output is kept, and reads how far the sensor is; both may wait for the disk.
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

/// Runs a sensor until it is told to stop.
pub(super) async fn run(app: App, descriptor: Descriptor, mut stop: watch::Receiver<bool>) {
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
    let bindings = descriptor.sources.iter().map(|source| {
        let limits = BindingLimits::default();
        Binding::new(source.alias.clone(), source.policy, limits)
    });
    let level = entry.log.log().level();
    let own = sensor_key(&name);
    let running = Running {
        eager: level != Level::Memory,
        progress,
        taken_back: 0,
        said: None,
        anew: false,
        bindings: bindings.collect(),
        machine: Some(VirtualSensor::new(
            descriptor.clone(),
            SensorLimits::default(),
        )),
        slow: 0,
        dropped: Dropped::default(),
        offered: VecDeque::new(),
        followers: BTreeMap::new(),
        last: "".into(),
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
    app.registrar.remove(vec![own, entry.key()]).await;
}

/// What the registry says of a sensor and its stream.
pub(super) fn entities(descriptor: &Descriptor, stream: &str) -> Vec<Entity> {
    let (name, text) = (&descriptor.name, descriptor.description.as_deref());
    let schema = &descriptor.output.schema;
    vec![
        sensor_entity(name, stream),
        of_stream(stream, schema, &sensor_key(name), text),
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
    /// Away while it computes.
    pub(super) machine: Option<VirtualSensor>,
    /// Evaluations one after another that took long although they are compiled.
    pub(super) slow: u32,
    /// What it did not use, as far as that is told.
    pub(super) dropped: Dropped,
    /// Whether it need not wait until what it sees is stored; not for an output that is acknowledged
    /// before it is stored.
    pub(super) eager: bool,
    /// Batches of the output on their way into the log: the next elements are evaluated meanwhile.
    pub(super) offered: VecDeque<Appended>,
    pub(super) progress: Progress,
    /// How often the log had taken numbers back before the last elements were read.
    pub(super) taken_back: u64,
    /// What the last output says of how far it is.
    pub(super) said: Option<Position>,
    /// What it has seen or said was taken back: it begins anew from what is stored.
    pub(super) anew: bool,
    pub(super) followers: BTreeMap<Arc<str>, StreamFollower>,
    /// The stream that was read last.
    pub(super) last: Arc<str>,
    pub(super) history: VecDeque<Event>,
}

impl Running {
    async fn follow(mut self, mut feed: Subscription) {
        let clock = Clock::process();
        self.bind().await;
        let mut look_after = tokio::time::interval(LOOK_AFTER);
        look_after.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if self.anew {
                self.begin_anew().await;
            }
            self.taken_back = self.app.storage.log.retractions();
            let deadline = self
                .machine
                .as_ref()
                .and_then(chappe_machine::Machine::deadline);
            let rings = async {
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
                        self.bind().await;
                    }
                }
                () = rings => {
                    self.step(vec![Input::Timeout]).await;
                }
                (stream, batch) = next_batch(&mut self.followers, &mut self.last) => {
                    self.feed(stream, batch).await;
                }
                _ = look_after.tick() => self.look_after(),
            }
        }
    }

    /// Hands elements to the machine.
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
            Err(StoreError::Log(Error::Retracted { .. })) => self.anew = true,
            Err(error) => {
                self.drop("not readable", error.to_string());
                self.followers.remove(&stream);
            }
        }
    }

    /// Gives elements the shape of the schema that their stream is bound with. When the stream has
    /// another one by now, it is bound anew first: of schemas of one shape, values of one field would
    /// be taken for those of another.
    async fn shape_as_bound(&mut self, stream: &str, elements: &mut [StreamElement]) {
        let follower = self.followers.get(stream);
        let Some(schema) = follower.map(|follower| follower.schema().clone()) else {
            return;
        };
        if self.bound_schema(stream) == Some(&schema) {
            return;
        }
        self.bind().await;
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

    /// Brings the bindings up to what the registry says now.
    async fn bind(&mut self) {
        let now = clock::now();
        // What is let go is taken up again where it was.
        self.tell_progress();
        let mut commands: Vec<Given> = Vec::new();
        for index in 0..self.bindings.len() {
            let source = self.descriptor.sources[index].clone();
            let (app, own) = (self.app.clone(), self.output.name.clone());
            let found = tokio::task::spawn_blocking(move || candidates(&app, &source, &own)).await;
            let found = match found {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    self.drop("source not searched", error);
                    continue;
                }
                Err(_) => continue,
            };
            for change in self.bindings[index].update(now, &found) {
                let stream = change.candidate.stream.clone();
                let (alias, schema) = (change.alias.clone(), change.candidate.schema.clone());
                let verb = match change.kind {
                    BindingChangeKind::Bound => "bound to",
                    BindingChangeKind::Unbound => "unbound from",
                };
                let text = format!("{alias} {verb} {stream}: {}", change.reason);
                self.app
                    .observability
                    .notices
                    .tell(NoticeKind::Binding, &self.name, text.clone());
                self.remember(rfc3339(change.at), text);
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
        commands.extend(self.follow_bound().await);
        self.step(commands).await;
        self.show_bindings();
    }

    /// Begins anew from what is stored, after the log has refused for lack of room.
    async fn begin_anew(&mut self) {
        tokio::time::sleep(FULL_PAUSE).await;
        for offered in std::mem::take(&mut self.offered) {
            // Stored or refused, it is settled.
            let _ = offered.await;
        }
        self.progress.take_back();
        self.anew = false;
        self.followers.clear();
        let limits = SensorLimits::default();
        self.machine = Some(VirtualSensor::new(self.descriptor.clone(), limits));
        let mut commands = Vec::new();
        for (source, binding) in self.descriptor.sources.iter().zip(&self.bindings) {
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

    /// Runs the machine, here as long as that is cheap, and stores what it says.
    async fn step(&mut self, inputs: Vec<Given>) {
        let mut events = Vec::new();
        let mut inputs = VecDeque::from(inputs);
        if let Some(machine) = &mut self.machine
            && machine.is_compiled()
            && self.slow < SLOW_IN_A_ROW
        {
            let (now, started) = (Clock::process().now(), Instant::now());
            let mut before = Duration::ZERO;
            // Binding makes the statement anew, which is not cheap.
            while inputs.front().is_some_and(|input| !is_command(input))
                && let Some(input) = inputs.pop_front()
            {
                evaluate(machine, now, input, &mut events);
                let elapsed = started.elapsed();
                let long = elapsed - before > INLINE_MAX;
                before = elapsed;
                self.slow = if long { self.slow + 1 } else { 0 };
                if elapsed > INLINE_MAX {
                    break;
                }
            }
        }
        if !inputs.is_empty() {
            self.compute(inputs, &mut events).await;
        }
        self.tell_dropped();
        self.events(events).await;
    }

    /// Counts and shows the elements that the machine did not use.
    fn tell_dropped(&mut self) {
        let Some(machine) = &self.machine else {
            return;
        };
        let sources = self.descriptor.sources.iter();
        let aliases = sources.map(|source| source.alias.as_str());
        for one in self.dropped.look(machine, aliases) {
            let of_source = one
                .alias
                .map_or(String::new(), |alias| format!("{alias}: "));
            let detail = format!("{of_source}{} elements, the last time", one.count);
            let (hop, name) = (Hop::Element, &self.name);
            let drops = &self.app.observability.drops;
            drops.record_times(one.count, hop, one.reason, name, detail, None);
            self.app.sensors.update(name, |sensor| {
                *sensor.dropped.entry(one.reason.to_owned()).or_default() += one.count;
            });
        }
    }

    /// Runs the machine on another thread.
    async fn compute(&mut self, inputs: VecDeque<Given>, events: &mut Vec<SensorEvent>) {
        let Some(mut machine) = self.machine.take() else {
            return;
        };
        if inputs.iter().any(is_command) {
            self.slow = 0;
        }
        let computed = tokio::task::spawn_blocking(move || {
            let mut events = Vec::new();
            for input in inputs {
                evaluate(&mut machine, Clock::process().now(), input, &mut events);
            }
            (machine, events)
        });
        match computed.await {
            Ok((machine, computed)) => {
                self.show_plan(&machine);
                self.machine = Some(machine);
                events.extend(computed);
            }
            Err(_) => fail(&self.app, &self.name, "the computation failed".to_owned()),
        }
    }

    /// Shows how the statement is evaluated.
    fn show_plan(&self, machine: &VirtualSensor) {
        let plan = machine.plan().map(ToString::to_string);
        self.app.sensors.update(&self.name, |sensor| {
            if sensor.plan != plan {
                sensor.plan = plan;
            }
        });
    }

    async fn events(&mut self, events: Vec<SensorEvent>) {
        let mut outputs = Vec::new();
        for event in events {
            match event {
                SensorEvent::Output(element) => outputs.push(element),
                SensorEvent::Running => self.state(SensorState::Running, None),
                SensorEvent::Waiting { .. } => self.state(SensorState::Waiting, None),
                SensorEvent::Failed { reason } => self.state(SensorState::Failed, Some(reason)),
                SensorEvent::EvaluationFailed { reason } => {
                    self.drop("evaluation failed", reason.clone());
                    let state = SensorState::Running;
                    self.state(state, Some(format!("the last evaluation failed: {reason}")));
                }
                SensorEvent::Stopped => {}
            }
        }
        if !outputs.is_empty() {
            self.offer(outputs).await;
        }
    }

    fn state(&self, state: SensorState, message: Option<String>) {
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

    fn show_bindings(&self) {
        self.app.sensors.update(&self.name, |sensor| {
            sensor.history = self.history.iter().cloned().collect();
            for (source, binding) in sensor.sources.iter_mut().zip(&self.bindings) {
                let bound = binding.bound().map(|bound| Bound {
                    stream: bound.candidate.stream.clone(),
                    since: rfc3339(bound.since),
                    why: bound.candidate.why.clone(),
                });
                source.bound = bound.collect();
                source.unbound_reason = binding.unbound_reason();
            }
        });
    }
}

fn is_command(input: &Given) -> bool {
    matches!(input, Input::Command(_))
}

fn evaluate(
    machine: &mut VirtualSensor,
    now: chappe_machine::Instant,
    input: Given,
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
            Change::Published { key, kind } | Change::Removed { key, kind } => {
                *kind == EntityKind::Stream || catalogue::name_of(key).is_some()
            }
        },
        FeedItem::Resync { .. } => true,
    }
}
