//! Goal: what fuzzing has found stays mended, and the fuzz target's checks hold on its seeds.
//!
//! Method: every file of `fuzz/corpus/xml` goes through the function that the fuzz target calls.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/xml.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_passes() {
    corpus::replay("xml", 14, check::check);
}
