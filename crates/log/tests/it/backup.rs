//! Goal: a copy made while the log is written, trimmed and cut by its size limit is a log of its
//! own that holds everything acknowledged before the copy started and nothing that was not written;
//! once opened, it has new epochs. A repair saves damaged bytes and leaves nothing that a reader
//! waits for.
//! Method: a store is copied repeatedly under a writer; each copy is opened and judged. A log with
//! rot, a torn tail and lost segments is repaired, also with a power loss at each boundary.

use chappe_log::{
    Disk, EpochReason, Error, Level, MemoryDisk, Options, Repaired, Report, Store, Stream, back_up,
    check, repair,
};
use chappe_sim::SimDisk;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        ..Options::default()
    }
}

fn payload(number: u64) -> Vec<u8> {
    number.to_string().repeat(20).into_bytes()
}

fn append(stream: &Stream) {
    let number = stream.last() + 1;
    let appended = stream.append(vec![(number as i64, payload(number))]);
    appended.unwrap().wait().unwrap();
}

/// Reads an entire stream without gaps; returns its first and last number.
fn whole(stream: &Stream) -> (u64, u64) {
    let mut next = stream.first();
    while next <= stream.last() {
        for record in stream.read(next, 100).unwrap() {
            assert_eq!(
                (record.position.sequence, record.payload),
                (next, payload(next))
            );
            next += 1;
        }
    }
    (stream.first(), stream.last())
}

/// Stops the writer, even if a copy fails the test.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn copies_under_a_writer(retain_bytes: Option<u64>) {
    let disk = SimDisk::new(1);
    let retained = Options {
        retain_bytes,
        ..options()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), retained, 1).unwrap();
    let [kept, short] = ["kept", "short"].map(|it| store.stream(it, Level::Power, b"").unwrap());
    (0..30).for_each(|_| append(&kept));
    let (done, wanted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ended = Ended(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if short.last() >= wanted.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                    continue;
                }
                append(&short);
                if short.last() % 5 == 0 {
                    if short.last() % 100 == 0 {
                        append(&kept);
                    }
                    drop(short.trim(short.last() - 3).unwrap());
                }
            }
        });
        for round in 0..25 {
            wanted.fetch_add(60, Ordering::Relaxed);
            let before = (kept.last(), short.first(), short.last());
            let copy = SimDisk::new(round);
            let mut told = 0;
            let made = back_up(&disk, &copy, &mut |done, all| {
                assert!(done <= all);
                told = done;
            });
            let made = made.unwrap();
            let bytes: u64 = made.files.iter().map(|file| file.1).sum();
            assert!(
                made.report.healthy() && made.report.copied,
                "{:?}",
                made.report
            );
            assert!(told > 0 && bytes == copy.used());
            // Nothing remains of the copy's unsynced bytes.
            let (opened, recovery) =
                Store::open(Box::new(copy.crash(round)), options(), 99).unwrap();
            assert_eq!((recovery.corrupt, recovery.torn_tail), (vec![], None));
            assert!(
                recovery
                    .new_epochs
                    .iter()
                    .all(|it| it.reason == EpochReason::Copied)
            );
            let (_, last) = whole(&opened.existing("kept").unwrap());
            assert!(last >= before.0);
            let (first, last) = whole(&opened.existing("short").unwrap());
            assert!(first >= before.1 && last >= before.2);
            assert_eq!(opened.existing("kept").unwrap().epochs().len(), 2);
            while short.last() < wanted.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
    });
    let counted = store.counters();
    match retain_bytes {
        Some(_) => assert!(counted.removed_segments > 3),
        None => assert!(counted.trimmed_segments > 3),
    }
}

#[test]
fn a_copy_of_a_log_that_is_written_is_whole() {
    copies_under_a_writer(None);
    copies_under_a_writer(Some(30_000));
}

#[test]
fn nothing_is_copied_of_nothing() {
    let made = back_up(&MemoryDisk::new(), &MemoryDisk::new(), &mut |_, _| {}).unwrap();
    assert!(made.files.is_empty() && made.report.healthy());
}

/// A log with rot in the middle, a missing segment and a torn tail.
fn broken() -> SimDisk {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    (0..150).for_each(|_| append(&stream));
    store.abandon();
    let disk = disk.crash(0);
    let mut names = disk.names();
    names.retain(|name| name.ends_with(".segment"));
    assert!(names.len() > 5);
    assert!(disk.flip(&names[1], 8 * 700) && disk.flip(&names[4], 8 * 2100));
    disk.remove(&names[2]).unwrap();
    let last = names.last().unwrap();
    let mut torn = disk.bytes(last).unwrap();
    torn.extend_from_slice(&[7; 100]);
    disk.put(last, &torn);
    disk.sync_directory().unwrap();
    disk
}

fn mend(disk: &SimDisk, kept: &MemoryDisk) -> Result<Repaired, Error> {
    repair(
        Box::new(disk.clone()),
        &mut || Ok(Box::new(kept.clone())),
        5,
    )
}

