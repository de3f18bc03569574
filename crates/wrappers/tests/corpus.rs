//! Goal: every test run checks the properties of the fuzz target.
//! Method: replays `fuzz/corpus/program_lines` and changes of it through the target's check.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn arbitrary_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        program_lines::check(&bytes);
    }
}
