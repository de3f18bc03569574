//! Invariants of the records of a registry's journal for any bytes. Each record follows its length, two bytes, the lower
//! first.

use chappe_registry::{Journal, MemoryJournal, Principal, Registry, Search};

use crate::bounds::Bound;

/// The records, and the entities with their indexes, twice.
const BOUND: Bound = Bound::memory(4 << 20, 2_000);

/// No panic within the bounds; records that can be read give the same entities each time.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || {
        let journal = MemoryJournal::new();
        let appended = journal.append_if(0, records(data));
        appended
            .expect("it is empty")
            .wait()
            .expect("it is in memory");
        let Ok(first) = Registry::open(journal.clone()) else {
            return;
        };
        let second = Registry::open(journal).expect("it was opened");
        assert_eq!(first.revision(), second.revision());
        assert_eq!(found(&first), found(&second));
    });
}

fn records(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (record, rest) = rest.split_at(length);
        records.push(record.to_vec());
        data = rest;
    }
    records
}

/// The keys and names of the first entities.
fn found(registry: &Registry) -> Vec<(String, String)> {
    let found = registry.search(&Search::default(), &Principal::Operator);
    let found = found.entities.into_iter();
    found
        .map(|entity| (entity.key.clone(), entity.name.clone()))
        .collect()
}
