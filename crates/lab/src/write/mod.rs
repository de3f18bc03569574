//! Elements per second that clients get acknowledged at level `power`: by one and by 64 clients, one
//! element a request and many, next to the log's own group commit on the same disk and to PostgreSQL's
//! single inserts and `COPY`.
//!
//! All write below the folder for temporary files (`TMPDIR`), one after another. Clients, node and server
//! share the machine.

pub(crate) mod http;
pub(crate) mod postgres;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use chappe_log::{Level, Options, Store};
use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::{Field, FieldType, StreamElement, StreamSchema, StreamStore, Timestamp, Value};
use chappe_transport::FileDisk;

use crate::process::Folder;
use crate::{Error, Limit, Reference, Report, Settings};
use http::Client;
use postgres::Postgres;

/// Clients at once.
const MANY: usize = 64;
/// Elements of one body, and rows of one `COPY`.
const ROWS: usize = 100_000;
/// Time of a whole run for each figure.
const TIME: Duration = Duration::from_secs(10);
/// Time of a quick one.
const TIME_QUICK: Duration = Duration::from_secs(2);
/// The pause between commits that nodes have by default.
const COMMIT_PAUSE: Duration = Duration::from_millis(2);
/// Bytes that nodes queue for the log.
const QUEUE_BYTES: usize = 4 << 20;

/// Runs the scenario.
pub(crate) fn run(settings: &Settings) -> Result<Report, Error> {
    let mut report = Report::new("write", settings.seed);
    let time = match settings.quick {
        true => TIME_QUICK,
        false => TIME,
    };
    let folder = Folder::new("write")?;
    (settings.progress)("the log's own group commit");
    let floor = Floor::open(folder.path(), settings.seed)?;
    let floors = [1, MANY].map(|writers| floor.rate(writers, time));
    let [floor_one, floor_many] = floors;
    let (floor_one, floor_many) = (floor_one?, floor_many?);
    let floor_rows = floor.rows()?;
    drop(floor);
    let note = "floor: appended and awaited, one element at a time";
    report.row("log, 1 writer", floor_one, "1/s", note);
    report.row("log, 64 writers", floor_many, "1/s", note);
    report.row(
        "log, 1 writer, 1,000 at once",
        floor_rows,
        "1/s",
        "floor: appended ahead, awaited",
    );

    let node = Running::start(folder.path())?;
    (settings.progress)("a node, 1 client");
    let one = node.rate(1, time)?;
    report.row("node, 1 client", one, "1/s", "one element a request");
    (settings.progress)("a node, 64 clients");
    let many = node.rate(MANY, time)?;
    report.row("node, 64 clients", many, "1/s", "one element a request");
    (settings.progress)("a node, long bodies");
    let csv = node.rows("text/csv", &csv())?;
    report.row("node, CSV", csv, "1/s", "one body of 100,000 rows");
    let lines = node.rows("application/x-ndjson", &lines())?;
    report.row(
        "node, lines",
        lines,
        "1/s",
        "one body of 100,000 JSON objects",
    );
    drop(node);

    (settings.progress)("PostgreSQL");
    let peer = Postgres::start(folder.path()).and_then(|peer| {
        Ok((
            peer.inserts(1, time)?,
            peer.inserts(MANY, time)?,
            peer.copy(&csv_rows())?,
        ))
    });
    if let Ok((one, many, copy)) = &peer {
        report.row(
            "PostgreSQL, 1 client",
            *one,
            "1/s",
            "peer: single inserts, prepared",
        );
        report.row(
            "PostgreSQL, 64 clients",
            *many,
            "1/s",
            "peer: single inserts, prepared",
        );
        report.row(
            "PostgreSQL, COPY",
            *copy,
            "1/s",
            "peer: 100,000 rows of CSV",
        );
    }
    let peer_is = |name: &str, of: fn(&(f64, f64, f64)) -> f64| match &peer {
        Ok(rates) => Ok(Reference::new(name, of(rates))),
        Err(reason) => Err(reason.clone()),
    };
    let floor = |name: &str, rate| Ok(Reference::new(name, rate));
    for (name, measured, reference, limit) in [
        ("1 client", one, floor("log, 1 writer", floor_one), 0.5),
        (
            "64 clients",
            many,
            floor("log, 64 writers", floor_many),
            0.5,
        ),
        (
            "1 client",
            one,
            peer_is("PostgreSQL, 1 client", |it| it.0),
            0.5,
        ),
        (
            "64 clients",
            many,
            peer_is("PostgreSQL, 64 clients", |it| it.1),
            0.5,
        ),
        ("CSV", csv, peer_is("PostgreSQL, COPY", |it| it.2), 0.5),
    ] {
        let name = format!("elements acknowledged, {name}");
        report.compare(name, (measured, "1/s"), reference, Limit::AtLeast(limit));
    }
    Ok(report)
}

fn schema() -> StreamSchema {
    let field = |(name, field_type): (&str, FieldType)| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    StreamSchema {
        fields: [
            ("temperature", FieldType::Double),
            ("people", FieldType::Integer),
        ]
        .map(field)
        .to_vec(),
        key: None,
    }
}

fn csv() -> String {
    format!("source_time,temperature,people\n{}", csv_rows())
}

fn csv_rows() -> String {
    let row = |index| format!("2026-11-21T10:00:00Z,{}.25,{index}\n", index % 40);
    (0..ROWS).map(row).collect()
}

fn lines() -> String {
    let line = |index| {
        let temperature = index % 40;
        format!(
            "{{\"source_time\":\"2026-11-21T10:00:00Z\",\"temperature\":{temperature}.25,\
             \"people\":{index}}}\n"
        )
    };
    (0..ROWS).map(line).collect()
}

