//! Goal: inputs that once were interesting stay harmless.
//! Method: every file of the fuzzing corpora goes through the checks of its target.

use chappe_exi::Alignment;

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/exi.rs"]
mod exi;

use corpus::replay;

#[test]
fn bit_packed() {
    replay("exi_bit", 60, |data| {
        exi::decoder(data, Alignment::BitPacked, false);
    });
}

#[test]
fn byte_aligned() {
    replay("exi_byte", 60, |data| {
        exi::decoder(data, Alignment::ByteAligned, false);
    });
}

#[test]
fn pre_compressed() {
    replay("exi_precompress", 60, |data| {
        exi::decoder(data, Alignment::PreCompression, false);
    });
}

#[test]
fn compressed() {
    replay("exi_compress", 60, |data| {
        exi::decoder(data, Alignment::BitPacked, true);
    });
}

#[test]
fn schemas() {
    replay("exi_xsd", 2, exi::xsd);
}
