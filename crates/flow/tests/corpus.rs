//! Goal: what fuzzing has found stays mended, and the fuzz target's checks hold on its seeds.
//!
//! Method: every file of `fuzz/corpus/flow` goes through the function that the fuzz target calls.

#[path = "../../../fuzz/checks/flow.rs"]
#[allow(unreachable_pub)]
mod check;

#[test]
fn the_corpus_passes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/flow");
    let files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(!files.is_empty(), "no seeds in {folder}");
    for file in files {
        check::check(&std::fs::read(&file).expect("a seed"));
    }
}
