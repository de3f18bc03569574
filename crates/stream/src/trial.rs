//! A trial of a virtual sensor: elements that are at hand go in, and its results are returned.
//!
//! The machine is the one that a node runs ([`VirtualSensor`]). Its clock is that of the elements: each arrives at its
//! receive time, and after the last one the sources are silent, so that the last turn of a window is evaluated too; on
//! the node's clock until the window is empty, or for 120 turns. The same elements always give the same results.
//!
//! Deliberately out of scope: where the elements come from, and choices of a source after its first one, which a node
//! uses when a stream falls silent.

use std::sync::Arc;
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output, drain};

use crate::{
    Descriptor, Extent, SensorCommand, SensorCounters, SensorEvent, SensorInput, SensorLimits,
    SensorState, StreamElement, StreamSchema, Timestamp, VirtualSensor, WindowClock,
};

/// Most elements of a trial; reason: a day of a source with one element a second is 86,400.
pub const ELEMENTS_MAX: usize = 100_000;
/// Most ends of turns of a trial that no element causes; reason: as many as there may be elements.
const TURNS_MAX: usize = ELEMENTS_MAX;
/// Most turns of the node's clock after that of the last element; reason: two minutes of turns of a second, which a
/// person still reads.
const SILENT_TURNS_MAX: u32 = 120;
/// Most bytes of all results in memory; reason: one evaluation may give 16 MiB, a hundred thousand would fill any host.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// Most reasons of failed evaluations that a trial returns; reason: a reader looks at the first.
const FAILURES_MAX: usize = 100;

/// A stream that a source of the sensor reads.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialStream {
    /// The source.
    pub alias: String,
    /// The name of the stream.
    pub stream: Arc<str>,
    /// The schema of its elements.
    pub schema: StreamSchema,
    /// Its elements.
    pub elements: Vec<StreamElement>,
}

/// An element, and the results that it caused.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialStep {
    /// The index of the stream and that of its element; `None`: a turn ended while the sources were silent.
    pub input: Option<(usize, usize)>,
    /// The results.
    pub outputs: Vec<StreamElement>,
}

/// Elements or results that the sensor did not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unused {
    /// The source, if the reason concerns one.
    pub source: Option<String>,
    /// The reason, of [`WindowCounters::by_reason`](crate::WindowCounters::by_reason) or
    /// [`SensorCounters::by_reason`].
    pub reason: &'static str,
    /// How many there are, at least one.
    pub count: u64,
}

/// The course of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Its steps in the order of receipt.
    pub steps: Vec<TrialStep>,
    /// Why evaluations failed, each reason once while it stays the same.
    pub failures: Vec<String>,
    /// Elements that a source refused as too late or too early and reports as dead letters.
    pub dead_letters: u64,
    /// What was not used, by source and reason.
    pub unused: Vec<Unused>,
    /// The counters of the sensor.
    pub counters: SensorCounters,
}

/// A trial that is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// Sources have no stream.
    #[error("no stream is given for {}", .0.join(", "))]
    Unbound(Vec<String>),
    /// A stream is given for a source that the descriptor does not have.
    #[error("the descriptor has no source {0:?}")]
    Unknown(String),
    /// The statement does not match the fields.
    #[error("{0}")]
    Statement(String),
    /// There are too many elements.
    #[error("there are {0} elements, more than {ELEMENTS_MAX}")]
    Elements(usize),
    /// The elements are too far apart.
    #[error("more than {TURNS_MAX} turns of the node's clock end between the elements")]
    Turns,
    /// The results are too large.
    #[error("the results take more than {OUTPUT_BYTES_MAX} bytes")]
    Outputs,
    /// The caller stopped it.
    #[error("the trial was stopped before its end")]
    Stopped,
}

