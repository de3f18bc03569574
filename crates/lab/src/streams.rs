//! Many streams: creating, restarting and binding with 10,000 and with 100,000 streams, and opening a log
//! with as many segments as 100 GB have.
//!
//! The reference of each time is the same with a tenth of the streams: linear work takes ten times as
//! long. The streams are created on the disk as a node does, in its log and in its registry; the restart
//! is a whole node's, up to its REST interface; the binding is that of a virtual sensor whose source
//! names a type. The disk of the temporary directory (`TMPDIR`) is used.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::time::Instant;

use chappe_log::{Level, Options, Store};
use chappe_node::config::Config;
use chappe_node::{Node, log_directory, registry_directory};
use chappe_registry::oxrdf::{NamedNode, Triple};
use chappe_registry::{
    Entity, EntityKind, Error as RegistryError, LogJournal, Principal, Publication, Registry,
    Search, vocabulary,
};
use chappe_stream::{
    Binding, BindingPolicy, Candidate, Field, FieldType, StreamElement, StreamLog, StreamSchema,
    StreamStore, Timestamp, Value,
};
use chappe_transport::{FileDisk, resident_bytes};

use crate::process::Folder;
use crate::{Error, Limit, Reference, Report, Settings};

/// The longest time with ten times the streams.
const TIMES_MOST: f64 = 12.0;
/// Segments of 64 MiB that 100 GB have.
const SEGMENTS: u64 = 1_600;
/// The longest time in which that log may open.
const OPEN_MOST_S: f64 = 2.0;
/// Bytes of a segment of the log of many: each frame is a 64th of a full one.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Bytes of its records, one in a frame; in a segment of 64 MiB they stand for batches of 64 KiB.
const RECORD_BYTES: usize = 1_000;

/// The times of one number of streams, in seconds.
struct Times {
    create: f64,
    restart: f64,
    bind: f64,
}

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("streams", settings.seed);
    let many = if settings.quick { 10_000 } else { 100_000 };
    let few = measure(settings, many / 10, &mut report)?;
    let all = measure(settings, many, &mut report)?;
    for (what, few, all) in [
        ("create", few.create, all.create),
        ("restart", few.restart, all.restart),
        ("bind by type", few.bind, all.bind),
    ] {
        let reference = Reference::new(format!("{what}, a tenth of the streams"), few);
        let name = format!("{what}, {many} streams");
        report.target(name, (all, "s"), reference, Limit::AtMost(TIMES_MOST));
    }
    segments(settings, &mut report)?;
    Ok(report)
}

fn measure(settings: &Settings, streams: usize, report: &mut Report) -> Result<Times, Error> {
    let directory = Folder::new("streams")?;
    let data = directory.path().join("data");
    (settings.progress)(&format!("creating {streams} streams"));
    let before = resident_bytes();
    let started = Instant::now();
    let store = open(&log_directory(&data), Options::default(), settings.seed)?;
    let journal = open(
        &registry_directory(&data),
        Options::default(),
        settings.seed,
    )?;
    let log = StreamStore::new(store.clone());
    define(&log, streams)?;
    let defined = started.elapsed().as_secs_f64();
    let kept = journal.stream("registry", Level::Power, b"");
    let kept = kept.map_err(Error::failed("defining the registry"))?;
    let registry = Registry::open(LogJournal::new(kept, || 0));
    let registry = registry.map_err(Error::failed("opening the registry"))?;
    register(&registry, streams)?;
    let create = started.elapsed().as_secs_f64();
    let resident = resident_bytes().saturating_sub(before) as f64;
    let note = format!("{defined:.2} s of it in the log, with one element each");
    report.row(&format!("create, {streams} streams"), create, "s", note);
    let bind = bind(&log, &registry, streams)?;
    report.row(
        &format!("bind by type, {streams} streams"),
        bind,
        "s",
        "all match",
    );
    let bytes = resident / streams as f64;
    let note = "log, elements' schemas and registry";
    report.row(
        &format!("a stream, of {streams}, created"),
        bytes,
        "B",
        note,
    );
    drop((log, registry));
    store.close().map_err(Error::failed("closing the log"))?;
    journal
        .close()
        .map_err(Error::failed("closing the registry"))?;

    (settings.progress)(&format!("restarting with {streams} streams"));
    let started = Instant::now();
    let store = open(&log_directory(&data), Options::default(), settings.seed + 1)?;
    let opened = started.elapsed().as_secs_f64();
    store.close().map_err(Error::failed("closing the log"))?;
    let restart = restart(directory.path(), &data)?;
    let note = format!("a whole node; the log alone opens in {opened:.2} s");
    report.row(&format!("restart, {streams} streams"), restart, "s", note);
    Ok(Times {
        create,
        restart,
        bind,
    })
}

