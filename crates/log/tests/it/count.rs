//! Goal: records are counted by time exactly, whether the index or the records are consulted.
//! Method: times that rise, fall and repeat, in frames of many sizes and several segments; every range
//! compared with the count of a plain read, also after a trim.

use chappe_log::{Level, MemoryDisk, Options, Store};

#[test]
fn every_range_of_times_is_counted_as_a_read_counts_it() {
    let options = Options {
        segment_bytes: 65_536,
        ..Options::default()
    };
    let (store, _) = Store::open(Box::new(MemoryDisk::new()), options, 1).unwrap();
    let stream = store.stream("a", Level::Process, b"").unwrap();
    let time = |number: i64| (number * 7_919 % 1_000) + number / 4;
    let mut number = 0;
    for size in (1..60).cycle().take(400) {
        let batch: Vec<_> = (number..number + size)
            .map(|n| (time(n), vec![0; 40]))
            .collect();
        stream.append(batch).unwrap().wait().unwrap();
        number += size;
    }
    let check = |kept_from: i64| {
        let all: Vec<i64> = (kept_from..number).map(time).collect();
        for from in (-100..5_000).step_by(331) {
            for length in [0, 1, 50, 900, 10_000] {
                let wanted = all.iter().filter(|it| (from..from + length).contains(*it));
                let wanted = wanted.count() as u64;
                assert_eq!(stream.count_times(from, from + length).unwrap(), wanted);
            }
        }
        let whole = stream.count_times(i64::MIN, i64::MAX).unwrap();
        assert_eq!(whole, all.len() as u64);
    };
    check(0);
    stream.trim(1_235).unwrap().wait().unwrap();
    check(1_234);
}
