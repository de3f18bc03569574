//! Goal: every test run checks the properties of the fuzz targets.
//! Method: replays `fuzz/corpus/dds_element` and `dds_types` and byte-by-byte changes of them through the targets' checks,
//! and properties over arbitrary bytes.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/dds_element.rs"]
mod dds_element;
#[path = "../../../fuzz/checks/dds_types.rs"]
mod dds_types;

use std::path::Path;

use proptest::prelude::*;

#[test]
fn the_corpus_holds() {
    replay("dds_element", 8, dds_element::check);
    replay("dds_types", 2, dds_types::check);
}

fn replay(name: &str, least: usize, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let input = std::fs::read(file.unwrap().path()).unwrap();
        count += 1;
        check(&input);
        for at in 0..input.len() {
            let mut changed = input.clone();
            changed[at] ^= 1 << (at % 8);
            check(&changed);
            changed[at] = 0xff;
            check(&changed);
            check(&input[..at]);
        }
    }
    assert!(count >= least, "{count} files in the corpus");
}

proptest! {
    #[test]
    fn arbitrary_bytes_hold(choice: u8, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut input = vec![choice];
        input.extend(bytes);
        dds_element::check(&input);
    }
}
