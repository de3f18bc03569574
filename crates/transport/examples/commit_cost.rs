//! Measures the processor time of a group commit, if many sources append single records.
//!
//! `cargo run --release -p chappe-transport --example commit_cost -- DIRECTORY [SECONDS] [SOURCES]
//! [PERIOD_US] [PAUSE_US]`
//!
//! Each source appends one record of 100 bytes at level power each period and waits for its acknowledgement; all are
//! tasks of one thread, as in a node. Prints records, commits and syncs a second, the time from append to
//! acknowledgement, the processor time of the serving and of the commit thread for a record and for a commit, and the
//! number of waits of each thread.

use chappe_log::{Level, Options, Store};
use chappe_transport::FileDisk;
use std::path::Path;
use std::time::{Duration, Instant};

/// Processor nanoseconds and waits of each thread of this process, by its name.
fn threads() -> Vec<(String, u64, u64)> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let read = |path: &Path, file: &str| std::fs::read_to_string(path.join(file)).ok();
    tasks
        .filter_map(|task| {
            let path = task.ok()?.path();
            let name = read(&path, "comm")?.trim().to_owned();
            let ran = read(&path, "schedstat")?;
            let ran = ran.split_whitespace().next()?.parse().ok()?;
            let status = read(&path, "status")?;
            let line = status.lines().find(|it| it.starts_with("voluntary_ctxt"))?;
            Some((name, ran, line.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("usage: commit_cost DIRECTORY ...");
    let mut number = |default: u64| {
        let next = arguments.next().map(|text| text.parse().expect("a number"));
        next.unwrap_or(default)
    };
    let (seconds, sources) = (number(5), number(24));
    let period = Duration::from_micros(number(10_000));
    let options = Options {
        commit_pause: Duration::from_micros(number(0)),
        ..Options::default()
    };
    let disk = FileDisk::open(Path::new(&path)).expect("a directory");
    let (store, _) = Store::open(Box::new(disk), options, 1).expect("a store");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let (before, counted) = (threads(), store.counters());
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    let mut times: Vec<Duration> = runtime.block_on(async {
        let mut tasks = Vec::new();
        for source in 0..sources {
            let stream = store
                .stream(&format!("source/{source}"), Level::Power, b"")
                .expect("a stream");
            tasks.push(tokio::spawn(async move {
                let mut times = Vec::new();
                let first = start + period * source as u32 / sources as u32;
                let mut tick = tokio::time::interval_at(first.into(), period);
                while Instant::now() < end {
                    tick.tick().await;
                    let at = Instant::now();
                    let appended = stream.append(vec![(0, vec![0x5a; 100])]);
                    appended.expect("append").await.expect("acknowledged");
                    times.push(at.elapsed());
                }
                times
            }));
        }
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("a task"));
        }
        all
    });
    let (after, counters) = (threads(), store.counters());
    let groups = (counters.groups - counted.groups).max(1);
    let syncs = counters.syncs - counted.syncs;
    let records = (counters.records - counted.records).max(1);
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!(
        "{sources} sources: {} records/s, {} commits/s, {} syncs/s, {:.1} records a commit; \
         p50 {:?} p99 {:?}",
        records / seconds,
        groups / seconds,
        syncs / seconds,
        records as f64 / groups as f64,
        at(0.5),
        at(0.99)
    );
    for (name, ran, waits) in after {
        let old = before.iter().find(|(old, ..)| *old == name);
        let (ran, waits) = (
            ran - old.map_or(0, |old| old.1),
            waits - old.map_or(0, |old| old.2),
        );
        println!(
            "  {name:<16} {:>6.2} us a record {:>7.2} us a commit {:>6.1} % of a core, \
             {:.2} waits a commit",
            ran as f64 / 1e3 / records as f64,
            ran as f64 / 1e3 / groups as f64,
            ran as f64 / 1e7 / seconds as f64,
            waits as f64 / groups as f64,
        );
    }
    store.close().expect("closed");
}
