//! Goal: findings of the fuzzer stay fixed, and the checks of the fuzz target hold on its seeds.
//!
//! Method: every file of `fuzz/corpus/log` is passed to the function that the fuzz target calls.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/log.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_passes() {
    corpus::replay("log", 7, check::check);
}
