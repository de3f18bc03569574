//! A workload over streams of all levels, trimmed as they grow, and the judge that compares a store
//! with the acknowledgements. Independent of the store's own code.

use chappe_log::{CorruptRange, Cursor, Level, Options, Position, Store, Stream};
use chappe_sim::SimDisk;
use std::collections::BTreeMap;

const STREAMS: [(&str, Level); 4] = [
    ("power-a", Level::Power),
    ("power-b", Level::Power),
    ("process", Level::Process),
    ("memory", Level::Memory),
];

/// All acknowledged records: stream, position, payload.
#[derive(Default, Clone)]
pub(crate) struct Model {
    pub(crate) acknowledged: BTreeMap<(usize, u64), (Position, Vec<u8>)>,
    /// Positions that were acknowledged; a second use of one is a fault.
    pub(crate) issued: BTreeMap<(usize, Position), Vec<u8>>,
    /// The first number kept by the trims requested, and by those acknowledged.
    pub(crate) trims: BTreeMap<usize, (u64, u64)>,
    /// Segments that the workload saw removed.
    pub(crate) removed: u64,
}

/// A record's cursor is its first bytes.
fn cursor_of(payload: &[u8]) -> Option<Cursor> {
    payload.first_chunk().copied()
}

/// Small segments, no reserve.
pub(crate) fn options() -> Options {
    Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        cursor_of: Some(cursor_of),
        ..Options::default()
    }
}

/// Runs to the end or until the power fails; true if it reached the end.
pub(crate) fn workload(disk: &SimDisk, model: &mut Model, seed: u64, steps: u64) -> bool {
    workload_with(options(), disk, model, seed, steps)
}

/// Like [`workload`], with other options.
pub(crate) fn workload_with(
    options: Options,
    disk: &SimDisk,
    model: &mut Model,
    seed: u64,
    steps: u64,
) -> bool {
    let Ok((store, _)) = Store::open(Box::new(disk.clone()), options, seed) else {
        return false;
    };
    let mut streams = Vec::new();
    for (name, level) in STREAMS {
        match store.stream(name, level, b"schema") {
            Ok(stream) => streams.push(stream),
            Err(_) => return false,
        }
    }
    let mut random = fastrand_like(seed);
    for step in 0..steps {
        // With an even seed one stream falls silent: its only segment stays, later ones are
        // removed.
        let silent = |s: usize| s == 1 && step > 0 && seed.is_multiple_of(2);
        if step % 3 == 2 && !trim(&streams, model, random() % 4, silent) {
            return false;
        }
        // Several batches at once, so that groups of several frames are torn.
        let mut waiting = Vec::new();
        for _ in 0..1 + random() % 3 {
            let s = (random() % 4) as usize;
            if silent(s) {
                continue;
            }
            let batch: Vec<(i64, Vec<u8>)> = (0..1 + random() % 3)
                .map(|n| {
                    let text = format!("{seed} {step} {n} {}", random());
                    (
                        step as i64,
                        text.repeat(1 + (random() % 9) as usize).into_bytes(),
                    )
                })
                .collect();
            let Ok(appended) = streams[s].append(batch.clone()) else {
                return false;
            };
            waiting.push((s, appended.first, batch, appended));
        }
        for (s, first, batch, appended) in waiting {
            if appended.wait().is_err() {
                return false;
            }
            for (n, (_, payload)) in batch.into_iter().enumerate() {
                let sequence = first.sequence + n as u64;
                let position = Position { sequence, ..first };
                let old = model.issued.insert((s, position), payload.clone());
                assert!(
                    old.is_none(),
                    "{position:?} of {} was given out twice",
                    STREAMS[s].0
                );
                model
                    .acknowledged
                    .insert((s, sequence), (position, payload));
            }
        }
    }
    drop(streams);
    model.removed = store.counters().trimmed_segments;
    store.close().is_ok()
}

