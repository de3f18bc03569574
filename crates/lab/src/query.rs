//! A virtual sensor from log to log: elements are read, pass a window of one, a predicate and a
//! projection, and are stored, by both ways to evaluate a statement. SQLite's statement is the same
//! with a `limit`, which is not compiled. The log is on real files at level `process`.
//!
//! Then a mean over a small and over a large window, evaluated at each element: its cost is that of the
//! change, so both take about the same time.
//!
//! The figures are elements per second of processor time of the entire process, including the log's
//! thread: the rate of one core, independent of other programs.

use std::sync::Arc;
use std::time::Instant;

use chappe_log::{Appended, Level, Options, Store};
use chappe_machine::{Input, Machine, Output};
use chappe_stream::{
    Descriptor, Field, FieldType, Position, Quality, SensorCommand, SensorEvent, SensorInput,
    SensorLimits, StreamElement, StreamLog, StreamSchema, StreamStore, Timestamp, Value,
    VirtualSensor,
};
use chappe_transport::FileDisk;

use crate::process::{Folder, own_processor_s};
use crate::timing::median;
use crate::{Error, Limit, Reference, Report, Settings};

/// Elements of a full run.
const ELEMENTS: usize = 500_000;
/// Elements of a quick one.
const ELEMENTS_QUICK: usize = 100_000;
/// Elements of one append at the source.
const BATCH: usize = 100;
/// Repeats, of which the median counts.
const REPEATS: usize = 5;
/// The statement.
const STATEMENT: &str = "select a, b * 2 as b, c from src where a > 10";

/// The statement over windows.
const MEAN: &str = "select null as a, avg(b) as b, null as c from src";
/// The small window.
const WINDOW_SMALL: usize = 100;
/// The large window.
const WINDOW_LARGE: usize = 100_000;
/// The large window of a quick run, which its elements fill.
const WINDOW_LARGE_QUICK: usize = 20_000;

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("query", settings.seed);
    let elements = match settings.quick {
        true => ELEMENTS_QUICK,
        false => ELEMENTS,
    };
    let folder = Folder::new("query")?;
    let disk = FileDisk::open(folder.path()).map_err(Error::io("opening the log's folder"))?;
    let opening = Error::failed("opening the log");
    let (store, _) =
        Store::open(Box::new(disk), Options::default(), settings.seed).map_err(opening)?;
    let store = StreamStore::new(store);
    let bench = Bench {
        source: stream(&store, "source")?,
        store,
        elements,
    };
    (settings.progress)(&format!("storing {elements} elements"));
    let stored = bench.fill(settings.seed)?;
    let note = "floor: 100 at once, encoded and stored";
    report.row("append", stored.per_core(elements), "1/s", note);
    let read = bench.read()?;
    let note = "floor: a follower's elements";
    report.row("read and decode", read.per_core(elements), "1/s", note);
    let (mut compiled, mut sqlite) = (Vec::new(), Vec::new());
    for repeat in 0..REPEATS {
        (settings.progress)(&format!("log to log, {} of {REPEATS}", repeat + 1));
        let (spent, one) = bench.pass(&format!("compiled-{repeat}"), STATEMENT, 1, true)?;
        compiled.push(spent);
        let statement = format!("{STATEMENT} limit 1");
        let (spent, other) = bench.pass(&format!("sqlite-{repeat}"), &statement, 1, false)?;
        sqlite.push(spent);
        if one != other {
            let what = format!("the compiled path produced {one:?}, SQLite {other:?}");
            return Err(Error::Failed(what));
        }
    }
    let of = |spent: &[Spent]| median(spent.iter().map(|one| one.per_core(elements)));
    let rate = of(&compiled);
    let note = format!("median of {REPEATS}: read, window, statement, append");
    report.row("log to log, compiled", rate, "1/s", note);
    let wall = compiled.iter().map(|one| elements as f64 / one.wall_s);
    let best = wall.fold(0.0, f64::max);
    let note = "the best of the repeats, by the wall clock";
    report.row("log to log, compiled, wall", best, "1/s", note);
    let peer = of(&sqlite);
    let note = format!("median of {REPEATS}: the same, peer in the same run");
    report.row("log to log, SQLite", peer, "1/s", note);
    let name = "elements a core, log to log, compiled";
    let sqlite = Reference::new("SQLite", peer);
    report.target(name, (rate, "1/s"), sqlite, Limit::AtLeast(3.0));
    means(settings, &bench, &mut report)?;
    let floor = 1.0 / (1.0 / read.per_core(elements) + 1.0 / stored.per_core(elements));
    let floor = Reference::new("floor: read, and append", floor);
    report.target(name, (rate, "1/s"), floor, Limit::AtLeast(0.5));
    Ok(report)
}

