//! SQL over all that a stream keeps: aggregates over 100,000 and 10 million elements, and 100 million
//! when that part is named, next to a plain scan of the log and to SQLite over the same rows in a table.
//!
//! The writer keeps the truth: count, least, greatest and the means of buckets. Values are eighths, so
//! that every sum is exact and the results have to be equal. The log is of real files at level
//! `process`; both it and SQLite's file are in the page cache. Times are of the wall, each the median
//! of repeats that take turns. Memory is the growth of the process's own peak (Linux).

use std::hint::black_box;
use std::time::Instant;

use chappe_log::{Level, Options, Store};
use chappe_stream::sqlite::{Answer, HistoryLimits, Scope, query_streams};
use chappe_stream::{
    Field, FieldType, Position, Quality, StreamElement, StreamLog, StreamSchema, StreamStore,
    Timestamp, Value,
};
use chappe_transport::FileDisk;
use rusqlite::{Connection, params};

use crate::process::{Folder, own_memory_bytes, reset_own_peak};
use crate::timing::median;
use crate::{Error, Limit, Reference, Report, Settings};

/// The parts: name, elements, and repeats.
const SIZES: [(&str, i64, usize); 3] = [
    ("100k", 100_000, 9),
    ("10m", 10_000_000, 5),
    ("100m", 100_000_000, 1),
];
/// The part that only runs when it is named: 6 GB on disk.
const LARGEST: &str = "100m";
/// Elements for which SQLite's table is filled, at most.
const PEER_ELEMENTS_MAX: i64 = 10_000_000;
/// Elements of one append.
const BATCH: i64 = 1_000;
/// Nanoseconds between two elements.
const PERIOD_NS: i64 = 10_000_000;
/// Buckets of the means.
const BUCKETS: i64 = 100;
/// Most bytes by which a query may raise the peak of memory.
const MEMORY_BYTES: f64 = 32.0 * 1024.0 * 1024.0;

/// The names of the parts.
pub(crate) fn parts() -> Vec<&'static str> {
    SIZES.map(|(name, ..)| name).to_vec()
}

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("history", settings.seed);
    for (name, elements, repeats) in SIZES {
        let is_named = settings.only.iter().any(|it| it == name);
        let is_default = settings.only.is_empty() && name != LARGEST;
        if !is_named && !is_default {
            continue;
        }
        let elements = match settings.quick && !is_named {
            true => elements.min(1_000_000),
            false => elements,
        };
        size(&mut report, settings, elements, repeats)?;
    }
    Ok(report)
}

/// What the writer knows of the elements.
struct Truth {
    elements: i64,
    least: f64,
    greatest: f64,
    bucket_ns: i64,
    /// Sum and count of each bucket.
    buckets: Vec<(f64, i64)>,
}

/// A statement, how its answer has to look, and whether it is evaluated in one pass.
struct Asked {
    name: &'static str,
    sql: String,
    rows: Vec<Vec<Value>>,
    is_one_pass: bool,
}

