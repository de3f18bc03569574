//! Goal: defects found by fuzzing stay fixed, and the fuzz target's checks hold on its seeds.
//!
//! Method: passes every file of `fuzz/corpus/soap`, `fuzz/corpus/security`, `fuzz/corpus/wsdl` and
//! `fuzz/corpus/message` to the fuzz target's function.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/soap.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/message.rs"]
mod message;
#[path = "../../../fuzz/checks/security.rs"]
mod security;
#[path = "../../../fuzz/checks/wsdl.rs"]
mod wsdl;

#[test]
fn wsdl_corpus_passes() {
    corpus::replay("wsdl", 8, wsdl::check);
}

#[test]
fn soap_corpus_passes() {
    corpus::replay("soap", 7, check::check);
}

#[test]
fn security_corpus_passes() {
    corpus::replay("security", 6, security::check);
}

#[test]
fn message_corpus_passes() {
    corpus::replay("message", 7, message::check);
}
