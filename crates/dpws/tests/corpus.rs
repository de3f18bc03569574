//! Goal: defects found by fuzzing stay fixed, and the fuzz target's checks hold on its seeds.
//!
//! Method: passes every file of `fuzz/corpus/discovery`, `fuzz/corpus/service_schema` and `fuzz/corpus/compact` to the
//! fuzz target's function; compact messages also truncated and with each byte changed, and the hostile WSDL of other
//! targets also as the schema of a service.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/discovery.rs"]
mod check;
#[path = "../../../fuzz/checks/compact.rs"]
mod compact;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/service_schema.rs"]
mod service_schema;

#[test]
fn discovery_corpus_passes() {
    corpus::replay("discovery", 15, check::check);
}

#[test]
fn service_schema_corpus_passes() {
    for (name, count) in [("service_schema", 19), ("wsdl", 8), ("exi_xsd", 2)] {
        corpus::replay(name, count, service_schema::check);
    }
}

/// The largest seed whose bytes are changed.
const CHANGED_MAX: usize = 1_000;

#[test]
fn compact_corpus_passes() {
    corpus::replay("compact", 9, |bytes| {
        compact::check(bytes);
        // The larger seeds are bombs; changing each of their bytes would take minutes.
        if bytes.len() > CHANGED_MAX {
            return;
        }
        for at in 0..bytes.len() {
            compact::check(&bytes[..at]);
            let mut changed = bytes.to_vec();
            for change in [1, 0x10, 0x80, 0xFF] {
                changed[at] = bytes[at] ^ change;
                compact::check(&changed);
            }
        }
    });
}
