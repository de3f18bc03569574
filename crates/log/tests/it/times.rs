//! Goal: the first number that may have a time is close to it, however many frames the index holds as one.
//! Method: some hundred frames of two streams in one segment; times are sought that are in one frame, in none and in
//! all, and the numbers read from there have every record of these times.

use chappe_log::{Commit, Level, Options, Store};
use chappe_sim::SimDisk;

/// Records of a frame.
const EACH: u64 = 5;
const FRAMES: u64 = 300;

#[test]
fn a_time_is_sought_among_the_frames_of_a_chunk() {
    let options = Options {
        segment_bytes: 1 << 20,
        reserve_bytes: 0,
        recent_bytes: 0,
        commit: Commit::Caller,
        ..Options::default()
    };
    let (store, _) = Store::open(Box::new(SimDisk::new(1)), options, 1).unwrap();
    let stream = store.stream("a", Level::Process, b"").unwrap();
    let other = store.stream("b", Level::Process, b"").unwrap();
    for frame in 0..FRAMES {
        let numbers = frame * EACH + 1..=(frame + 1) * EACH;
        // Times rise with numbers, apart from a pause in the middle and an early record in each tenth frame.
        let pause = if frame < FRAMES / 2 { 0 } else { 1_000_000 };
        let early = |number: u64| frame.is_multiple_of(10) && number.is_multiple_of(EACH);
        let time = |number| 1_000 + number as i64 + pause - if early(number) { 100 } else { 0 };
        let records = numbers.map(|number| (time(number), vec![1]));
        for stream in [&stream, &other] {
            let records = records.clone().collect::<Vec<_>>();
            stream.append(records).unwrap().wait().unwrap();
        }
    }
    let all = stream.range(0, i64::MAX, 10_000).unwrap();
    assert_eq!(all.len() as u64, FRAMES * EACH);
    for from_ns in (800..2_000).chain(1_001_600..1_002_600).step_by(37) {
        for to_ns in [from_ns + 1, from_ns + 60, i64::MAX] {
            let wanted: Vec<_> = all
                .iter()
                .filter(|one| (from_ns..to_ns).contains(&one.time))
                .collect();
            let sought = stream.seek_time(0, from_ns, to_ns);
            let found = stream.range(from_ns, to_ns, 10_000).unwrap();
            assert_eq!(found.iter().collect::<Vec<_>>(), wanted);
            if let Some(first) = wanted.first().map(|one| one.position.sequence) {
                let sought = sought.unwrap();
                // A frame with an early record may have the times before its others.
                assert!((first.saturating_sub(101)..=first).contains(&sought));
                let next = stream.seek_time(first + EACH, from_ns, from_ns + 1);
                assert!(next.is_none_or(|next| next <= first + 200), "{next:?}");
            }
        }
    }
    // In the pause there is nothing, although the index holds it as one with what is around.
    assert_eq!(stream.seek_time(0, 10_000, 900_000), None);
}