fn open(directory: &Path, options: Options, seed: u64) -> Result<Store, Error> {
    let opening = Error::io(format!("opening {}", directory.display()));
    let disk = FileDisk::open(directory).map_err(opening)?;
    let opened = Store::open(Box::new(disk), options, seed);
    let (store, recovery) = opened.map_err(Error::failed("opening the log"))?;
    match recovery.corrupt.is_empty() {
        true => Ok(store),
        false => Err(Error::Failed(format!("damage: {:?}", recovery.corrupt))),
    }
}

fn name(number: usize) -> String {
    format!(
        "hall-{:02}.machine-{:03}.temperature-{number:06}",
        number % 20,
        number % 500
    )
}

fn property() -> String {
    "urn:example:air-temperature".to_owned()
}

/// Defines the streams and appends one element to each, as a node does.
fn define(log: &StreamStore, streams: usize) -> Result<(), Error> {
    let schema = StreamSchema {
        fields: vec![Field {
            name: "value".to_owned(),
            field_type: FieldType::Double,
            unit: Some("Cel".to_owned()),
            observed_property: Some(property()),
            description: None,
        }],
        key: None,
    };
    let mut openings = Vec::with_capacity(streams);
    for number in 0..streams {
        let origin = format!("urn:uuid:machine-{:03}", number % 500);
        let opening = log.define(&name(number), Level::Power, &schema, Some(&origin));
        openings.push(opening.map_err(Error::failed("defining a stream"))?);
    }
    let mut last = None;
    for opening in openings {
        let stream = opening.wait().map_err(Error::failed("defining a stream"))?;
        let element = StreamElement {
            position: Default::default(),
            source_time: Timestamp(1),
            receive_time: Timestamp(2),
            key: None,
            values: vec![Value::Double(21.5)],
            quality: Default::default(),
            origin: None,
        };
        let appended = stream.append(&[element]);
        last = Some(appended.map_err(Error::failed("storing"))?);
    }
    last.map_or(Ok(()), |last| last.wait().map_err(Error::failed("storing")))
}

/// Publishes the streams, as many at once as the registry takes.
fn register(registry: &Registry, streams: usize) -> Result<(), Error> {
    let failed = || Error::failed("publishing");
    let mut pending: VecDeque<Publication> = VecDeque::new();
    for number in 0..streams {
        let key = format!("urn:chappe:stream:{}", name(number));
        let mut entity = Entity::new(key.clone(), EntityKind::Stream, name(number));
        entity.types = vec!["{http://example.com/types}Thermometer".to_owned()];
        let observes = Triple::new(
            NamedNode::new_unchecked(key),
            vocabulary::OBSERVES.into_owned(),
            NamedNode::new_unchecked(property()),
        );
        entity.triples.push(observes);
        let publication = loop {
            match registry.publish(entity.clone()) {
                Err(RegistryError::Busy { .. }) => match pending.pop_front() {
                    Some(oldest) => drop(oldest.wait().map_err(failed())?),
                    None => return Err(Error::Failed("the registry stays busy".to_owned())),
                },
                publication => break publication.map_err(failed())?,
            }
        };
        pending.push_back(publication);
    }
    for publication in pending {
        publication.wait().map_err(failed())?;
    }
    Ok(())
}

