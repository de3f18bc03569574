//! Every file of `fuzz/corpus/xml` and `fuzz/corpus/canonical` passes the checks of its fuzz target.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/canonical.rs"]
mod canonical;
#[path = "../../../fuzz/checks/xml.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn the_corpus_passes() {
    corpus::replay("xml", 14, check::check);
}

#[test]
fn the_corpus_of_canonical_forms_passes() {
    corpus::replay("canonical", 10, canonical::check);
}

/// A generator of numbers that needs no dependency (Knuth's constants).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % bound.max(1)
    }
}

/// Changes of the seeds reach what the seeds do not: overlapping declarations, cut tags, odd text.
#[test]
fn changed_files_have_canonical_forms_too() {
    const PIECES: &[&str] = &[
        "xmlns='urn:1' ",
        "xmlns:p='urn:1' ",
        "xmlns:x='urn:2' ",
        "xmlns=''",
        "<p:a/>",
        "<x:b>",
        "</x:b>",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "<?q r?>",
        "&#13;",
        "&#x9;",
        "xml:id='i' ",
        "p:a='1' ",
        "x:a='1' ",
        "\r\n",
    ];
    let mut numbers = Numbers(7);
    corpus::replay("canonical", 10, |seed| {
        for _ in 0..200 {
            let mut bytes = seed.to_vec();
            for _ in 0..=numbers.below(3) {
                let (at, to) = (numbers.below(bytes.len()), numbers.below(bytes.len()));
                let end = (at + numbers.below(30)).min(bytes.len());
                match numbers.below(3) {
                    0 => drop(bytes.drain(at..end)),
                    1 => {
                        let copy = bytes[at..end].to_vec();
                        bytes.splice(to..to, copy);
                    }
                    _ => {
                        let piece = PIECES[numbers.below(PIECES.len())].bytes();
                        bytes.splice(at..at, piece);
                    }
                }
            }
            canonical::check(&bytes);
        }
    });
}
