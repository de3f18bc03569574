//! Measures the durable store on a real directory: appends of 100-byte records.
//!
//! `cargo run --release -p chappe-transport --example log_throughput -- DIRECTORY [SECONDS]`
//!
//! Prints for each case records a second, acknowledgements a second, the median and the 99th percentile of the time from
//! append to acknowledgement, and records in a sync; then the floor (a bare write and `fdatasync` of the same bytes),
//! reading, following and reopening.

use chappe_log::{Disk, Level, Options, Store};
use chappe_transport::FileDisk;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const PAYLOAD: usize = 100;

struct Case {
    name: &'static str,
    level: Level,
    threads: usize,
    /// Records in a batch.
    batch: usize,
    /// Batches in flight for each thread.
    in_flight: usize,
}

fn percentile(times: &mut [Duration], part: f64) -> Duration {
    times.sort_unstable();
    let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or_default()
}

fn report(name: &str, records: usize, elapsed: Duration, times: &mut [Duration], syncs: u64) {
    println!(
        "{name:<44} {:>10.0} records/s {:>9.0} acks/s  p50 {:>8.1?}  p99 {:>8.1?}  {:>8.1} rec/sync",
        records as f64 / elapsed.as_secs_f64(),
        times.len() as f64 / elapsed.as_secs_f64(),
        percentile(times, 0.5),
        percentile(times, 0.99),
        records as f64 / syncs.max(1) as f64,
    );
}

fn run(store: &Store, case: &Case, time: Duration) {
    let stream = store.stream(case.name, case.level, b"").expect("a stream");
    let all = Mutex::new(Vec::new());
    let before = store.counters();
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..case.threads {
            scope.spawn(|| {
                let (mut waiting, mut times) = (VecDeque::new(), Vec::new());
                while start.elapsed() < time {
                    let batch = vec![(0, vec![0x5a; PAYLOAD]); case.batch];
                    waiting.push_back((Instant::now(), stream.append(batch).expect("append")));
                    if waiting.len() >= case.in_flight {
                        let (at, appended) = waiting.pop_front().expect("one");
                        appended.wait().expect("acknowledged");
                        times.push(at.elapsed());
                    }
                }
                for (at, appended) in waiting {
                    appended.wait().expect("acknowledged");
                    times.push(at.elapsed());
                }
                all.lock().expect("lock").extend(times);
            });
        }
    });
    let elapsed = start.elapsed();
    let mut times = all.into_inner().expect("times");
    let syncs = store.counters().syncs - before.syncs;
    report(
        case.name,
        times.len() * case.batch,
        elapsed,
        &mut times,
        syncs,
    );
}

fn floor(path: &Path, time: Duration) {
    let disk = FileDisk::open(path.join("floor")).expect("a directory");
    let mut file = disk.create("floor").expect("a file");
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time {
        let at = Instant::now();
        file.append(&[0x5a; PAYLOAD + 84]).expect("write");
        file.sync().expect("sync");
        times.push(at.elapsed());
    }
    let records = times.len();
    report(
        "floor: write and fdatasync, one thread",
        records,
        start.elapsed(),
        &mut times,
        records as u64,
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .expect("usage: log_throughput DIRECTORY [SECONDS]");
    let seconds = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2.0);
    let (path, time) = (Path::new(&path), Duration::from_secs_f64(seconds));
    floor(path, time);
    let open = || {
        let disk = FileDisk::open(path.join("log")).expect("a directory");
        Store::open(Box::new(disk), Options::default(), 1).expect("a store")
    };
    let (store, _) = open();
    let case = |name, level, threads, batch, in_flight| Case {
        name,
        level,
        threads,
        batch,
        in_flight,
    };
    let cases = [
        case(
            "power, 1 thread, 1 record, 1 in flight",
            Level::Power,
            1,
            1,
            1,
        ),
        case(
            "power, 8 threads, 1 record, 1 in flight",
            Level::Power,
            8,
            1,
            1,
        ),
        case(
            "power, 8 threads, 1 record, 256 in flight",
            Level::Power,
            8,
            1,
            256,
        ),
        case(
            "power, 8 threads, 100 records, 1 in flight",
            Level::Power,
            8,
            100,
            1,
        ),
        case(
            "power, 8 threads, 100 records, 8 in flight",
            Level::Power,
            8,
            100,
            8,
        ),
        case(
            "process, 1 thread, 1 record, 1 in flight",
            Level::Process,
            1,
            1,
            1,
        ),
        case(
            "process, 8 threads, 1 record, 256 in flight",
            Level::Process,
            8,
            1,
            256,
        ),
    ];
    for case in &cases {
        run(&store, case, time);
    }
    let stream = store.existing(cases[2].name).expect("written");
    let (start, mut follower, mut records) = (Instant::now(), stream.follow(1), 0);
    while let Some(batch) = follower.try_next().expect("readable") {
        records += batch.len();
    }
    let rate = records as f64 / start.elapsed().as_secs_f64();
    println!("read single-record frames of one stream: {records} records, {rate:.0} records/s");
    drop((stream, follower));
    store.close().expect("closed");
    let start = Instant::now();
    let (_, recovery) = open();
    println!(
        "open: {} records in {:?}",
        recovery.records,
        start.elapsed()
    );
}