/// The mean over a small and over a large window.
fn means(settings: &Settings, bench: &Bench, report: &mut Report) -> Result<(), Error> {
    let large = match settings.quick {
        true => WINDOW_LARGE_QUICK,
        false => WINDOW_LARGE,
    };
    let mut rates = [Vec::new(), Vec::new()];
    for repeat in 0..REPEATS {
        (settings.progress)(&format!("means, {} of {REPEATS}", repeat + 1));
        for (rates, window) in rates.iter_mut().zip([WINDOW_SMALL, large]) {
            let name = format!("mean-{window}-{repeat}");
            let (spent, _) = bench.pass(&name, MEAN, window, true)?;
            rates.push(spent.per_core(bench.elements));
        }
    }
    let [small_rate, rate] = rates.map(median);
    let note = format!("median of {REPEATS}: an output for each element, log to log");
    let name = format!("mean over {WINDOW_SMALL} elements");
    report.row(&name, small_rate, "1/s", note.clone());
    let name = format!("mean over {large} elements");
    report.row(&name, rate, "1/s", note);
    let small = Reference::new("the window of 100", small_rate);
    let name = "elements a core, mean over the large window";
    report.target(name, (rate, "1/s"), small, Limit::AtLeast(0.5));
    Ok(())
}

struct Bench {
    store: StreamStore,
    source: StreamLog,
    elements: usize,
}

/// The time of a pass.
struct Spent {
    processor_s: f64,
    wall_s: f64,
}

/// The output of a pass: how many elements, and the sum of a field.
#[derive(Debug, PartialEq)]
struct Produced {
    elements: usize,
    sum: f64,
}

impl Spent {
    fn per_core(&self, elements: usize) -> f64 {
        elements as f64 / self.processor_s
    }
}

impl Bench {
    fn fill(&self, seed: u64) -> Result<Spent, Error> {
        let number = |index: usize| {
            let value = Value::Double(((index as u64).wrapping_add(seed) % 100) as f64);
            element(index, vec![value.clone(), value.clone(), value])
        };
        let all: Vec<StreamElement> = (0..self.elements).map(number).collect();
        measured(|| {
            let mut last = None;
            for batch in all.chunks(BATCH) {
                last = Some(
                    self.source
                        .append(batch)
                        .map_err(Error::failed("storing"))?,
                );
            }
            wait(last)
        })
    }

    fn read(&self) -> Result<Spent, Error> {
        let mut follower = self.source.follow(0);
        let mut found = 0;
        let spent = measured(|| {
            while let Some(elements) = follower.try_next().map_err(Error::failed("reading"))? {
                found += elements.len();
            }
            Ok(())
        })?;
        match found == self.elements {
            true => Ok(spent),
            false => Err(Error::Failed(format!(
                "read {found} of {} elements",
                self.elements
            ))),
        }
    }

