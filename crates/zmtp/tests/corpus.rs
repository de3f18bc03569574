//! Goal: every test run checks the properties of the fuzz target.
//! Method: replays `fuzz/corpus/zmtp` and byte-by-byte changes of it through the target's check, and
//! properties over arbitrary bytes.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/zmtp.rs"]
mod zmtp;

use proptest::prelude::*;

#[test]
fn the_corpus_holds() {
    corpus::replay("zmtp", 18, |input| {
        zmtp::check(input);
        for at in 0..input.len().min(200) {
            let mut changed = input.to_vec();
            changed[at] ^= 1 << (at % 8);
            zmtp::check(&changed);
            zmtp::check(&input[..at]);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_bytes_hold(choice in any::<u8>(), bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        zmtp::check(&[&[choice], &bytes[..]].concat());
    }

    #[test]
    fn arbitrary_frames_hold(
        choice in 0u8..4,
        piece in any::<u8>(),
        frames in prop::collection::vec((0u8..8, prop::collection::vec(any::<u8>(), 0..60)), 0..20),
    ) {
        let mut data = vec![0x10 | choice, piece];
        for (flags, body) in frames {
            data.extend([flags & 5, body.len() as u8]);
            data.extend(body);
        }
        zmtp::check(&data);
    }
}
