//! Elements that an exporter has passed, and that its peer does not have yet.

use std::collections::{BTreeMap, VecDeque};

use chappe_stream::{Epoch, Position};
use chappe_wrappers::Batch;

/// The elements on their way, by stream. The exporter bounds their number.
#[derive(Debug, Default)]
pub(super) struct UnderWay(BTreeMap<String, VecDeque<Run>>);

/// Consecutive numbers.
#[derive(Debug)]
struct Run {
    epoch: Epoch,
    first: u64,
    last: u64,
}

impl UnderWay {
    /// Adds the elements of a batch.
    pub(super) fn pass(&mut self, batch: &Batch) {
        for part in &batch.parts {
            let runs = self.0.entry(part.stream.to_string()).or_default();
            for element in &part.elements {
                let Position { epoch, sequence } = element.position;
                match runs.back_mut() {
                    Some(run) if run.epoch == epoch && run.last + 1 == sequence => {
                        run.last = sequence;
                    }
                    _ => runs.push_back(Run {
                        epoch,
                        first: sequence,
                        last: sequence,
                    }),
                }
            }
        }
    }

    /// Removes the elements of a stream up to a position; returns how many they are.
    pub(super) fn arrived(&mut self, stream: &str, at: Position) -> u64 {
        let Some(runs) = self.0.get_mut(stream) else {
            return 0;
        };
        let is_reached = |run: &Run| run.epoch == at.epoch && run.first <= at.sequence;
        let Some(last) = runs.iter().rposition(is_reached) else {
            return 0;
        };
        let whole = runs.drain(..last);
        let mut count = whole.map(|run| run.last - run.first + 1).sum();
        if let Some(run) = runs.front_mut() {
            let to = run.last.min(at.sequence);
            count += to - run.first + 1;
            run.first = to + 1;
            if run.first > run.last {
                runs.pop_front();
            }
        }
        if runs.is_empty() {
            self.0.remove(stream);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chappe_stream::{Quality, StreamElement, Timestamp};
    use chappe_wrappers::StreamDefinition;

    use super::*;

    fn at(epoch: u64, sequence: u64) -> Position {
        let epoch = Epoch(epoch);
        Position { epoch, sequence }
    }

    fn batch(stream: &str, positions: &[(u64, u64)]) -> Batch {
        let definition = Arc::new(StreamDefinition::default());
        let mut batch = Batch::default();
        for (epoch, sequence) in positions {
            let element = StreamElement {
                position: at(*epoch, *sequence),
                source_time: Timestamp(0),
                receive_time: Timestamp(0),
                key: None,
                values: Vec::new(),
                quality: Quality::Good,
                origin: None,
            };
            batch.push(&stream.into(), &definition, element);
        }
        batch
    }

    #[test]
    fn elements_count_when_they_have_arrived() {
        let mut under_way = UnderWay::default();
        under_way.pass(&batch("a", &[(1, 5), (1, 6), (1, 9)]));
        under_way.pass(&batch("a", &[(1, 10), (2, 1), (2, 2)]));
        under_way.pass(&batch("b", &[(1, 1)]));
        assert_eq!(under_way.arrived("a", at(1, 4)), 0);
        assert_eq!(under_way.arrived("c", at(1, 5)), 0);
        assert_eq!(under_way.arrived("a", at(1, 5)), 1);
        assert_eq!(under_way.arrived("a", at(1, 5)), 0);
        assert_eq!(under_way.arrived("a", at(1, 9)), 2);
        // The rest of the epoch before, and one of the next.
        assert_eq!(under_way.arrived("a", at(2, 1)), 2);
        assert_eq!(under_way.arrived("a", at(2, 7)), 1);
        assert_eq!(under_way.arrived("b", at(1, 1)), 1);
        assert!(under_way.0.is_empty());
    }
}