/// Trims the streams to their newest few records, or completely.
fn trim(streams: &[Stream], model: &mut Model, keep: u64, silent: impl Fn(usize) -> bool) -> bool {
    for (s, stream) in streams.iter().enumerate().filter(|(s, _)| !silent(*s)) {
        let before = (stream.last() + 1).saturating_sub(keep);
        let trims = model.trims.entry(s).or_default();
        trims.0 = trims.0.max(before);
        match stream.trim(before).map(chappe_log::Trimmed::wait) {
            Ok(Ok(())) => trims.1 = trims.1.max(before),
            _ => return false,
        }
    }
    true
}

fn fastrand_like(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 8
    }
}

/// Opens the disk and compares all readable records with the model.
pub(crate) fn judge(disk: &SimDisk, model: &mut Model, at_least: Level, seed: u64) {
    let (store, recovery) = Store::open(Box::new(disk.clone()), options(), seed).unwrap();
    let missing = |range: &CorruptRange| range.what.contains("segment is missing");
    assert!(!recovery.corrupt.iter().any(missing), "{recovery:?}");
    for (s, (name, level)) in STREAMS.into_iter().enumerate() {
        let wanted: Vec<_> = model
            .acknowledged
            .iter()
            .filter(|((of, _), _)| *of == s)
            .collect();
        let trims = model.trims.get(&s).copied().unwrap_or_default();
        let Some(stream) = store.existing(name) else {
            let safe = wanted.is_empty() || level < at_least;
            assert!(safe, "stream {name} is lost: {recovery:?}");
            continue;
        };
        let mut found = BTreeMap::new();
        let mut last = 0;
        let mut from = 0;
        loop {
            match stream.read(from, 7) {
                Ok(records) if records.is_empty() => break,
                Ok(records) => {
                    for record in records {
                        let sequence = record.position.sequence;
                        assert!(sequence > last, "order of {name}");
                        last = sequence;
                        found.insert(sequence, record);
                    }
                    from = last + 1;
                }
                Err(chappe_log::Error::Gap { next, .. }) => from = next,
                Err(error) => panic!("{name}: {error}"),
            }
        }
        // The newest record names the cursor, whether it is still kept or not.
        let newest = found.get(&stream.last()).map(|record| &record.payload);
        let acknowledged = wanted.iter().find(|((_, at), _)| *at == stream.last());
        let acknowledged = acknowledged.filter(|_| level >= at_least);
        if let Some(payload) = newest.or(acknowledged.map(|(_, (_, payload))| payload)) {
            assert_eq!(stream.cursor(), cursor_of(payload), "the cursor of {name}");
        }
        let kept = stream.first();
        assert!(
            kept >= trims.1 || level < at_least,
            "{name}: {kept} {trims:?}"
        );
        model.trims.insert(s, (kept, kept));
        for ((_, sequence), (position, payload)) in wanted {
            let Some(record) = found.get(sequence) else {
                assert!(
                    level < at_least || *sequence < trims.0,
                    "{name} {position:?} is lost: {recovery:?}"
                );
                continue;
            };
            // A number may have been reassigned only in another epoch.
            if record.position == *position {
                assert_eq!(
                    record.payload, *payload,
                    "{name} {position:?} is another record"
                );
            } else {
                assert!(level < at_least, "{name} {position:?} has another epoch");
            }
            if level >= at_least {
                assert_eq!(stream.resume(*position).ok(), Some(sequence + 1), "{name}");
            }
        }
        // Readable records count as acknowledged from now on.
        model.acknowledged.retain(|(of, _), _| *of != s);
        for (sequence, record) in found {
            let key = (s, record.position);
            if let Some(payload) = model.issued.insert(key, record.payload.clone()) {
                assert_eq!(payload, record.payload, "{name} {:?}", record.position);
            }
            model
                .acknowledged
                .insert((s, sequence), (record.position, record.payload));
        }
    }
    drop(store);
}