/// The rate of workers that each count what they got acknowledged until a deadline.
fn rate<W: Send>(
    workers: Vec<W>,
    time: Duration,
    work: impl Fn(&mut W) -> Result<(), Error> + Sync,
) -> Result<f64, Error> {
    let done = AtomicU64::new(0);
    let start = Instant::now();
    let (work, counter) = (&work, &done);
    thread::scope(|scope| {
        let run = |mut worker: W| {
            scope.spawn(move || {
                while start.elapsed() < time {
                    work(&mut worker)?;
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, Error>(())
            })
        };
        let running: Vec<_> = workers.into_iter().map(run).collect();
        running.into_iter().try_for_each(|worker| {
            let panicked = |_| Err(Error::Failed("a client panicked".to_owned()));
            worker.join().unwrap_or_else(panicked)
        })
    })?;
    Ok(done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}

/// The log as a node opens it, without the node.
pub(crate) struct Floor {
    store: StreamStore,
}

impl Floor {
    pub(crate) fn open(folder: &Path, seed: u64) -> Result<Self, Error> {
        let folder = folder.join("floor");
        std::fs::create_dir_all(&folder).map_err(Error::io("making the floor's folder"))?;
        let disk = FileDisk::open(&folder).map_err(Error::io("opening the log's folder"))?;
        let options = Options {
            commit_pause: COMMIT_PAUSE,
            queue_bytes: QUEUE_BYTES,
            batch_bytes: QUEUE_BYTES,
            ..Options::default()
        };
        let store = Store::open(Box::new(disk), options, seed);
        let (store, _) = store.map_err(Error::failed("opening the log"))?;
        Ok(Self {
            store: StreamStore::new(store),
        })
    }

    fn stream(&self, name: &str) -> Result<chappe_stream::StreamLog, Error> {
        let stream = self.store.stream(name, Level::Power, &schema(), None);
        stream.map_err(Error::failed("defining a stream"))
    }

    fn rate(&self, writers: usize, time: Duration) -> Result<f64, Error> {
        let log = self.stream("single")?;
        rate(vec![log; writers], time, |log| {
            let appended = log.append(&[element(1)]);
            let appended = appended.map_err(Error::failed("appending"))?;
            appended.wait().map_err(Error::failed("storing"))
        })
    }

    /// Elements per second that are appended ahead and awaited, 1,000 at once.
    pub(crate) fn rows(&self) -> Result<f64, Error> {
        let log = self.stream("rows")?;
        let all: Vec<StreamElement> = (0..ROWS).map(element).collect();
        let start = Instant::now();
        let mut last = None;
        for batch in all.chunks(1_000) {
            last = Some(log.append(batch).map_err(Error::failed("appending"))?);
        }
        if let Some(last) = last {
            last.wait().map_err(Error::failed("storing"))?;
        }
        Ok(ROWS as f64 / start.elapsed().as_secs_f64())
    }
}

fn element(index: usize) -> StreamElement {
    StreamElement {
        position: Default::default(),
        source_time: Timestamp(0),
        receive_time: Timestamp(0),
        key: None,
        values: vec![
            Value::Double((index % 40) as f64 + 0.25),
            Value::Integer(index as i64),
        ],
        quality: Default::default(),
        origin: None,
    }
}

/// A node on a thread of this program, with a stream to write.
struct Running {
    address: std::net::SocketAddr,
    token: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn start(folder: &Path) -> Result<Self, Error> {
        let mut config = Config {
            data_directory: folder.join("data"),
            sensors_directory: folder.join("sensors"),
            ..Config::default()
        };
        config.http.listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        config.discovery.enabled = false;
        config.log.keep_age_s = 0;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (sender, started) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let Ok(runtime) = chappe_node::runtime() else {
                return;
            };
            runtime.block_on(async {
                match Node::start(config).await {
                    Ok(node) => {
                        let token = node.new_token().unwrap_or_default().to_owned();
                        let _ = sender.send(Ok((node.address(), token)));
                        let _ = stopped.await;
                        let _ = node.shutdown().await;
                    }
                    Err(error) => drop(sender.send(Err(error.to_string()))),
                }
            });
        });
        let started = started.recv().unwrap_or(Err("it ended".to_owned()));
        let (address, token) = started.map_err(Error::failed("starting a node"))?;
        let running = Self {
            address,
            token,
            stop: Some(stop),
            thread: Some(thread),
        };
        let definition = "{\"name\":\"bench\",\"level\":\"power\",\"fields\":[\
            {\"name\":\"temperature\",\"type\":\"double\",\"unit\":\"Cel\"},\
            {\"name\":\"people\",\"type\":\"integer\"}]}";
        let mut client = running.client()?;
        client.post("/api/v1/streams", "application/json", definition)?;
        Ok(running)
    }

    fn client(&self) -> Result<Client, Error> {
        Client::connect(self.address, &self.token)
    }

    fn rate(&self, clients: usize, time: Duration) -> Result<f64, Error> {
        let clients = (0..clients).map(|_| self.client());
        rate(clients.collect::<Result<_, _>>()?, time, |client| {
            let body = "{\"temperature\":21.25,\"people\":7}";
            client.post(http::ELEMENTS, "application/json", body)
        })
    }

    fn rows(&self, content_type: &str, body: &str) -> Result<f64, Error> {
        let mut client = self.client()?;
        let start = Instant::now();
        client.post(http::ELEMENTS, content_type, body)?;
        Ok(ROWS as f64 / start.elapsed().as_secs_f64())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
