//! Points of agents, from the request to its answer at level `power`: InfluxDB's line protocol, next to influxd with the
//! same requests, and samples of Prometheus remote write.
//!
//! Node or influxd share one processor with the clients that send. Of a point, the time rises, so that none is dropped
//! as a repetition.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Wrappers, node};
use crate::timing::median;
use crate::write::http::Client;
use crate::{Error, Limit, Reference, Report};

/// Points of a request; reason: what InfluxDB's documentation recommends.
const POINTS_EACH: usize = 5_000;
/// Samples of a request; reason: the default of Prometheus.
const SAMPLES_EACH: usize = 2_000;
/// Connections; reason: enough to have a request under way while another one is stored.
const CLIENTS: usize = 4;
/// Series of the points, and of each metric of the samples.
const SERIES: usize = 40;
/// Metrics of a request of samples.
const METRICS: usize = 50;
/// The first time, in seconds.
const START_S: usize = 1_795_255_200;
/// Time in which influxd or a wrapper answers.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// Runs of each, in turn; the median counts.
const REPEATS: usize = 3;
/// Points a second that a node acknowledges on one processor; reason: a site of 3,000 hosts with 1,000 metrics each,
/// every ten seconds.
const POINTS_LEAST: f64 = 300_000.0;
/// Samples a second, likewise; reason: 3 million series, each read every 15 seconds.
const SAMPLES_LEAST: f64 = 200_000.0;

pub(super) fn run(bench: &Wrappers<'_>, quick: bool, report: &mut Report) -> Result<(), Error> {
    let repeats = if quick { 1 } else { REPEATS };
    points_next_to_influxd(bench, repeats, report)?;
    let count = bench.lines / SAMPLES_EACH;
    let samples: Vec<Vec<u8>> = (0..count).map(samples).collect();
    let headers = "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n";
    let wrapper = "kind = \"remote_write\"\nlevel = \"power\"\n";
    let mut rates = Vec::new();
    for repeat in 1..=repeats {
        (bench.progress)(&format!("samples of remote write, repeat {repeat}"));
        let requests = stored(bench, wrapper, "/api/v1/write", headers, &samples)?;
        rates.push(requests * SAMPLES_EACH as f64);
    }
    let rate = median(rates);
    let note = "50 metrics of 40 series, 4 labels each, from the request to its answer";
    report.row("samples of remote write", rate, "1/s", note);
    let least = Reference::new("200,000 a second", SAMPLES_LEAST);
    let name = "samples of remote write acknowledged";
    report.target(name, (rate, "1/s"), least, Limit::AtLeast(1.0));
    Ok(())
}

fn points_next_to_influxd(
    bench: &Wrappers<'_>,
    repeats: usize,
    report: &mut Report,
) -> Result<(), Error> {
    let points: Vec<Vec<u8>> = (0..bench.lines / POINTS_EACH).map(points).collect();
    let path = "/write?db=bench";
    let headers = "Content-Type: text/plain\r\n";
    let wrapper = "kind = \"influxdb\"\nlevel = \"power\"\n";
    let (mut own, mut peers) = (Vec::new(), Ok(Vec::new()));
    for repeat in 1..=repeats {
        (bench.progress)(&format!("points of the line protocol, repeat {repeat}"));
        own.push(stored(bench, wrapper, path, headers, &points)? * POINTS_EACH as f64);
        (bench.progress)(&format!("the same points to influxd, repeat {repeat}"));
        // It begins without points, as the node does.
        match Influx::start(&bench.folder.join(format!("influxd-{repeat}"))) {
            Err(why) => peers = Err(why),
            Ok(peer) => {
                let rate = sent(peer.address, "", path, headers, &points)? * POINTS_EACH as f64;
                if let Ok(peers) = &mut peers {
                    peers.push(rate);
                }
            }
        }
    }
    let own = median(own);
    let note = "3 fields and 2 tags each, from the request to its answer";
    report.row("points of the line protocol", own, "1/s", note);
    let name = "points of the line protocol acknowledged";
    let least = Reference::new("300,000 a second", POINTS_LEAST);
    report.target(name, (own, "1/s"), least, Limit::AtLeast(1.0));
    match peers {
        Err(why) => report.skipped.push(format!("points of influxd: {why}")),
        Ok(peers) => {
            let rate = median(peers);
            let note = "InfluxDB 1, its defaults";
            report.row("the same to influxd", rate, "1/s", note);
            let reference = Reference::new("influxd", rate);
            report.target(name, (own, "1/s"), reference, Limit::AtLeast(1.0));
        }
    }
    Ok(())
}

/// Requests per second that a node with a wrapper acknowledges.
fn stored(
    bench: &Wrappers<'_>,
    wrapper: &str,
    path: &str,
    headers: &str,
    bodies: &[Vec<u8>],
) -> Result<f64, Error> {
    let folder = node::fresh(bench.folder);
    node::write(&folder, "wrappers/bench.toml", wrapper)?;
    let (path, headers, bodies) = (path.to_owned(), headers.to_owned(), bodies.to_vec());
    let rate = node::with(node::config(&folder), async |node| {
        let address = node.address();
        let token = node.new_token().unwrap_or_default().to_owned();
        let work = move || {
            // The first request is refused until the wrapper runs; the streams are made by it.
            let begun = Instant::now();
            while let Err(error) = sent(address, &token, &path, &headers, &bodies[..1]) {
                if begun.elapsed() > START_TIMEOUT {
                    return Err(error);
                }
                thread::sleep(LOOK);
            }
            sent(address, &token, &path, &headers, &bodies[1..])
        };
        let panicked = |_| Err(Error::Failed("a client panicked".to_owned()));
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(panicked)
    });
    let _ = std::fs::remove_dir_all(&folder);
    rate
}

