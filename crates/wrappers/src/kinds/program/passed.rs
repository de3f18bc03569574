//! A batch of inputs that a processor has not answered.

use std::collections::HashMap;

use chappe_stream::Position;

use crate::Batch;

/// A batch of inputs that a processor has not answered.
#[derive(Debug)]
pub(super) struct Passed {
    /// The mark that the program answers.
    pub(super) mark: u64,
    /// The first and the last element of each stream.
    spans: HashMap<String, (Position, Position)>,
}

impl Passed {
    /// A batch with the elements at these positions of their streams, or the first and last of them.
    pub(super) fn new<'a>(
        mark: u64,
        positions: impl IntoIterator<Item = (&'a str, Position)>,
    ) -> Self {
        let mut spans: HashMap<String, (Position, Position)> = HashMap::new();
        for (stream, at) in positions {
            match spans.get_mut(stream) {
                Some((_, last)) => *last = at,
                None => drop(spans.insert(stream.to_owned(), (at, at))),
            }
        }
        Self { mark, spans }
    }

    /// Whether an element may be in the batch; `position` is `EPOCH:NUMBER`.
    pub(super) fn has(&self, stream: &str, position: &str) -> bool {
        let (Some((first, last)), Ok(at)) = (self.spans.get(stream), position.parse::<Position>())
        else {
            return false;
        };
        let is_of_epoch = at.epoch == first.epoch || at.epoch == last.epoch;
        let is_before = at.epoch == first.epoch && at.sequence < first.sequence;
        let is_after = at.epoch == last.epoch && at.sequence > last.sequence;
        is_of_epoch && !is_before && !is_after
    }
}

/// The first and the last position of each part of a batch.
pub(super) fn ends(batch: &Batch) -> impl Iterator<Item = (&str, Position)> {
    batch.parts.iter().flat_map(|part| {
        let ends = [part.elements.first(), part.elements.last()];
        let ends = ends.into_iter().flatten();
        ends.map(|element| (&*part.stream, element.position))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_elements_between_its_ends() {
        let at = |text: &str| text.parse::<Position>().unwrap();
        let passed = Passed::new(
            1,
            [
                ("a", at("0000000000000001:7")),
                ("a", at("0000000000000001:9")),
                ("b", at("0000000000000001:100")),
                ("b", at("0000000000000002:3")),
            ],
        );
        let has = [
            ("a", "0000000000000001:7"),
            ("a", "0000000000000001:8"),
            ("b", "0000000000000001:101"),
            ("b", "0000000000000002:1"),
        ];
        for (stream, position) in has {
            assert!(passed.has(stream, position), "{stream} {position}");
        }
        let has_not = [
            ("a", "0000000000000001:6"),
            ("a", "0000000000000001:10"),
            ("a", "0000000000000002:8"),
            ("a", "8"),
            ("b", "0000000000000001:99"),
            ("b", "0000000000000002:4"),
            ("c", "0000000000000001:7"),
        ];
        for (stream, position) in has_not {
            assert!(!passed.has(stream, position), "{stream} {position}");
        }
    }
}
