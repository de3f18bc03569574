//! The peer GSN 2.0.1: a producer and as many subscriptions as there are nodes, in one JVM.
//!
//! That is less than the study's experiment (one producer, not 24; two doubles and an integer, not
//! three doubles) and easier: 24 JVMs do not fit on one small machine. Storage is H2 in memory,
//! window and history of one. `zeromq-async` is PUB/SUB; `zeromq-sync` waits for a byte after each
//! element (it must be loaded after the producer, or it never starts). The results are read from
//! the monitor's counters. The runs with `CounterVS` repeat the study's third one, ØMQ with Kryo, with
//! the study's instrument: each subscribing virtual sensor counts its elements, and two snapshots of
//! its counts are compared ([`counter`]).

mod counter;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::figures::Line;
use super::foreign::{Foreign, find};
use super::run::Bench;
use crate::{Error, Report, checkout};

/// Its folder, installed by `check/peers exchange`.
const LIBRARIES: &str = "target/peers/gsn";
/// Time limit for the JVM to produce.
const STARTING: Duration = Duration::from_secs(60);
/// Time limit for each subscription to receive an element.
const SUBSCRIBING: Duration = Duration::from_secs(60);
/// Ports, within the namespace of the run; those of zeromq-sync count up from the last.
const MONITOR: u16 = 22_001;
const PROXY: u16 = 22_022;
const DIRECTORY: u16 = 22_023;
const SYNC: u16 = 23_000;

/// What a subscribing virtual sensor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Processing {
    /// It passes its elements on.
    Bridge,
    /// It counts them: `CounterVS`.
    Counter,
}

/// The measured settings: the wrapper, the producer's period in milliseconds, the processing.
#[derive(Debug, Clone, Copy)]
struct Run {
    wrapper: &'static str,
    period_ms: u32,
    processing: Processing,
}

const fn bridge(wrapper: &'static str, period_ms: u32) -> Run {
    let processing = Processing::Bridge;
    Run {
        wrapper,
        period_ms,
        processing,
    }
}

const fn counted(wrapper: &'static str, period_ms: u32) -> Run {
    let processing = Processing::Counter;
    Run {
        wrapper,
        period_ms,
        processing,
    }
}

const RUNS: [Run; 6] = [
    bridge("zeromq-async", 10),
    bridge("zeromq-async", 1),
    bridge("zeromq-sync", 10),
    bridge("zeromq-sync", 1),
    counted("zeromq-async", 10),
    counted("zeromq-sync", 10),
];

impl Run {
    fn name(self) -> String {
        let Self {
            wrapper, period_ms, ..
        } = self;
        match self.processing {
            Processing::Bridge => format!("peer GSN, {wrapper}, every {period_ms} ms"),
            Processing::Counter => {
                format!("peer GSN, {wrapper} into CounterVS, every {period_ms} ms")
            }
        }
    }
}

/// Elements per second of all subscriptions together, at the maximum; or the reason why there are
/// none.
pub(crate) fn run(
    bench: &Bench<'_>,
    report: &mut Report,
    lines: &mut Vec<Line>,
) -> Result<f64, String> {
    let mut most: Result<f64, String> = Err("GSN was not measured".to_owned());
    for run in RUNS {
        let name = run.name();
        match measure(bench, run, &name, report) {
            Ok((line, all)) => {
                lines.push(line);
                most = Ok(most.map_or(all, |most| most.max(all)));
            }
            Err(error) => {
                report.skipped.push(format!("{name}: {error}"));
                most = most.or(Err(error.to_string()));
                if matches!(error, Error::Failed(ref what) if what.contains("not installed")) {
                    break;
                }
            }
        }
    }
    most
}