impl Trial {
    /// Passes the elements of `streams` to a sensor of `descriptor`. `goes_on` is asked before each evaluation. Of streams
    /// with the same name, which several sources read, the elements of the first count.
    ///
    /// # Errors
    /// The trial is not possible, or `goes_on` returned false. A failed evaluation is not an error: see
    /// [`Self::failures`].
    pub fn run(
        descriptor: &Descriptor,
        streams: &[TrialStream],
        limits: SensorLimits,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<Self, TrialError> {
        Self::run_interruptible(descriptor, streams, limits, |_| goes_on())
    }

    /// The same, but `goes_on` gets the sensor, whose [`VirtualSensor::interrupt_handles`] stop the evaluation that
    /// follows.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub fn run_interruptible(
        descriptor: &Descriptor,
        streams: &[TrialStream],
        limits: SensorLimits,
        goes_on: impl FnMut(&VirtualSensor) -> bool,
    ) -> Result<Self, TrialError> {
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (at, stream) in streams.iter().enumerate() {
            if streams[..at].iter().any(|one| one.stream == stream.stream) {
                continue;
            }
            order.extend((0..stream.elements.len()).map(|index| (at, index)));
        }
        if order.len() > ELEMENTS_MAX {
            return Err(TrialError::Elements(order.len()));
        }
        let received = |(at, index): &(usize, usize)| streams[*at].elements[*index].receive_time;
        order.sort_by_key(received);
        let first = order.first().map(received).unwrap_or_default();
        let mut course = Course::bind(descriptor, streams, limits, first, goes_on)?;
        let mut now = Instant::ZERO;
        for one in &order {
            let time = received(one);
            let since = u64::try_from(time.0.saturating_sub(first.0)).unwrap_or(0);
            now = Instant::ZERO + Duration::from_nanos(since);
            course.end_turns(now)?;
            let (at, index) = *one;
            let input = SensorInput {
                stream: streams[at].stream.clone(),
                element: Arc::new(streams[at].elements[index].clone()),
            };
            course.input(now, Some(*one), Input::Receive(input))?;
        }
        if !order.is_empty() {
            course.end_turns(now + silence(descriptor))?;
        }
        course.trial.unused = unused(&course.sensor);
        course.trial.counters = course.sensor.counters();
        Ok(course.trial)
    }

    /// The results, oldest first.
    pub fn outputs(&self) -> impl Iterator<Item = &StreamElement> {
        self.steps.iter().flat_map(|step| &step.outputs)
    }
}

