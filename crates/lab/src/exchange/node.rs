//! A node of the scenario: 25 virtual sensors of the library's own node; the first gets the
//! elements of its producer, the others those received.
//!
//! ```text
//! number every period -> p -> sensor -> s.NN ==exchange==> r.s.NN -> sensor -> v.NN, at every node
//! ```
//!
//! Every arrow ends in a stream of level `power`. An element counts when the stream `v.NN` has
//! acknowledged it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use chappe_log::Appended;
use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::{
    Field, FieldType, Position, Quality, StreamElement, StreamLog, StreamSchema, Timestamp, Value,
};
use tokio::sync::mpsc;

use super::latency::Latencies;
use super::message::{Counted, Role};
use super::station::{Due, Station, now};
use super::tally::Tally;
use super::{Kind, kryo, links};
use crate::Error;

/// The producer's stream of a node.
const PRODUCER: &str = "p";
/// Minimum time between two commits, and the time that an element waits at its origin for others.
/// Measured with 24 nodes on two processors, in turns: 12 and 20 to 24 gave a p99 of 49 to 58 ms, 8
/// and 30 67, 12 and 16 83. With shorter ones the processors are saturated, with longer ones the
/// wait itself is too long.
pub(crate) const COMMIT_PAUSE_MS: u32 = 12;
const LINGER_MS: u32 = 22;
/// The name of the backlog's stream at its origin.
const BACKLOG: &str = "backlog";
/// Elements read at once when everything is counted.
const READ: usize = 4_096;
/// Maximum number of elements stored at once when the producer is behind.
const BATCH: usize = 1_000;
/// Maximum number of the producer's batches in flight to the disk.
const OFFERED_MAX: usize = 64;

/// The stream that node `index` offers to all.
pub(crate) fn offered(index: usize) -> String {
    format!("s.{index:02}")
}

/// The stream that holds that of node `index` at the receiver.
pub(crate) fn received(index: usize) -> String {
    format!("r.{}", offered(index))
}

/// The output of the virtual sensor over it.
fn output(index: usize) -> String {
    format!("v.{index:02}")
}

/// Three doubles; the first is the number.
pub(crate) fn schema() -> StreamSchema {
    let field = |name: &str| Field {
        name: name.to_owned(),
        field_type: FieldType::Double,
        unit: None,
        observed_property: None,
        description: None,
    };
    StreamSchema {
        fields: vec![field("a"), field("b"), field("c")],
        key: None,
    }
}

fn element(due: Due) -> StreamElement {
    let number = due.number as f64;
    StreamElement {
        position: Position::default(),
        origin: None,
        source_time: Timestamp(due.time),
        receive_time: Timestamp(now()),
        key: None,
        values: vec![
            Value::Double(number),
            Value::Double(number * 0.1),
            Value::Double(-number),
        ],
        quality: Quality::Good,
    }
}

fn number(element: &StreamElement) -> u64 {
    match element.values.first() {
        Some(Value::Double(number)) => *number as u64,
        _ => 0,
    }
}

/// A running node.
pub(crate) struct Member {
    role: Role,
    node: Arc<Node>,
    produce: mpsc::UnboundedSender<Due>,
    produced: Arc<AtomicU64>,
    latencies: Latencies,
    outputs: Vec<Option<StreamLog>>,
    connected: bool,
}