fn measure(
    bench: &Bench<'_>,
    run: Run,
    name: &str,
    report: &mut Report,
) -> Result<(Line, f64), Error> {
    (bench.settings.progress)(name);
    let Run {
        wrapper, period_ms, ..
    } = run;
    let folder = bench
        .folder
        .path()
        .join(format!("gsn-{wrapper}-{period_ms}-{:?}", run.processing));
    let mut server = start(&folder, period_ms)?;
    wait(&mut server, STARTING, |counters| {
        counters.count("producer") > 0
    })?;
    let nodes = bench.sizes.nodes;
    for number in 0..nodes {
        let text = subscriber(run, number);
        write(
            &folder,
            &format!("virtual-sensors/subscriber{number}.xml"),
            &text,
        )?;
    }
    let all = |counters: &Counters| (0..nodes).all(|n| counters.subscriber(n) > 0);
    wait(&mut server, SUBSCRIBING, all)?;
    // A JVM is slow at first.
    std::thread::sleep(2 * bench.sizes.warm);
    let counted = run.processing == Processing::Counter;
    let snapshot = || counted.then(|| counter::snapshot(nodes)).transpose();
    let first = snapshot()?;
    let (begin, before, busy) = (Instant::now(), Counters::read()?, server.processor_s());
    std::thread::sleep(bench.sizes.measure);
    let (after, seconds) = (Counters::read()?, begin.elapsed().as_secs_f64());
    let busy = (server.processor_s() - busy) / seconds;
    let last = snapshot()?;
    let produced = (after.count("producer") - before.count("producer")) as f64 / seconds;
    let mut rates: Vec<f64> = match first.iter().zip(&last).next() {
        Some((first, last)) => first.iter().zip(last).map(counter::rate).collect(),
        None => {
            let counts = (0..nodes).map(|n| after.subscriber(n) - before.subscriber(n));
            counts.map(|count| count as f64 / seconds).collect()
        }
    };
    rates.sort_by(f64::total_cmp);
    let total: f64 = rates.iter().sum();
    let mut row = |what: &str, value: f64, unit: &'static str, note: String| {
        report.row(&format!("{name}: {what}"), value, unit, note);
    };
    let slowest = format!("{nodes} of them; slowest {:.1}", rates[0]);
    row(
        "a virtual sensor, median",
        rates[rates.len() / 2],
        "1/s",
        slowest,
    );
    row("all together", total, "1/s", String::new());
    if let Some((first, last)) = first.zip(last) {
        let elements = counter::elements(&first, &last);
        let note = format!("between two snapshots of {nodes} counts");
        row("counted by CounterVS", elements as f64, "", note);
    }
    let note = format!("asked for {}", 1_000 / period_ms);
    row("the producer", produced, "1/s", note);
    row("processors busy", busy, "", String::new());
    let counter = if counted { "\nCounterVS" } else { "" };
    let line = Line {
        name: format!(
            "GSN {}\n{period_ms} ms{counter}",
            wrapper.trim_start_matches("zeromq-")
        ),
        generated: produced,
        consumed: rates[rates.len() / 2],
    };
    Ok((line, total))
}

fn start(folder: &Path, period_ms: u32) -> Result<Foreign, Error> {
    let libraries = checkout::root().map(|root| root.join(LIBRARIES));
    let libraries = libraries.filter(|path| path.is_dir());
    let (Some(libraries), Some(java)) = (libraries, find("java")) else {
        let what = "GSN or Java is not installed (`check/peers exchange` installs them)";
        return Err(Error::Failed(what.to_owned()));
    };
    for part in ["conf", "virtual-sensors", "logs"] {
        let path = folder.join(part);
        std::fs::create_dir_all(&path).map_err(Error::io(format!("making {}", path.display())))?;
    }
    let configuration = format!(
        "<gsn><monitor-port>{MONITOR}</monitor-port><zmq-enable>true</zmq-enable>\
         <zmqproxy>{PROXY}</zmqproxy><zmqmeta>{DIRECTORY}</zmqmeta>\
         <storage driver=\"org.h2.Driver\" url=\"jdbc:h2:mem:exchange\" user=\"sa\" \
         password=\"\"/></gsn>"
    );
    write(folder, "conf/gsn.xml", &configuration)?;
    let wrappers = "zeromq-async=ch.epfl.gsn.networking.zeromq.ZeroMQWrapperAsync\n\
                    zeromq-sync=ch.epfl.gsn.networking.zeromq.ZeroMQWrapperSync\n\
                    multiformat=ch.epfl.gsn.wrappers.MultiFormatWrapper\n";
    write(folder, "conf/wrappers.properties", wrappers)?;
    let address = format!(
        "<address wrapper=\"multiformat\"><predicate key=\"rate\">{period_ms}</predicate></address>"
    );
    let producer = sensor("producer", 10, &address, Processing::Bridge);
    write(folder, "virtual-sensors/producer.xml", &producer)?;
    let open = ["lang", "util", "nio"].map(|name| format!("java.base/java.{name}=ALL-UNNAMED"));
    let mut arguments: Vec<OsString> = Vec::new();
    for open in &open {
        arguments.extend(["--add-opens".into(), open.into()]);
    }
    let classes: PathBuf = libraries.join("*");
    arguments.extend([
        "-Djava.awt.headless=true".into(),
        "-cp".into(),
        classes.into(),
    ]);
    let main = ["ch.epfl.gsn.Main", "conf", "virtual-sensors"];
    arguments.extend(main.map(OsString::from));
    Foreign::start(&java, &arguments, folder)
}

fn subscriber(run: Run, number: usize) -> String {
    let wrapper = run.wrapper;
    let predicate =
        |key: &str, value: &str| format!("<predicate key=\"{key}\">{value}</predicate>");
    let mut predicates =
        predicate("vsensor", "producer") + &predicate("meta_port", &DIRECTORY.to_string());
    if wrapper == "zeromq-async" {
        predicates += &predicate("address", "tcp://127.0.0.1");
        predicates += &predicate("data_port", &PROXY.to_string());
    } else {
        let port = usize::from(SYNC) + number;
        predicates += &predicate("address", "tcp://127.0.0.1");
        predicates += &predicate("local_address", "127.0.0.1");
        predicates += &predicate("local_port", &port.to_string());
    }
    let address = format!("<address wrapper=\"{wrapper}\">{predicates}</address>");
    sensor(&name(number), 100, &address, run.processing)
}