fn size(
    report: &mut Report,
    settings: &Settings,
    elements: i64,
    repeats: usize,
) -> Result<(), Error> {
    let folder = Folder::new("history")?;
    let disk = FileDisk::open(folder.path()).map_err(Error::io("opening the log's folder"))?;
    let opening = Error::failed("opening the log");
    let (store, _) =
        Store::open(Box::new(disk), Options::default(), settings.seed).map_err(opening)?;
    let store = StreamStore::new(store);
    let stream = store
        .stream("s", Level::Process, &schema(), None)
        .map_err(Error::failed("making a stream"))?;
    (settings.progress)(&format!("storing {elements} elements"));
    let truth = fill(&stream, elements, settings.seed)?;
    let asked = truth.asked();
    let peer = match elements <= PEER_ELEMENTS_MAX {
        true => {
            (settings.progress)("filling SQLite's table");
            Some(peer(&folder, &truth, settings.seed)?)
        }
        false => None,
    };
    let per_element = |seconds: f64| seconds * 1e9 / elements as f64;
    let mut scans = Vec::new();
    let mut times = vec![Vec::new(); asked.len()];
    let mut peers = vec![Vec::new(); asked.len()];
    let mut grown = vec![0_u64; asked.len()];
    for repeat in 0..repeats {
        (settings.progress)(&format!("{elements} elements, {} of {repeats}", repeat + 1));
        let begin = Instant::now();
        scan(&stream)?;
        scans.push(begin.elapsed().as_secs_f64());
        for (at, asked) in asked.iter().enumerate() {
            if !asked.is_one_pass && repeat > 0 {
                continue;
            }
            reset_own_peak();
            let before = own_memory_bytes("VmRSS");
            let begin = Instant::now();
            let scope = Scope::default();
            let answer = query_streams(&asked.sql, &[&stream], HistoryLimits::default(), &scope)
                .map_err(Error::failed(&asked.sql))?;
            times[at].push(begin.elapsed().as_secs_f64());
            grown[at] = grown[at].max(own_memory_bytes("VmHWM").saturating_sub(before));
            asked.check(&answer, elements)?;
            if let Some(peer) = peer.as_ref().filter(|_| asked.is_one_pass) {
                let begin = Instant::now();
                let rows = ask_peer(peer, &asked.peer_sql(truth.bucket_ns))?;
                peers[at].push(begin.elapsed().as_secs_f64());
                if rows != asked.rows.len() {
                    return Err(Error::Failed(format!("SQLite gave {rows} rows")));
                }
            }
        }
    }
    let scan = per_element(median(scans));
    let name = |what: &str| format!("{elements}: {what}");
    report.row(
        &name("plain scan of the log"),
        scan,
        "ns",
        "floor, for each element",
    );
    for (at, asked) in asked.iter().enumerate() {
        let time = per_element(median(times[at].clone()));
        let note = format!(
            "equal to the writer's truth; {:.2} of the scan",
            time / scan
        );
        report.row(&name(asked.name), time, "ns", note);
        if !peers[at].is_empty() {
            let peer = per_element(median(peers[at].clone()));
            report.row(
                &name(&format!("{}, SQLite's table", asked.name)),
                peer,
                "ns",
                "peer",
            );
        }
        if asked.is_one_pass {
            let floor = Reference::new("plain scan of the log", scan);
            report.target(name(asked.name), (time, "ns"), floor, Limit::AtMost(1.5));
        }
        let bound = Reference::new("32 MiB", MEMORY_BYTES);
        let what = name(&format!("{}, growth of memory", asked.name));
        report.target(what, (grown[at] as f64, "B"), bound, Limit::AtMost(1.0));
    }
    Ok(())
}

fn schema() -> StreamSchema {
    let field = |(name, field_type): (&str, FieldType)| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let fields = [("v", FieldType::Double), ("n", FieldType::Integer)];
    StreamSchema {
        fields: fields.map(field).to_vec(),
        key: None,
    }
}

/// The value of an element: an eighth, from -1,000 to 1,000.
fn value(number: i64, seed: u64) -> f64 {
    let mixed = number
        .cast_unsigned()
        .wrapping_add(seed)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 40) % 16_001) as f64 / 8.0 - 1_000.0
}

fn fill(stream: &StreamLog, elements: i64, seed: u64) -> Result<Truth, Error> {
    let bucket_ns = (elements / BUCKETS).max(1) * PERIOD_NS;
    let mut truth = Truth {
        elements,
        least: f64::INFINITY,
        greatest: f64::NEG_INFINITY,
        bucket_ns,
        buckets: Vec::new(),
    };
    let mut waiting = std::collections::VecDeque::new();
    for first in (0..elements).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(elements);
        let batch: Vec<StreamElement> = numbers
            .map(|number| {
                let value = value(number, seed);
                truth.take(number, value);
                element(number, value)
            })
            .collect();
        waiting.push_back(stream.append(&batch).map_err(Error::failed("storing"))?);
        if waiting.len() > 8
            && let Some(appended) = waiting.pop_front()
        {
            appended.wait().map_err(Error::failed("storing"))?;
        }
    }
    for appended in waiting {
        appended.wait().map_err(Error::failed("storing"))?;
    }
    Ok(truth)
}

fn element(number: i64, value: f64) -> StreamElement {
    let time = Timestamp(number * PERIOD_NS);
    StreamElement {
        position: Position::default(),
        source_time: time,
        receive_time: Timestamp(time.0 + 1_000_000),
        key: None,
        values: vec![Value::Double(value), Value::Integer(number)],
        quality: Quality::Good,
        origin: None,
    }
}

