//! Shared by all tests that replay a corpus: a crate's `tests/corpus.rs` includes this file and the
//! check of its target.

/// Passes every file of `fuzz/corpus/FOLDER` to a check.
///
/// # Panics
/// The check panics, a file cannot be read, or there are fewer than `least`: a missing corpus would
/// pass any check.
pub(crate) fn replay(folder: &str, least: usize, mut check: impl FnMut(&[u8])) {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
    let mut files = 0;
    for entry in std::fs::read_dir(format!("{corpus}/{folder}")).expect("the corpus folder") {
        let path = entry.expect("an entry").path();
        check(&std::fs::read(&path).expect("a seed"));
        files += 1;
    }
    assert!(files >= least, "{files} files in {folder}, not {least}");
}
