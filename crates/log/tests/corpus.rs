//! Goal: what fuzzing has found stays mended, and the fuzz target's checks hold on its seeds.
//!
//! Method: every file of `fuzz/corpus/log` goes through the function that the fuzz target calls.

#[path = "../../../fuzz/checks/bounds.rs"]
#[allow(unreachable_pub, reason = "the fuzz targets include it too")]
mod bounds;
#[path = "../../../fuzz/checks/log.rs"]
#[allow(unreachable_pub, reason = "the fuzz target includes it too")]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
#[allow(unreachable_pub, reason = "the other tests of corpora include it too")]
mod corpus;

#[test]
fn the_corpus_passes() {
    corpus::replay("log", 1, check::check);
}