/// Binds a source that names a type by its local part; the time in seconds.
fn bind(log: &StreamStore, registry: &Registry, streams: usize) -> Result<f64, Error> {
    let started = Instant::now();
    let search = Search {
        kind: Some(EntityKind::Stream),
        local_type: Some("Thermometer".to_owned()),
        observed_property: Some(property()),
        ..Search::default()
    };
    let keys = registry.search_keys(&search, &Principal::Operator);
    let found = keys.iter().filter_map(|key| {
        let existing = log.existing(key.strip_prefix("urn:chappe:stream:")?);
        existing.ok().flatten()
    });
    let candidate = |(registered, stream): (usize, StreamLog)| Candidate {
        stream: stream.name().to_owned(),
        device: stream.origin(),
        registered: registered as u64,
        why: "has type Thermometer".to_owned(),
        schema: stream.schema(),
    };
    let candidates: Vec<Candidate> = found.enumerate().map(candidate).collect();
    let mut binding = Binding::new("source", BindingPolicy::All, Default::default());
    let changes = binding.update(Timestamp(0), &candidates);
    let spent = started.elapsed().as_secs_f64();
    match candidates.len() == streams && !changes.is_empty() {
        true => Ok(spent),
        false => Err(Error::Failed(format!(
            "found {} of {streams}",
            candidates.len()
        ))),
    }
}

/// Starts a node on the data; the time in seconds.
fn restart(directory: &Path, data: &Path) -> Result<f64, Error> {
    let sensors = directory.join("sensors");
    fs::create_dir_all(&sensors).map_err(Error::io(format!("making {}", sensors.display())))?;
    let mut config = Config {
        data_directory: data.to_owned(),
        sensors_directory: sensors,
        ..Config::default()
    };
    config.discovery.enabled = false;
    config.http.listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    config.log.max_streams = 100_000;
    let runtime = chappe_node::runtime().map_err(Error::io("starting the runtime"))?;
    runtime.block_on(async {
        let started = Instant::now();
        let node = Node::start(config).await;
        let node = node.map_err(Error::failed("starting the node"))?;
        let spent = started.elapsed().as_secs_f64();
        let ended = node.shutdown().await;
        ended.map_err(Error::failed("ending the node"))?;
        Ok(spent)
    })
}

/// Opens a log with as many segments as 100 GB have, each with as many frames as a full one.
fn segments(settings: &Settings, report: &mut Report) -> Result<(), Error> {
    let segments = if settings.quick {
        SEGMENTS / 10
    } else {
        SEGMENTS
    };
    (settings.progress)(&format!("filling {segments} segments"));
    let directory = Folder::new("segments")?;
    let options = || Options {
        segment_bytes: SEGMENT_BYTES,
        recent_bytes: 0,
        ..Options::default()
    };
    let store = open(directory.path(), options(), settings.seed)?;
    let stream = store.stream("one", Level::Process, b"");
    let stream = stream.map_err(Error::failed("defining a stream"))?;
    let mut last = None;
    for number in 0..segments * SEGMENT_BYTES / (RECORD_BYTES as u64 + 84) {
        let appended = stream.append(vec![(number as i64, vec![7; RECORD_BYTES])]);
        last = Some(appended.map_err(Error::failed("storing"))?);
    }
    last.map_or(Ok(()), |last| last.wait().map_err(Error::failed("storing")))?;
    let records = stream.last();
    drop(stream);
    store.close().map_err(Error::failed("closing the log"))?;
    let before = resident_bytes();
    let started = Instant::now();
    let store = open(directory.path(), options(), settings.seed + 1)?;
    let spent = started.elapsed().as_secs_f64();
    let resident = resident_bytes().saturating_sub(before) as f64;
    if store.existing("one").map(|stream| stream.last()) != Some(records) {
        return Err(Error::Failed("records are missing".to_owned()));
    }
    let name = format!("open, {segments} segments");
    let note = "segments of 1 MiB with the frames of 64 MiB";
    report.row(&name, spent, "s", note);
    report.row(
        "memory of that log",
        resident,
        "B",
        format!("{records} frames"),
    );
    let reference = Reference::new("2 s asked for", OPEN_MOST_S);
    report.target(name, (spent, "s"), reference, Limit::AtMost(1.0));
    store.close().map_err(Error::failed("closing the log"))
}
