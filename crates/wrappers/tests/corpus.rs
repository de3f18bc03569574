//! Goal: every test run checks the properties of the fuzz targets.
//! Method: replays `fuzz/corpus/program_lines` and `fuzz/corpus/ingest`, and changes of them, through the targets'
//! checks.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[cfg(all(feature = "line-protocol", feature = "remote-write"))]
#[path = "../../../fuzz/checks/ingest.rs"]
mod ingest;
#[path = "../../../fuzz/checks/program_lines.rs"]
mod program_lines;

use proptest::prelude::*;

#[test]
fn the_corpus_holds() {
    corpus::replay("program_lines", 8, |input| {
        program_lines::check(input);
        for at in 0..input.len().min(600) {
            let mut changed = input.to_vec();
            changed[at] ^= 1 << (at % 8);
            program_lines::check(&changed);
            program_lines::check(&input[..at]);
        }
    });
}

#[cfg(all(feature = "line-protocol", feature = "remote-write"))]
#[test]
fn messages_of_agents_hold() {
    corpus::replay("ingest", 5, |input| {
        ingest::check(input);
        for at in 0..input.len().min(400) {
            let mut changed = input.to_vec();
            changed[at] ^= 1 << (at % 8);
            ingest::check(&changed);
            ingest::check(&input[..at]);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn arbitrary_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        program_lines::check(&bytes);
    }
}
