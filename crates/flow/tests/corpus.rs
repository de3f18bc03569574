//! Goal: faults that fuzzing has found stay fixed, and the fuzz target's checks hold on its seeds.
//!
//! Method: every file of `fuzz/corpus/flow` goes through the function that the fuzz target calls.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/flow.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_passes() {
    corpus::replay("flow", 5, check::check);
}
