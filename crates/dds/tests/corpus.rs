//! Goal: every test run checks the properties of the fuzz target.
//! Method: replays `fuzz/corpus/dds_element` and byte-by-byte changes of it through the target's check,
//! and properties over arbitrary bytes.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/dds_element.rs"]
mod dds_element;

use std::path::Path;

use proptest::prelude::*;

#[test]
fn the_corpus_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dds_element");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let input = std::fs::read(file.unwrap().path()).unwrap();
        count += 1;
        dds_element::check(&input);
        for at in 0..input.len() {
            let mut changed = input.clone();
            changed[at] ^= 1 << (at % 8);
            dds_element::check(&changed);
            changed[at] = 0xff;
            dds_element::check(&changed);
            dds_element::check(&input[..at]);
        }
    }
    assert!(count >= 8, "{count} files in the corpus");
}

proptest! {
    #[test]
    fn arbitrary_bytes_hold(choice: u8, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut input = vec![choice];
        input.extend(bytes);
        dds_element::check(&input);
    }
}