    /// Passes all elements through a virtual sensor into a separate stream.
    fn pass(
        &self,
        name: &str,
        sql: &str,
        window: usize,
        compiled: bool,
    ) -> Result<(Spent, Produced), Error> {
        let target = stream(&self.store, name)?;
        let mut sensor = sensor(sql, window)?;
        if sensor.is_compiled() != compiled {
            return Err(Error::Failed(format!("{sql:?}: {:?}", sensor.plan())));
        }
        let stream = self.source.shared_name();
        let mut follower = self.source.follow(0);
        let mut produced = Produced {
            elements: 0,
            sum: 0.0,
        };
        let spent = measured(|| {
            let (mut out, mut last) = (Vec::new(), None);
            while let Some(elements) = follower.try_next().map_err(Error::failed("reading"))? {
                for element in elements {
                    let (stream, element) = (stream.clone(), Arc::new(element));
                    let input = Input::Receive(SensorInput { stream, element });
                    sensor.handle_input(chappe_machine::Instant::ZERO, input);
                    while let Some(Output::Event(event)) = sensor.poll_output() {
                        match event {
                            SensorEvent::Output(element) => out.push(element),
                            other => return Err(Error::Failed(format!("{other:?}"))),
                        }
                    }
                }
                for element in &out {
                    if let Some(Value::Double(value)) = element.values.get(1) {
                        produced.sum += value;
                    }
                }
                produced.elements += out.len();
                if !out.is_empty() {
                    last = Some(target.append(&out).map_err(Error::failed("storing"))?);
                    out.clear();
                }
            }
            wait(last)
        })?;
        Ok((spent, produced))
    }
}

fn wait(last: Option<Appended>) -> Result<(), Error> {
    last.map_or(Ok(()), |last| last.wait().map_err(Error::failed("storing")))
}

fn measured(work: impl FnOnce() -> Result<(), Error>) -> Result<Spent, Error> {
    let (begin, before) = (Instant::now(), own_processor_s());
    work()?;
    Ok(Spent {
        processor_s: own_processor_s() - before,
        wall_s: begin.elapsed().as_secs_f64(),
    })
}

fn stream(store: &StreamStore, name: &str) -> Result<StreamLog, Error> {
    let making = Error::failed("creating a stream");
    store
        .stream(name, Level::Process, &three_numbers(), None)
        .map_err(making)
}

fn three_numbers() -> StreamSchema {
    let field = |name: &str| Field {
        name: name.to_owned(),
        field_type: FieldType::Double,
        unit: None,
        observed_property: None,
        description: None,
    };
    StreamSchema {
        fields: ["a", "b", "c"].map(field).to_vec(),
        key: None,
    }
}

fn element(index: usize, values: Vec<Value>) -> StreamElement {
    let time = Timestamp(i64::try_from(index).unwrap_or(i64::MAX));
    StreamElement {
        position: Position::default(),
        source_time: time,
        receive_time: time,
        key: None,
        values,
        quality: Quality::Good,
        origin: None,
    }
}

/// The sensor of `sql`, bound to the source.
fn sensor(sql: &str, window: usize) -> Result<VirtualSensor, Error> {
    let mut text = format!(
        "name = \"bench\"\n[[source]]\nalias = \"src\"\nstream = \"source\"\nwindow = {window}\n\
         [output]\nsql = \"{sql}\"\n"
    );
    for field in three_numbers().fields {
        text += &format!(
            "[[output.field]]\nname = \"{}\"\ntype = \"double\"\n",
            field.name
        );
    }
    let reading = Error::failed("reading the descriptor");
    let descriptor = Descriptor::parse("bench.toml", &text).map_err(reading)?;
    let mut sensor = VirtualSensor::new(descriptor, SensorLimits::default());
    let bind = SensorCommand::Bind {
        alias: "src".into(),
        stream: "source".into(),
        schema: three_numbers(),
    };
    sensor.handle_input(chappe_machine::Instant::ZERO, Input::Command(bind));
    match sensor.poll_output() {
        Some(Output::Event(SensorEvent::Running)) => Ok(sensor),
        other => Err(Error::Failed(format!(
            "unexpected output of the sensor: {other:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_paths_are_what_they_say() {
        assert!(sensor(STATEMENT, 1).is_ok_and(|sensor| sensor.is_compiled()));
        assert!(sensor(MEAN, WINDOW_LARGE).is_ok_and(|sensor| sensor.is_compiled()));
        let other = format!("{STATEMENT} limit 1");
        assert!(sensor(&other, 1).is_ok_and(|sensor| !sensor.is_compiled()));
    }
}