/// What a sensor has not used so far.
fn unused(sensor: &VirtualSensor) -> Vec<Unused> {
    let mut unused = Vec::new();
    let mut add = |source: Option<&str>, counts: [(&'static str, u64); 7]| {
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        unused.extend(counts.map(|(reason, count)| Unused {
            source: source.map(str::to_owned),
            reason,
            count,
        }));
    };
    for source in &sensor.descriptor().sources {
        if let Some(counters) = sensor.window_counters(&source.alias) {
            add(Some(&source.alias), counters.by_reason());
        }
    }
    add(None, sensor.counters().by_reason());
    unused
}

/// The time after the last element in which the turn of each window ends; on the node's clock, also the turns in which
/// that element leaves the window.
fn silence(descriptor: &Descriptor) -> Duration {
    let ends = descriptor.sources.iter().map(|source| {
        let Extent::Time(slide) = source.slide else {
            return Duration::ZERO;
        };
        let wait = source.timing.wait;
        match source.timing.clock {
            WindowClock::Node => {
                let window = match source.window {
                    Extent::Time(window) => window,
                    Extent::Count(_) => Duration::ZERO,
                };
                let silent = window.min(slide.saturating_mul(SILENT_TURNS_MAX));
                let last = slide.saturating_add(wait.unwrap_or_default());
                last.saturating_add(silent)
            }
            WindowClock::Source => slide.saturating_add(wait.unwrap_or(slide)),
        }
    });
    ends.max().unwrap_or_default()
}

/// A trial on its way.
struct Course<F> {
    sensor: VirtualSensor,
    trial: Trial,
    turns: usize,
    output_bytes: usize,
    goes_on: F,
}

impl<F: FnMut(&VirtualSensor) -> bool> Course<F> {
    fn bind(
        descriptor: &Descriptor,
        streams: &[TrialStream],
        limits: SensorLimits,
        first: Timestamp,
        goes_on: F,
    ) -> Result<Self, TrialError> {
        let known = |alias: &String| descriptor.sources.iter().any(|it| it.alias == *alias);
        if let Some(stranger) = streams.iter().find(|stream| !known(&stream.alias)) {
            return Err(TrialError::Unknown(stranger.alias.clone()));
        }
        let mut course = Self {
            sensor: VirtualSensor::new(descriptor.clone(), limits),
            trial: Trial {
                steps: Vec::new(),
                failures: Vec::new(),
                dead_letters: 0,
                unused: Vec::new(),
                counters: SensorCounters::default(),
            },
            turns: 0,
            output_bytes: 0,
            goes_on,
        };
        for stream in streams {
            let command = SensorCommand::Bind {
                alias: stream.alias.clone(),
                stream: stream.stream.clone(),
                schema: stream.schema.clone(),
            };
            course.input(Instant::ZERO, None, Input::Command(command))?;
        }
        match course.sensor.state() {
            SensorState::Running => {}
            SensorState::Waiting(aliases) => return Err(TrialError::Unbound(aliases.clone())),
            SensorState::Failed(reason) => return Err(TrialError::Statement(reason.clone())),
            SensorState::Stopped => return Err(TrialError::Statement("it has stopped".to_owned())),
        }
        if course.sensor.follows_clock() {
            let command = SensorCommand::Clock(first);
            course.input(Instant::ZERO, None, Input::Command(command))?;
        }
        course.trial.steps.clear();
        Ok(course)
    }

    /// Ends the turns that are over at `now`.
    fn end_turns(&mut self, now: Instant) -> Result<(), TrialError> {
        while let Some(end) = self.sensor.deadline().filter(|end| *end <= now) {
            self.turns += 1;
            if self.turns > TURNS_MAX {
                return Err(TrialError::Turns);
            }
            self.input(end, None, Input::Timeout)?;
        }
        Ok(())
    }

    fn input(
        &mut self,
        now: Instant,
        of: Option<(usize, usize)>,
        input: Input<SensorInput, SensorCommand>,
    ) -> Result<(), TrialError> {
        if !(self.goes_on)(&self.sensor) {
            return Err(TrialError::Stopped);
        }
        let mut outputs = Vec::new();
        let trial = &mut self.trial;
        drain(&mut self.sensor, now, input, |output| match output {
            Output::Event(SensorEvent::Output(element)) => outputs.push(element),
            Output::Event(SensorEvent::EvaluationFailed { reason }) => {
                if trial.failures.len() < FAILURES_MAX {
                    trial.failures.push(reason);
                }
            }
            Output::Event(SensorEvent::DeadLetter { .. }) => trial.dead_letters += 1,
            Output::Event(_) | Output::Transmit(_) => {}
        });
        let bytes = outputs.iter().map(StreamElement::size_bytes);
        self.output_bytes = self.output_bytes.saturating_add(bytes.sum());
        if of.is_some() || !outputs.is_empty() {
            trial.steps.push(TrialStep { input: of, outputs });
        }
        match self.output_bytes > OUTPUT_BYTES_MAX {
            true => Err(TrialError::Outputs),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Field, FieldType, Position, Quality, Value};

    const SECOND_NS: i64 = 1_000_000_000;

    fn stream(values: &[(i64, f64)]) -> TrialStream {
        let element = |(index, (seconds, value)): (usize, &(i64, f64))| StreamElement {
            position: Position {
                epoch: Epoch(1),
                sequence: index as u64 + 1,
            },
            source_time: Timestamp(seconds * SECOND_NS),
            receive_time: Timestamp(seconds * SECOND_NS),
            key: None,
            values: vec![Value::Double(*value)],
            quality: Quality::Good,
            origin: None,
        };
        TrialStream {
            alias: "air".to_owned(),
            stream: "lab.room".into(),
            schema: StreamSchema {
                fields: vec![Field {
                    name: "temperature".to_owned(),
                    field_type: FieldType::Double,
                    unit: None,
                    observed_property: None,
                    description: None,
                }],
                key: None,
            },
            elements: values.iter().enumerate().map(element).collect(),
        }
    }

    fn descriptor(slide: &str, column: &str) -> Descriptor {
        let text = format!(
            "name = \"mean\"\n[[source]]\nalias = \"air\"\nstream = \"lab.room\"\n\
             window = \"1m\"\n{slide}\n[output]\nsql = \"select avg({column}) as mean from air\"\n\
             [[output.field]]\nname = \"mean\"\ntype = \"double\"\n"
        );
        Descriptor::parse("mean.toml", &text).unwrap()
    }

    fn run(slide: &str, values: &[(i64, f64)]) -> Result<Trial, TrialError> {
        let descriptor = descriptor(slide, "temperature");
        Trial::run(
            &descriptor,
            &[stream(values)],
            SensorLimits::default(),
            || true,
        )
    }

    #[test]
    fn each_element_is_a_step_with_its_results() {
        let trial = run("slide = 1", &[(0, 1.0), (1, 3.0)]).unwrap();
        let inputs: Vec<_> = trial.steps.iter().map(|step| step.input).collect();
        assert_eq!(inputs, [Some((0, 0)), Some((0, 1))]);
        let means: Vec<_> = trial.outputs().map(|it| it.values[0].clone()).collect();
        assert_eq!(means, [Value::Double(1.0), Value::Double(2.0)]);
        assert_eq!(trial.counters.inputs, 2);
    }

    #[test]
    fn the_last_turn_is_evaluated_although_nothing_follows() {
        for clock in ["", "clock = \"node\""] {
            let slide = format!("slide = \"10s\"\n{clock}");
            let trial = run(&slide, &[(1, 1.0), (2, 2.0), (12, 6.0)]).unwrap();
            let mut outputs = trial.outputs();
            let is_of_all = |output: &StreamElement| output.values == [Value::Double(3.0)];
            assert!(outputs.any(is_of_all), "{clock}: {trial:?}");
        }
    }

    #[test]
    fn on_the_nodes_clock_silence_follows_the_last_element() {
        let run = |window: &str| {
            let text = format!(
                "name = \"silent\"\n[[source]]\nalias = \"air\"\nstream = \"lab.room\"\nwindow = \"{window}\"\n\
                 slide = \"10s\"\nclock = \"node\"\n[output]\nsql = \"select count(*) = 0 as silent from air\"\n\
                 [[output.field]]\nname = \"silent\"\ntype = \"boolean\"\n"
            );
            let descriptor = Descriptor::parse("silent.toml", &text).unwrap();
            let streams = [stream(&[(5, 1.0)])];
            let trial = Trial::run(&descriptor, &streams, SensorLimits::default(), || true);
            let silent = |output: &StreamElement| output.values == [Value::Boolean(true)];
            trial.unwrap().outputs().map(silent).collect::<Vec<_>>()
        };
        assert_eq!(run("30s"), [false, false, false, true]);
        // A long window is not waited for.
        assert_eq!(run("100d").len(), SILENT_TURNS_MAX as usize + 1);
    }

    #[test]
    fn elements_that_are_not_used_are_counted_by_reason() {
        let mut given = stream(&[(100, 1.0), (7, 2.0), (900, 3.0)]);
        for element in &mut given.elements {
            element.receive_time = Timestamp(100 * SECOND_NS);
        }
        let descriptor = descriptor("slide = 1", "temperature");
        let trial = Trial::run(&descriptor, &[given], SensorLimits::default(), || true).unwrap();
        let unused = |reason| Unused {
            source: Some("air".to_owned()),
            reason,
            count: 1,
        };
        assert_eq!(trial.unused, [unused("late"), unused("early")]);
    }

    #[test]
    fn impossible_trials_say_why() {
        let descriptor = descriptor("slide = 1", "temperature");
        let run = |descriptor: &Descriptor, streams: &[TrialStream]| {
            Trial::run(descriptor, streams, SensorLimits::default(), || true)
        };
        let unbound = TrialError::Unbound(vec!["air".to_owned()]);
        assert_eq!(run(&descriptor, &[]), Err(unbound));
        let mut stranger = stream(&[]);
        stranger.alias = "water".to_owned();
        let unknown = TrialError::Unknown("water".to_owned());
        assert_eq!(run(&descriptor, &[stranger]), Err(unknown));
        let other = super::tests::descriptor("slide = 1", "humidity");
        let failed = run(&other, &[stream(&[])]);
        assert!(
            matches!(failed, Err(TrialError::Statement(_))),
            "{failed:?}"
        );
        let stopped = Trial::run(
            &descriptor,
            &[stream(&[(0, 1.0)])],
            SensorLimits::default(),
            || false,
        );
        assert_eq!(stopped, Err(TrialError::Stopped));
    }

    #[test]
    fn years_between_elements_of_the_nodes_clock_are_refused() {
        let slide = "slide = \"1s\"\nclock = \"node\"";
        let far = run(slide, &[(0, 1.0), (10_000_000, 2.0)]);
        assert_eq!(far, Err(TrialError::Turns));
    }
}
