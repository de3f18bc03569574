//! Appends at level power and does nothing else, as a target for kill tests.
//!
//! `append DIRECTORY RUN RECORDS [RESERVE_BYTES [trim]]`
//!
//! Prints, each as one write to standard output: the result of opening (`opened ...`), each record in the log
//! (`has STREAM EPOCH NUMBER PAYLOAD`), and `ready`. Then it waits for a line or the end of standard input, and prints
//! each record once it is acknowledged (`ack STREAM EPOCH NUMBER PAYLOAD`), `full` each time an append is refused for
//! lack of room (it retries), `failed REASON` if the log stopped, and `closed` after an orderly end. Segments have the
//! smallest size, so that a short run covers all cases of a long one. With 0 records it only reads. With `trim` it also
//! trims its streams, and creates and removes other streams: `trimming STREAM FIRST` and `removing STREAM` precede the
//! request, `trimmed STREAM FIRST` and `removed STREAM` follow its acknowledgement.

use chappe_log::{Appended, Error, Level, Options, Record, Store, Stream};
use chappe_transport::FileDisk;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// The pause after a refusal for lack of room.
const PAUSE: Duration = Duration::from_millis(5);
/// Batches in flight.
const IN_FLIGHT: usize = 2;
/// Bytes of a payload.
const PAYLOAD: usize = 160;
/// Batches between two trims with a removal.
const TRIM_BATCHES: usize = 5;
/// Records that a trim leaves.
const KEPT: u64 = 4;

struct Writer<const N: usize> {
    streams: [Stream; N],
    waiting: VecDeque<(usize, Vec<String>, Appended)>,
}

impl<const N: usize> Writer<N> {
    /// Appends a batch, however long the disk is full.
    fn offer(&mut self, stream: usize, payloads: Vec<String>) -> Result<(), Error> {
        loop {
            let batch = payloads.iter().map(|text| (0, text.clone().into_bytes()));
            match self.streams[stream].append(batch.collect::<Vec<_>>()) {
                Ok(appended) => {
                    self.waiting.push_back((stream, payloads, appended));
                    return Ok(());
                }
                Err(Error::Full { .. }) => wait_for_room(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until at most this many batches are in flight, and prints the acknowledged ones.
    fn settle(&mut self, at_most: usize) -> Result<(), Error> {
        while self.waiting.len() > at_most {
            let Some((stream, payloads, appended)) = self.waiting.pop_front() else {
                break;
            };
            let first = appended.first;
            match appended.wait() {
                Ok(()) => {
                    let name = self.streams[stream].name();
                    for (number, payload) in (first.sequence..).zip(payloads) {
                        println!("ack {name} {:x} {number} {payload}", first.epoch);
                    }
                }
                Err(Error::Full { .. }) => {
                    wait_for_room();
                    self.offer(stream, payloads)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn wait_for_room() {
    println!("full");
    thread::sleep(PAUSE);
}

fn show(stream: &Stream) -> Result<(), Error> {
    let mut next = stream.first();
    while next <= stream.last() {
        for Record {
            position, payload, ..
        } in stream.read(next, 100)?
        {
            let payload = String::from_utf8_lossy(&payload).into_owned();
            let name = stream.name();
            println!(
                "has {name} {:x} {} {payload}",
                position.epoch, position.sequence
            );
            next = position.sequence + 1;
        }
    }
    Ok(())
}

/// Trims streams, then creates another one, appends to it and removes it.
fn trim(store: &Store, streams: &[Stream], guest: &str) -> Result<(), Error> {
    for stream in streams {
        let (name, first) = (stream.name(), (stream.last() + 1).saturating_sub(KEPT));
        println!("trimming {name} {first}");
        stream.trim(first)?.wait()?;
        println!("trimmed {name} {first}");
    }
    let streams = [store.stream(guest, Level::Power, b"")?];
    let mut writer = Writer {
        streams,
        waiting: VecDeque::new(),
    };
    writer.offer(0, vec![format!("{guest}/1"), format!("{guest}/2")])?;
    writer.settle(0)?;
    println!("removing {guest}");
    store.remove(guest)?;
    println!("removed {guest}");
    Ok(())
}

fn work(store: &Store, run: &str, records: usize, trims: bool) -> Result<(), Error> {
    println!("ready");
    let mut line = String::new();
    // An unreadable input counts as its end.
    let _ = std::io::stdin().read_line(&mut line);
    let open = |name| loop {
        match store.stream(name, Level::Power, b"") {
            Err(Error::Full { .. }) => wait_for_room(),
            other => return other,
        }
    };
    let streams = [open("a")?, open("b")?];
    let mut writer = Writer {
        streams,
        waiting: VecDeque::new(),
    };
    let (mut index, mut batches) = (0, 0);
    while index < records {
        let batch = (index % 3 + 1).min(records - index);
        let payloads = (index..index + batch).map(|n| {
            let tag = format!("{run}/{n}/");
            format!("{tag:.<PAYLOAD$}")
        });
        writer.offer(index % 2, payloads.collect())?;
        writer.settle(IN_FLIGHT - 1)?;
        index += batch;
        batches += 1;
        if trims && batches % TRIM_BATCHES == 0 {
            trim(store, &writer.streams, &format!("guest-{run}-{batches}"))?;
        }
    }
    writer.settle(0)
}

fn session(
    directory: &str,
    run: &str,
    records: usize,
    reserve: u64,
    trims: bool,
) -> Result<(), Error> {
    let disk = FileDisk::open(directory).map_err(|error| Error::Io {
        what: format!("open {directory}"),
        reason: error.to_string(),
    })?;
    let options = Options {
        segment_bytes: chappe_log::MIN_SEGMENT_BYTES,
        reserve_bytes: reserve,
        full_poll: Duration::from_millis(1),
        full_polls: 3,
        ..Options::default()
    };
    let seed = chappe_transport::seed_number().map_err(|error| Error::Io {
        what: "draw a seed".to_owned(),
        reason: error.to_string(),
    })?;
    let (store, found) = Store::open(Box::new(disk), options, seed)?;
    let (corrupt, epochs) = (found.corrupt.len(), found.new_epochs.len());
    println!(
        "opened clean={} copied={} torn={} corrupt={corrupt} new_epochs={epochs} records={}",
        found.clean,
        found.copied,
        found.torn_tail.is_some(),
        found.records
    );
    for info in store.streams() {
        if let Some(stream) = store.existing(&info.name) {
            show(&stream)?;
        }
    }
    if records > 0 {
        work(&store, run, records, trims)?;
    }
    store.close()?;
    println!("closed");
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let trims = arguments.get(4).is_some_and(|word| word == "trim");
    let (directory, run, records, reserve) = match &arguments
        [..arguments.len() - usize::from(trims)]
    {
        [directory, run, records] => (directory, run, records.parse(), Ok(0)),
        [directory, run, records, reserve] => (directory, run, records.parse(), reserve.parse()),
        _ => {
            eprintln!("usage: append DIRECTORY RUN RECORDS [RESERVE_BYTES [trim]]");
            return ExitCode::from(2);
        }
    };
    let (Ok(records), Ok(reserve)) = (records, reserve) else {
        eprintln!("error: RECORDS and RESERVE_BYTES are numbers");
        return ExitCode::from(2);
    };
    match session(directory, run, records, reserve, trims) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed {error}");
            ExitCode::FAILURE
        }
    }
}
