//! Goal: defects found by fuzzing stay fixed, and the fuzz target's checks hold on its seeds.
//!
//! Method: passes every file of `fuzz/corpus/uddi`, `uddi_wsdl` and `thing` to the fuzz target's function.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/thing.rs"]
mod thing;
#[path = "../../../fuzz/checks/uddi.rs"]
mod uddi;
#[path = "../../../fuzz/checks/uddi_wsdl.rs"]
mod uddi_wsdl;

#[test]
fn uddi_corpus_passes() {
    corpus::replay("uddi", 11, uddi::check);
}

#[test]
fn uddi_wsdl_corpus_passes() {
    corpus::replay("uddi_wsdl", 11, uddi_wsdl::check);
}

#[test]
fn thing_corpus_passes() {
    corpus::replay("thing", 5, thing::check);
}
