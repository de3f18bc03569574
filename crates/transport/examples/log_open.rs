//! Measures the time to open a large log.
//!
//! `cargo run --release -p chappe-transport --example log_open -- DIRECTORY RECORDS [BATCH]`
//!
//! Writes this many records of 100 bytes in batches (default 10) over 24 streams at level process if the directory is
//! empty, then opens the log: after a clean close, without the snapshots next to the segments, and after the process
//! was killed.

use chappe_log::{Level, Options, Store};
use chappe_transport::FileDisk;
use std::path::Path;
use std::time::Instant;

fn open(path: &Path) -> Store {
    let start = Instant::now();
    let disk = FileDisk::open(path).expect("a directory");
    let (store, recovery) = Store::open(Box::new(disk), Options::default(), 1).expect("a store");
    println!(
        "opened in {:>8.1?}: {} records, {} segments, {} not read, clean {}",
        start.elapsed(),
        recovery.records,
        recovery.segments,
        recovery.indexed,
        recovery.clean
    );
    store
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("usage: log_open DIRECTORY RECORDS");
    let path = Path::new(&path);
    let records: u64 = arguments
        .next()
        .map_or(10_000_000, |text| text.parse().expect("a number"));
    let batch: u64 = arguments
        .next()
        .map_or(10, |text| text.parse().expect("a number"));
    let store = open(path);
    let streams: Vec<_> = (0..24)
        .map(|n| {
            store
                .stream(&format!("s{n}"), Level::Process, b"")
                .expect("a stream")
        })
        .collect();
    let there: u64 = streams.iter().map(chappe_log::Stream::last).sum();
    let mut last = None;
    for n in (there..records).step_by(batch as usize) {
        let stream = &streams[(n / batch % 24) as usize];
        let records = vec![(n as i64, vec![0x5a; 100]); batch as usize];
        last = Some(stream.append(records).expect("append"));
    }
    last.map_or(Ok(()), chappe_log::Appended::wait)
        .expect("acknowledged");
    drop(streams);
    store.close().expect("closed");
    println!("closed:");
    open(path).close().expect("closed");
    println!("without snapshots:");
    for entry in std::fs::read_dir(path).expect("the directory") {
        let entry = entry.expect("an entry").path();
        if entry.extension().is_some_and(|it| it == "index") {
            std::fs::remove_file(entry).expect("removed");
        }
    }
    open(path).close().expect("closed");
    println!("after a kill:");
    open(path).abandon();
    open(path).close().expect("closed");
}
