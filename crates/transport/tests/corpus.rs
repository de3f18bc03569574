//! Goal: findings of the fuzzer stay fixed, and the checks of the fuzz target hold on its seeds and on damaged ones.
//!
//! Method: every file of `fuzz/corpus/mdns`, and each with each byte replaced, is passed to the function that the fuzz
//! target calls.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/mdns.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_passes() {
    corpus::replay("mdns", 3, |bytes| {
        check::check(bytes);
        for at in 0..bytes.len() {
            for value in [0, 1, 63, 64, 0xc0, 0xff] {
                let mut damaged = bytes.to_vec();
                damaged[at] = value;
                check::check(&damaged);
            }
            check::check(&bytes[..at]);
        }
    });
}
