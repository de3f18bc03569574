//! Goal: the reader of GSN's descriptors takes any bytes, within bounds of memory and time.
//! Method: the seeds of the fuzz target, and files made to cost much.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/gsn_descriptor.rs"]
mod gsn_descriptor;

#[test]
fn the_seeds_of_the_corpus_hold() {
    corpus::replay("gsn_descriptor", 10, gsn_descriptor::check);
}

#[test]
fn files_that_cost_much_stay_within_bounds() {
    let full = include_str!("descriptors/full.xml");
    let counted =
        |from: &str, part: &str, count: usize| full.replacen(from, &part.repeat(count), 1);
    for text in [
        "<a>".repeat(5_000),
        counted(
            "<field name=\"WIND\" type=\"float\" unit=\"Beaufort\"/>",
            "<x/>",
            10_000,
        ),
        counted("select * from wrapper", "casewhen(", 5_000),
        counted("select * from wrapper", "(select timed,", 5_000),
        counted("select * from wrapper", "timed,", 10_000),
        counted("select * from wrapper", "a.timed as timed from", 2_000),
        counted("select * from wrapper", "select ", 5_000),
        counted("Roof Station", "Aé. ", 20_000),
        counted("name=\"planning\"", "name=\"p\" ", 1_000),
    ] {
        gsn_descriptor::check(text.as_bytes());
    }
}
