//! Goal: what fuzzing has found stays mended, and the fuzz target's checks hold on its seeds and on
//! random programs.
//!
//! Method: every file of `fuzz/corpus/kad`, and bytes from a seed, go through the functions that the
//! fuzz target calls.

#[path = "../../../fuzz/checks/kad.rs"]
#[allow(unreachable_pub, reason = "the fuzz target includes it too")]
mod check;

#[test]
fn the_corpus_passes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/kad");
    let files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(!files.is_empty(), "no seeds in {folder}");
    for file in files {
        let bytes = std::fs::read(&file).expect("a seed");
        check::check_forms(&bytes);
        check::check(&bytes);
    }
}

#[test]
fn random_programs_pass() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..4_000).map(|_| random.u8(..)).collect();
        check::check(&bytes);
    }
}
