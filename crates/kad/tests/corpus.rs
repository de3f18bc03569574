//! Goal: findings of the fuzzer stay fixed, and the checks of the fuzz target hold on its seeds and
//! on random programs.
//!
//! Method: every file of `fuzz/corpus/kad`, and bytes from a seed, are passed to the functions that
//! the fuzz target calls.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/kad.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_passes() {
    corpus::replay("kad", 1, |bytes| {
        check::check_forms(bytes);
        check::check(bytes);
    });
}

#[test]
fn random_programs_pass() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..4_000).map(|_| random.u8(..)).collect();
        check::check(&bytes);
    }
}