/// The name of a subscribing virtual sensor.
fn name(number: usize) -> String {
    format!("subscriber{number}")
}

/// A descriptor: a bridge or a counter with a window and a history of one.
fn sensor(name: &str, priority: u32, address: &str, processing: Processing) -> String {
    // A counter gives its elements the time of its own, so that two may have one millisecond.
    let processing = match processing {
        Processing::Bridge => {
            "<class-name>ch.epfl.gsn.vsensor.BridgeVirtualSensor</class-name><output-structure>\
             <field name=\"light\" type=\"double\">a</field>\
             <field name=\"temperature\" type=\"double\">b</field>\
             <field name=\"packet_type\" type=\"int\">c</field></output-structure>"
        }
        Processing::Counter => {
            "<class-name>ch.epfl.gsn.vsensor.CounterVS</class-name>\
             <unique-timestamps>false</unique-timestamps><output-structure>\
             <field name=\"counter\" type=\"bigint\">a</field></output-structure>"
        }
    };
    format!(
        "<virtual-sensor name=\"{name}\" priority=\"{priority}\"><processing-class>\
         {processing}</processing-class><description>{name}</description>\
         <life-cycle pool-size=\"10\"/><addressing/><storage history-size=\"1\"/><streams>\
         <stream name=\"stream\"><source alias=\"source\" sampling-rate=\"1\" \
         storage-size=\"1\">{address}<query>select * from wrapper</query></source>\
         <query>select * from source</query></stream></streams></virtual-sensor>"
    )
}

/// Writes a file under another name and renames it, because GSN watches its descriptors.
fn write(folder: &Path, file: &str, text: &str) -> Result<(), Error> {
    let path = folder.join(file);
    let before = path.with_extension("new");
    std::fs::write(&before, text)
        .and_then(|()| std::fs::rename(&before, &path))
        .map_err(Error::io(format!("writing {}", path.display())))
}

fn wait(
    server: &mut Foreign,
    within: Duration,
    done: impl Fn(&Counters) -> bool,
) -> Result<(), Error> {
    let begin = Instant::now();
    loop {
        if Counters::read().is_ok_and(|counters| done(&counters)) {
            return Ok(());
        }
        if begin.elapsed() > within || !server.runs() {
            let what = format!("GSN does not start: {}", server.last_output());
            return Err(Error::Failed(what));
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// The counters of the monitor: a name and a number per line.
#[derive(Debug, PartialEq)]
struct Counters(Vec<(String, u64)>);

impl Counters {
    fn read() -> Result<Self, Error> {
        let failed = || Error::io("asking GSN's monitor");
        let mut stream = TcpStream::connect(("127.0.0.1", MONITOR)).map_err(failed())?;
        let patience = Some(Duration::from_secs(5));
        stream.set_read_timeout(patience).map_err(failed())?;
        stream
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .map_err(failed())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(failed())?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let pair = |line: &str| {
            let (name, number) = line.trim().rsplit_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        Self(text.lines().filter_map(pair).collect())
    }

    /// Elements produced by a virtual sensor.
    fn count(&self, sensor: &str) -> u64 {
        let name = format!("vs.{sensor}.output.produced.counter");
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, count)| *count)
    }

    fn subscriber(&self, number: usize) -> u64 {
        self.count(&name(number))
    }
}

#[cfg(test)]
mod tests {
    use chappe_xml::{Element, Name};

    use super::*;

    #[test]
    fn counters_are_found_by_their_sensor() {
        let text = "HTTP/1.1 200 OK\r\n\r\nvs.subscriber1.output.produced.counter 7\r\n\
                    vs.subscriber11.output.produced.counter 8\r\n";
        let counters = Counters::parse(text);
        assert_eq!((counters.subscriber(1), counters.subscriber(11)), (7, 8));
        assert_eq!(counters.count("producer"), 0);
    }

    #[test]
    fn descriptors_are_xml() {
        let name = |local: &str| Name::owned("", local);
        for (run, address) in [
            (bridge("zeromq-async", 10), "data_port=22022"),
            (bridge("zeromq-sync", 10), "local_port=23003"),
            (counted("zeromq-sync", 10), "local_port=23003"),
        ] {
            let wrapper = run.wrapper;
            let text = subscriber(run, 3);
            let root =
                Element::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(root.name, name("virtual-sensor"));
            assert_eq!(root.attribute(&name("name")), Some("subscriber3"));
            let source = ["streams", "stream", "source", "address"];
            let found = source
                .iter()
                .try_fold(&root, |at, part| at.child(&name(part)));
            let found = found.unwrap_or_else(|| panic!("no {source:?} in {text}"));
            assert_eq!(found.attribute(&name("wrapper")), Some(wrapper));
            let predicate = name("predicate");
            let keys = found.children_named(&predicate).map(|it| {
                let key = it.attribute(&name("key")).expect("a key");
                format!("{key}={}", it.text())
            });
            let keys: Vec<_> = keys.collect();
            assert!(keys.iter().any(|key| key == address), "{keys:?}");
        }
    }
}
