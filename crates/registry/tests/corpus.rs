//! Goal: defects found by fuzzing stay fixed, and the fuzz target's checks hold on its seeds.
//!
//! Method: passes every file of `fuzz/corpus/uddi` and `fuzz/corpus/metadata` to the fuzz target's function.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/metadata.rs"]
mod metadata;
#[path = "../../../fuzz/checks/uddi.rs"]
mod uddi;

#[test]
fn uddi_corpus_passes() {
    corpus::replay("uddi", 11, uddi::check);
}

#[test]
fn metadata_corpus_passes() {
    corpus::replay("metadata", 4, metadata::check);
}
