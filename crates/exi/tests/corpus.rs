//! Every file of the fuzzing corpora passes the checks of its target.

use chappe_exi::Alignment;

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/exi.rs"]
mod exi;

use corpus::replay;

#[test]
fn bit_packed_corpus_passes() {
    replay("exi_bit", 60, |data| {
        exi::decoder(data, Alignment::BitPacked, false);
    });
}

#[test]
fn byte_aligned_corpus_passes() {
    replay("exi_byte", 60, |data| {
        exi::decoder(data, Alignment::ByteAligned, false);
    });
}

#[test]
fn pre_compressed_corpus_passes() {
    replay("exi_precompress", 60, |data| {
        exi::decoder(data, Alignment::PreCompression, false);
    });
}

#[test]
fn compressed_corpus_passes() {
    replay("exi_compress", 60, |data| {
        exi::decoder(data, Alignment::BitPacked, true);
    });
}

#[test]
fn schema_corpus_passes() {
    replay("exi_xsd", 2, exi::xsd);
}