impl Truth {
    fn take(&mut self, number: i64, value: f64) {
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
        let bucket = usize::try_from(number * PERIOD_NS / self.bucket_ns).unwrap_or_default();
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, (0.0, 0));
        }
        self.buckets[bucket].0 += value;
        self.buckets[bucket].1 += 1;
    }

    fn asked(&self) -> Vec<Asked> {
        let count = Value::Integer(self.elements);
        let (least, greatest) = (Value::Double(self.least), Value::Double(self.greatest));
        let buckets = self.buckets.iter().enumerate();
        let means = buckets.map(|(bucket, (sum, count))| {
            let start = Value::Integer(bucket as i64 * self.bucket_ns);
            vec![start, Value::Double(sum / *count as f64)]
        });
        let bucket = format!("time_bucket({}, source_time)", self.bucket_ns);
        vec![
            Asked {
                name: "count",
                sql: "select count(*) from s".into(),
                rows: vec![vec![count.clone()]],
                is_one_pass: true,
            },
            Asked {
                name: "count, min, max",
                sql: "select count(*), min(v), max(v) from s".into(),
                rows: vec![vec![count.clone(), least.clone(), greatest.clone()]],
                is_one_pass: true,
            },
            Asked {
                name: "means of 100 buckets",
                sql: format!("select {bucket} as bucket, avg(v) from s group by bucket"),
                rows: means.collect(),
                is_one_pass: true,
            },
            Asked {
                name: "count, min, max by SQLite over the log",
                sql: "select count(v), min(v + 0), max(v) from s".into(),
                rows: vec![vec![count, least, greatest]],
                is_one_pass: false,
            },
        ]
    }
}

impl Asked {
    fn check(&self, answer: &Answer, elements: i64) -> Result<(), Error> {
        let read = answer
            .loaded
            .iter()
            .map(|loaded| loaded.elements)
            .sum::<u64>();
        let is_whole = !answer.is_partial() && !answer.truncated;
        match answer.rows == self.rows && is_whole && read == elements.cast_unsigned() {
            true => Ok(()),
            false => Err(Error::Failed(format!(
                "{:?} gave {:?}",
                self.sql, answer.rows
            ))),
        }
    }

    /// The statement for a database that has no buckets of time.
    fn peer_sql(&self, bucket_ns: i64) -> String {
        let bucket = format!("time_bucket({bucket_ns}, source_time)");
        let divided = format!("source_time / {bucket_ns} * {bucket_ns}");
        self.sql.replace(&bucket, &divided)
    }
}

/// Reads every record of the stream and looks at none.
fn scan(stream: &StreamLog) -> Result<(), Error> {
    let log = stream.log();
    let (mut next, last, mut bytes) = (log.first(), log.last(), 0_usize);
    while next <= last {
        let mut take = |_, _, payload: &[u8]| bytes += payload.len();
        next = log
            .visit(next, usize::MAX, 8 << 20, &mut take)
            .map_err(Error::failed("scanning the log"))?;
    }
    black_box(bytes);
    Ok(())
}

fn peer(folder: &Folder, truth: &Truth, seed: u64) -> Result<Connection, Error> {
    let failed = || Error::failed("filling SQLite's table");
    let mut database = Connection::open(folder.path().join("peer.sqlite")).map_err(failed())?;
    let table = "pragma journal_mode = off; pragma synchronous = off;
                 create table s(source_time integer, receive_time integer, v real, n integer);";
    database.execute_batch(table).map_err(failed())?;
    let transaction = database.transaction().map_err(failed())?;
    {
        let insert = "insert into s values (?1, ?2, ?3, ?4)";
        let mut insert = transaction.prepare(insert).map_err(failed())?;
        for number in 0..truth.elements {
            let time = number * PERIOD_NS;
            let row = params![time, time + 1_000_000, value(number, seed), number];
            insert.execute(row).map_err(failed())?;
        }
    }
    transaction.commit().map_err(failed())?;
    Ok(database)
}

fn ask_peer(database: &Connection, sql: &str) -> Result<usize, Error> {
    let failed = || Error::failed("asking SQLite");
    let mut statement = database.prepare(sql).map_err(failed())?;
    let mut rows = statement.query([]).map_err(failed())?;
    let mut count = 0;
    while rows.next().map_err(failed())?.is_some() {
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_history_is_equal_to_the_truth() {
        let settings = Settings {
            quick: true,
            only: Vec::new(),
            sizes: Vec::new(),
            seed: 7,
            program: None,
            progress: |_| {},
        };
        let mut report = Report::new("history", settings.seed);
        size(&mut report, &settings, 5_000, 1).expect("every answer is the truth");
    }
}
