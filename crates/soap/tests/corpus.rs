//! Goal: what fuzzing has found stays mended, and the fuzz target's checks hold on its seeds.
//!
//! Method: every file of `fuzz/corpus/soap` and `fuzz/corpus/wsdl` goes through the function that the fuzz
//! target calls.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/soap.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/wsdl.rs"]
mod wsdl;

#[test]
fn the_corpus_of_descriptions_passes() {
    corpus::replay("wsdl", 8, wsdl::check);
}

#[test]
fn the_corpus_passes() {
    corpus::replay("soap", 7, check::check);
}
