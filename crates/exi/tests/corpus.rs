//! Goal: inputs that once were interesting stay harmless.
//! Method: every file of the fuzzing corpora goes through the checks of its target.

use std::path::Path;

use chappe_exi::Alignment;

#[path = "../../../fuzz/checks/exi.rs"]
#[allow(unreachable_pub, reason = "the fuzz target includes it too")]
mod exi;

fn replay(folder: &str, check: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut files = 0;
    for entry in std::fs::read_dir(corpus.join(folder)).expect("the corpus is there") {
        let path = entry.expect("a readable directory").path();
        check(&std::fs::read(&path).expect("a readable file"));
        files += 1;
    }
    assert!(files > 0, "{folder} is empty");
}

#[test]
fn bit_packed() {
    replay("exi_bit", |data| {
        exi::decoder(data, Alignment::BitPacked, false);
    });
}

#[test]
fn byte_aligned() {
    replay("exi_byte", |data| {
        exi::decoder(data, Alignment::ByteAligned, false);
    });
}

#[test]
fn pre_compressed() {
    replay("exi_precompress", |data| {
        exi::decoder(data, Alignment::PreCompression, false);
    });
}

#[test]
fn compressed() {
    replay("exi_compress", |data| {
        exi::decoder(data, Alignment::BitPacked, true);
    });
}

#[test]
fn schemas() {
    replay("exi_xsd", exi::xsd);
}