/// Sends requests over some connections, in turn; returns how many are acknowledged in a second.
fn sent(
    address: SocketAddr,
    token: &str,
    path: &str,
    headers: &str,
    bodies: &[Vec<u8>],
) -> Result<f64, Error> {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        let next = &next;
        let run = |_| {
            scope.spawn(move || {
                let mut client = Client::connect(address, token)?;
                while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                    client.post_bytes(path, headers, body)?;
                }
                Ok::<_, Error>(())
            })
        };
        let running: Vec<_> = (0..CLIENTS.min(bodies.len())).map(run).collect();
        running.into_iter().try_for_each(|client| {
            let panicked = |_| Err(Error::Failed("a client panicked".to_owned()));
            client.join().unwrap_or_else(panicked)
        })
    })?;
    Ok(bodies.len() as f64 / start.elapsed().as_secs_f64())
}

/// The points of a request, as an agent of many hosts sends them.
fn points(request: usize) -> Vec<u8> {
    let mut text = String::new();
    for index in 0..POINTS_EACH {
        let number = request * POINTS_EACH + index;
        let (host, at_ms) = (number % SERIES, number / SERIES);
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "cpu,host=host-{host:02},rack=rack-{} usage_idle={}.25,usage_user={}.5,threads={number}i {START_S}{at_ms:09}",
            host % 4,
            number % 90,
            number % 10,
        );
    }
    text.into_bytes()
}

/// The samples of a request, as Prometheus sends those of one scrape.
fn samples(request: usize) -> Vec<u8> {
    let mut message = Vec::new();
    for number in 0..SAMPLES_EACH {
        let (metric, instance) = (number / SERIES % METRICS, number % SERIES);
        let mut series = Vec::new();
        let labels = [
            ("__name__", format!("node_metric_{metric}_seconds_total")),
            ("instance", format!("10.0.0.{instance}:9100")),
            ("job", "node".to_owned()),
            ("mode", "idle".to_owned()),
        ];
        for (name, value) in labels {
            let mut label = Vec::new();
            field(&mut label, 1, name.as_bytes());
            field(&mut label, 2, value.as_bytes());
            field(&mut series, 1, &label);
        }
        let mut sample = vec![9];
        sample.extend((request as f64 + 0.5).to_le_bytes());
        sample.push(16);
        varint(&mut sample, START_S as u64 * 1_000 + request as u64);
        field(&mut series, 2, &sample);
        field(&mut message, 1, &series);
    }
    literal(&message)
}

/// A field of bytes of a message of protocol buffers.
fn field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    message.push(number.to_le_bytes()[0]);
}

/// Bytes in the block format of snappy, as one literal: what its decoder saves is small next to the rest.
fn literal(bytes: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(bytes.len() + 16);
    varint(&mut block, bytes.len() as u64);
    block.push(63 << 2);
    let last = u32::try_from(bytes.len() - 1).unwrap_or(u32::MAX);
    block.extend(last.to_le_bytes());
    block.extend(bytes);
    block
}

/// influxd of version 1 with its own folder.
struct Influx {
    server: Child,
    address: SocketAddr,
}

impl Influx {
    fn start(folder: &Path) -> Result<Self, String> {
        let shown = |error: std::io::Error| error.to_string();
        std::fs::create_dir_all(folder).map_err(shown)?;
        // A port that is free now; it has no way to name one that it has chosen.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(shown)?;
        let address = free.local_addr().map_err(shown)?;
        drop(free);
        let (path, port) = (folder.display(), address.port());
        let text = format!(
            "reporting-disabled = true\nbind-address = \"127.0.0.1:0\"\n[meta]\ndir = \"{path}/meta\"\n[data]\n\
             dir = \"{path}/data\"\nwal-dir = \"{path}/wal\"\n[monitor]\nstore-enabled = false\n[http]\n\
             bind-address = \"127.0.0.1:{port}\"\nlog-enabled = false\n"
        );
        let file = folder.join("influx.conf");
        std::fs::write(&file, text).map_err(shown)?;
        let mut command = Command::new("influxd");
        command.arg("run").arg("-config").arg(&file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "influxd is not installed".to_owned(),
            _ => format!("influxd: {error}"),
        })?;
        let peer = Self { server, address };
        let begun = Instant::now();
        let create = "/query?q=CREATE%20DATABASE%20bench";
        while let Err(error) = sent(address, "", create, "", &[Vec::new()]) {
            if begun.elapsed() > START_TIMEOUT {
                return Err(error.to_string());
            }
            thread::sleep(LOOK);
        }
        Ok(peer)
    }
}

impl Drop for Influx {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
