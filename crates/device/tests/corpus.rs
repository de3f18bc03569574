//! Goal: findings of the fuzzer stay fixed, and the checks of the fuzz target hold on its seeds and their mutants.
//!
//! Method: every file of `fuzz/corpus/capture`, and mutants of it, are passed to the function that the fuzz target
//! calls.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/capture.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

use proptest::prelude::*;

#[test]
fn the_corpus_passes() {
    corpus::replay("capture", 2, check::check);
}

proptest! {
    #[test]
    fn arbitrary_packets_pass(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let head = "d4c3b2a1020004000000000000000000ffff000065000000";
        let byte = |at| u8::from_str_radix(&head[at..at + 2], 16).unwrap();
        let mut file: Vec<u8> = (0..head.len()).step_by(2).map(byte).collect();
        file.extend(bytes);
        check::check(&file);
    }

    #[test]
    fn mutants_of_the_corpus_pass(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16),
    ) {
        corpus::replay("capture", 2, |seed| {
            let mut mutant = seed.to_vec();
            for (index, byte) in &changes {
                let at = index.index(mutant.len());
                mutant[at] = *byte;
            }
            check::check(&mutant);
        });
    }
}
