//! Every file of `fuzz/corpus/xml` and `fuzz/corpus/canonical` passes the checks of its fuzz target.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/canonical.rs"]
mod canonical;
#[path = "../../../fuzz/checks/xml.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_passes() {
    corpus::replay("xml", 14, check::check);
}

#[test]
fn the_corpus_of_canonical_forms_passes() {
    corpus::replay("canonical", 10, canonical::check);
}
