//! Goal: the readers of text formats take any bytes, within bounds of memory and time.
//! Method: the seeds of the fuzz target, and bodies made to cost much.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/element_lines.rs"]
mod element_lines;

#[test]
fn the_seeds_of_the_corpus_hold() {
    corpus::replay("element_lines", 10, element_lines::check);
}

#[test]
fn bodies_that_cost_much_stay_within_bounds() {
    let repeated = |format: u8, head: &str, part: &str, count: usize| {
        let mut body = vec![format, 64];
        body.extend_from_slice(head.as_bytes());
        for _ in 0..count {
            body.extend_from_slice(part.as_bytes());
        }
        body
    };
    for body in [
        repeated(0, "[", "7,", 5_000),
        repeated(0, "", "[", 20_000),
        repeated(0, "[{\"s\":", "[", 20_000),
        repeated(0, "{\"s\":{\"values\":[", "1,", 20_000),
        repeated(0, "{", "\"i\":1,", 2_000),
        repeated(1, "", "x\n", 5_000),
        repeated(2, "i\n", "\"\"\n", 5_000),
        repeated(2, "t\n\"", "\"\"", 20_000),
        repeated(2, "", "i,", 10_000),
    ] {
        element_lines::check(&body);
    }
}

#[test]
fn memory_does_not_grow_with_the_body() {
    use chappe_stream::lines::{ElementReader, Format};
    use chappe_stream::{StreamSchema, Timestamp};
    for format in [Format::Ndjson, Format::Csv] {
        // The header names `key`, so that each line is a refused element.
        let piece = "key\n".repeat(1_000);
        let (bytes, ()) = bounds::peak_bytes(|| {
            let schema = std::sync::Arc::new(StreamSchema::default());
            let mut reader = ElementReader::new(format, schema, 0);
            let mut lines = Vec::new();
            for _ in 0..500 {
                reader
                    .push(piece.as_bytes(), Timestamp(0), &mut lines)
                    .expect("the body has its structure");
                assert!(lines.iter().all(|line| line.element.is_err()));
                lines.clear();
            }
        });
        assert!(bytes < 2 << 20, "{format:?} held {bytes} bytes");
    }
}
