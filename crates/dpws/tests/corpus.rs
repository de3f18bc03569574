//! Goal: what fuzzing has found stays mended, and the fuzz target's checks hold on its seeds.
//!
//! Method: every file of `fuzz/corpus/discovery` and `fuzz/corpus/compact` goes through the function that the fuzz
//! target calls; those of the latter also with each of their bytes changed, and cut off everywhere.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/discovery.rs"]
mod check;
#[path = "../../../fuzz/checks/compact.rs"]
mod compact;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_passes() {
    corpus::replay("discovery", 15, check::check);
}

/// Bytes of a seed of which each byte is changed.
const CHANGED_MAX: usize = 1_000;

#[test]
fn the_corpus_of_compact_messages_passes() {
    corpus::replay("compact", 9, |bytes| {
        compact::check(bytes);
        // The larger seeds are bombs, whose changes would take minutes.
        if bytes.len() > CHANGED_MAX {
            return;
        }
        for at in 0..bytes.len() {
            compact::check(&bytes[..at]);
            let mut changed = bytes.to_vec();
            for change in [1, 0x10, 0x80, 0xFF] {
                changed[at] = bytes[at] ^ change;
                compact::check(&changed);
            }
        }
    });
}