/// Finding of `check` in the broken log, the repaired disk, the saved bytes, and the report of the
/// repair.
fn repaired() -> (Report, SimDisk, MemoryDisk, Repaired) {
    let (disk, kept) = (broken(), MemoryDisk::new());
    let before = check(&disk).unwrap();
    let repaired = mend(&disk, &kept).unwrap();
    (before, disk, kept, repaired)
}

#[test]
fn repair_reports_what_it_found() {
    let (before, _, _, repaired) = repaired();
    assert_eq!(before.corrupt.len(), 3);
    assert_eq!(repaired.before, before);
}

#[test]
fn repair_keeps_damaged_bytes_aside() {
    let disk = broken();
    let originals: Vec<_> = disk
        .names()
        .iter()
        .filter_map(|it| disk.bytes(it))
        .collect();
    let kept = MemoryDisk::new();
    let repaired = mend(&disk, &kept).unwrap();
    // The bytes of two ranges and of the tail.
    assert_eq!(repaired.aside.len(), 3);
    for name in &repaired.aside {
        let file = kept.open(name).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
        let mut originals = originals.iter();
        let was_there = originals.any(|it| it.windows(bytes.len()).any(|part| part == bytes));
        assert!(!bytes.is_empty() && was_there, "{name}");
    }
}

#[test]
fn repair_gives_up_exactly_what_is_lost() {
    let (before, disk, _, repaired) = repaired();
    let gaps = &before.streams[0].gaps;
    let lost: u64 = gaps.iter().map(|(from, last)| last - from + 1).sum();
    assert!(lost > 10, "{lost}");
    let given_up = repaired
        .given_up
        .iter()
        .map(|(_, from, last)| (*from, *last));
    assert_eq!(&given_up.collect::<Vec<_>>(), gaps);
    let after = check(&disk).unwrap();
    let (old, new) = (&before.streams[0], &after.streams[0]);
    assert_eq!(
        (new.records, &new.given_up, &new.gaps),
        (old.records, &old.gaps, &vec![])
    );
    assert!(after.clean && after.torn_tail.is_none());
}

#[test]
fn a_second_repair_gives_up_nothing_more() {
    let (_, disk, ..) = repaired();
    let again = mend(&disk, &MemoryDisk::new()).unwrap();
    assert_eq!(
        (again.given_up, again.recovery.new_epochs),
        (vec![], vec![])
    );
}

#[test]
fn a_log_with_damage_in_its_newest_segment_is_healthy_after_a_repair() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    (0..6).for_each(|_| append(&stream));
    store.close().unwrap();
    let mut names = disk.names();
    names.retain(|name| name.ends_with(".segment"));
    assert!(names.len() == 1 && disk.flip(&names[0], 8 * 400));
    assert!(!check(&disk).unwrap().healthy());
    mend(&disk, &MemoryDisk::new()).unwrap();
    let report = check(&disk).unwrap();
    assert!(report.healthy(), "{report:?}");
    // What the damage may have held is not written again under the same numbers.
    let (store, recovery) = Store::open(Box::new(disk.clone()), options(), 7).unwrap();
    assert!(recovery.clean);
    append(&store.existing("a").unwrap());
    store.close().unwrap();
    assert!(check(&disk).unwrap().healthy());
}

#[test]
fn what_was_given_up_can_be_filled() {
    let (_, disk, ..) = repaired();
    let (store, recovery) = Store::open(Box::new(disk), options(), 6).unwrap();
    assert!(recovery.clean);
    let stream = store.existing("a").unwrap();
    let (from, last) = stream.given_up()[0];
    assert!(matches!(stream.read(from, 1), Err(Error::Gap { next, .. }) if next > last));
    let first = chappe_log::Position {
        epoch: stream.epochs()[0].0,
        sequence: from,
    };
    let batch: Vec<_> = (from..=last).map(|n| (n as i64, payload(n))).collect();
    stream.fill(first, batch).unwrap().wait().unwrap();
    assert_eq!(stream.read(from, 1).unwrap()[0].payload, payload(from));
    assert!(stream.given_up().iter().all(|range| range.0 > last));
    assert!(matches!(
        stream.give_up(from, last),
        Err(Error::NotMissing { .. })
    ));
}

#[test]
fn mending_can_be_cut_anywhere() {
    let lost = check(&broken()).unwrap();
    for boundary in 0.. {
        let disk = broken();
        let kept = MemoryDisk::new();
        disk.cut_power_at(disk.boundaries() + boundary);
        let done = mend(&disk, &kept).is_ok();
        let after = disk.crash(boundary);
        mend(&after, &MemoryDisk::new()).unwrap();
        let report = check(&after).unwrap();
        let (old, new) = (&lost.streams[0], &report.streams[0]);
        assert_eq!(
            (new.records, &new.given_up),
            (old.records, &old.gaps),
            "{boundary}"
        );
        if done {
            assert!(boundary > 10);
            break;
        }
    }
}