impl Member {
    /// Writes its descriptors and starts it.
    pub(crate) async fn start(role: &Role, latencies: Latencies) -> Result<Self, Error> {
        let sensors = role.folder.join("sensors");
        let making = Error::io(format!("making {}", sensors.display()));
        std::fs::create_dir_all(&sensors).map_err(making)?;
        describe(&sensors, "own", PRODUCER, &offered(role.index))?;
        for index in 0..role.nodes {
            let name = format!("from-{index:02}");
            describe(&sensors, &name, &received(index), &output(index))?;
        }
        let mut config = Config {
            name: format!("node-{:02}", role.index),
            data_directory: role.folder.join("data"),
            sensors_directory: sensors,
            wrappers_directory: role.folder.join(kryo::WRAPPERS),
            exporters_directory: role.folder.join(kryo::EXPORTERS),
            ..Config::default()
        };
        config.discovery.enabled = false;
        config.http.listen = links::http_address(role.index);
        config.http.max_connections = 1_000;
        config.log.keep_elements = 0;
        config.log.commit_pause_ms = COMMIT_PAUSE_MS;
        config.exchange.linger_ms = LINGER_MS;
        links::listen(&mut config, role);
        if role.kind == Kind::ZeromqKryo {
            kryo::publish(role)?;
        }
        let node = Node::start(config).await;
        let node = Arc::new(node.map_err(Error::failed("starting the node"))?);
        let (produce, due) = mpsc::unbounded_channel();
        let produced = Arc::new(AtomicU64::new(0));
        let producing = producing(node.clone(), due, role.clone(), produced.clone());
        tokio::spawn(producing);
        Ok(Self {
            outputs: vec![None; role.nodes],
            role: role.clone(),
            node,
            produce,
            produced,
            latencies,
            connected: false,
        })
    }

    /// The streams of the sensors that exist so far.
    fn find_outputs(&mut self) {
        for index in 0..self.role.nodes {
            if self.outputs[index].is_some() {
                continue;
            }
            let Some(log) = self.node.stream(&output(index)) else {
                continue;
            };
            if self.role.timed.contains(&index) {
                tokio::spawn(timing(log.clone(), self.latencies.clone()));
            }
            self.outputs[index] = Some(log);
        }
    }
}

/// A virtual sensor that passes its input through.
fn describe(folder: &std::path::Path, name: &str, source: &str, output: &str) -> Result<(), Error> {
    let mut text = format!(
        "name = \"{name}\"\n[[source]]\nalias = \"source\"\nstream = \"{source}\"\n\
         [output]\nstream = \"{output}\"\nlevel = \"power\"\nsql = \"select a, b, c from source\"\n"
    );
    for field in ["a", "b", "c"] {
        text.push_str(&format!(
            "[[output.field]]\nname = \"{field}\"\ntype = \"double\"\n"
        ));
    }
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
}

/// Stores the producer's elements. It does not wait for the disk before the next ones, up to
/// [`OFFERED_MAX`].
async fn producing(
    node: Arc<Node>,
    mut due: mpsc::UnboundedReceiver<Due>,
    role: Role,
    produced: Arc<AtomicU64>,
) {
    let schema = schema();
    let mut batch = Vec::new();
    let mut offered: VecDeque<Appended> = VecDeque::new();
    loop {
        batch.clear();
        let room = offered.len() < OFFERED_MAX;
        let stored = poll_fn(|context| match offered.front_mut() {
            Some(first) => Pin::new(first).poll(context),
            None => Poll::Pending,
        });
        tokio::select! {
            biased;
            outcome = stored => {
                let count = offered.pop_front().map_or(0, |first: Appended| first.count);
                if outcome.is_ok() {
                    produced.fetch_add(count.into(), Ordering::Relaxed);
                }
                continue;
            }
            count = due.recv_many(&mut batch, BATCH), if room => {
                if count == 0 {
                    return;
                }
            }
        }
        let elements: Vec<_> = batch.iter().map(|due| element(*due)).collect();
        offered.extend(node.offer(PRODUCER, &schema, &elements).await.ok());
        if role.kind == Kind::NoNetwork {
            for index in 0..role.nodes {
                let name = received(index);
                let Some(log) = node.stream(&name) else {
                    // It is created and registered once.
                    let _ = node.store(&name, &schema, &elements).await;
                    continue;
                };
                if let Ok(appended) = log.append(&elements) {
                    tokio::spawn(appended);
                }
            }
        }
    }
}

