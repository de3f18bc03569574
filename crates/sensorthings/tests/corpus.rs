//! Goal: every test run checks the properties of the fuzz target.
//! Method: replays `fuzz/corpus/sensorthings`, each input with a bit changed and cut off at each place.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/sensorthings.rs"]
mod sensorthings;

#[test]
fn the_corpus_holds() {
    corpus::replay("sensorthings", 7, |input| {
        sensorthings::check(input);
        for at in 0..input.len().min(200) {
            let mut changed = input.to_vec();
            changed[at] ^= 1 << (at % 8);
            sensorthings::check(&changed);
            sensorthings::check(&input[..at]);
        }
    });
}