/// Records the time when each element of a stream was stored.
async fn timing(log: StreamLog, latencies: Latencies) {
    let mut follower = log.follow(log.log().last() + 1);
    let told = Arc::new(Told {
        log,
        task: Mutex::new(Waker::noop().clone()),
        stored: Mutex::default(),
    });
    let waker = Waker::from(told.clone());
    while let Ok(elements) = poll_fn(|context| {
        lock(&told.task).clone_from(context.waker());
        follower.poll_next(&mut Context::from_waker(&waker))
    })
    .await
    {
        let (last, stored) = lock(&told.stored).take().unwrap_or_default();
        let now = now();
        for element in elements {
            // Stored before the log reported it: the time is unknown.
            let at = if element.position.sequence <= last {
                stored
            } else {
                now
            };
            latencies.take_one(element.source_time.0, at);
        }
    }
}

/// Woken by the log's own thread when it has stored something: this time counts, not the later one
/// at which this task gets a processor.
struct Told {
    log: StreamLog,
    task: Mutex<Waker>,
    /// The number of the last element stored at that time, and the time.
    stored: Mutex<Option<(u64, i64)>>,
}

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        *lock(&self.stored) = Some((self.log.log().last(), now()));
        lock(&self.task).wake_by_ref();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Station for Member {
    async fn connect(&mut self) -> Result<(), Error> {
        links::connect(&self.node, &self.role).await?;
        self.connected = true;
        Ok(())
    }

    fn produce(&mut self, due: &[Due]) {
        for due in due {
            // The receiver lives as long as the node.
            let _ = self.produce.send(*due);
        }
    }

    fn produced(&self) -> u64 {
        self.produced.load(Ordering::Relaxed)
    }

    fn outputs(&self) -> Vec<u64> {
        let last = |log: &Option<StreamLog>| log.as_ref().map_or(0, |log| log.log().last());
        self.outputs.iter().map(last).collect()
    }

    fn reached(&mut self) -> Vec<u64> {
        self.find_outputs();
        let highest = |log: &Option<StreamLog>| {
            let newest = log.as_ref()?.newest(1).ok()?;
            newest.last().map(number)
        };
        let logs = self.outputs.iter();
        logs.map(|log| highest(log).unwrap_or(0)).collect()
    }

    fn syncs(&self) -> u64 {
        self.node.log_counters().syncs
    }

    async fn outage(&mut self, cut: bool) -> Result<(), Error> {
        links::outage(&self.node, &self.role, cut).await
    }

    async fn fill(&mut self, elements: u64) -> Result<(), Error> {
        let (schema, mut number) = (schema(), 0);
        while number < elements {
            let batch = (number + 1..=elements).take(BATCH).map(|number| {
                let time = now();
                element(Due { number, time })
            });
            let batch: Vec<_> = batch.collect();
            number += batch.len() as u64;
            let stored = self.node.store(BACKLOG, &schema, &batch).await;
            stored.map_err(Error::failed("storing the backlog"))?;
        }
        Ok(())
    }

    async fn catch_up(&mut self, from: usize) -> Result<(), Error> {
        links::catch_up(&self.node, from, BACKLOG).await
    }

    fn caught_up(&self) -> u64 {
        let log = self.node.stream(&links::caught_up(BACKLOG));
        log.map_or(0, |log| log.log().last())
    }

    async fn count(self, before: &[u64], produced: &[u64]) -> Result<Counted, Error> {
        let mut counted = Counted::default();
        for (index, log) in self.outputs.iter().enumerate() {
            let mut tally = Tally::default();
            let mut from = 0;
            while let Some(log) = log {
                let elements = log
                    .read(from, READ)
                    .map_err(Error::failed(format!("reading {}", output(index))))?;
                let Some(last) = elements.last() else { break };
                from = last.position.sequence + 1;
                elements
                    .iter()
                    .for_each(|element| tally.take(number(element)));
            }
            // Without a network it is its own origin for all.
            let origin = match self.role.kind {
                Kind::NoNetwork => self.role.index,
                _ => index,
            };
            tally.count(before[origin], produced[origin], &mut counted);
        }
        Ok(counted)
    }
}
