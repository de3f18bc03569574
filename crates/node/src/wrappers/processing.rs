//! The inputs of a processor, passed to it one batch at a time.
//!
//! What becomes of a batch of inputs is one batch of the wrapper, whose mark has the positions after the
//! inputs and the state of the processor. Outputs, positions and state are so stored together: after a
//! crash, of the node or of the processor, the inputs are passed again from the positions of the newest
//! batch that is stored, and nothing that became of them is stored twice or missing.

use chappe_stream::Position;
use chappe_wrappers::{Batch, Inputs, Mark, WrapperError};

use super::reading::{self, Missed, Positions, Reading};
use super::table::Exported;
use super::{loops, wrapper_key};
use crate::shared::App;

/// The first bytes of a mark with positions, and its version. No mark of a program begins so.
const FORMAT: [u8; 2] = [0, 1];
/// Most streams of a processor; reason: each batch stores the position of each, twice.
const INPUTS_MAX: usize = 1_000;

/// The positions of the inputs and the state of a processor, as a mark.
fn join(positions: &Positions, state: &[u8]) -> Mark {
    let positions = reading::encode(positions);
    let mut bytes = FORMAT.to_vec();
    // A thousand names and positions have fewer than 4 GiB.
    bytes.extend((positions.len() as u32).to_le_bytes());
    bytes.extend(positions);
    bytes.extend(state);
    Mark::long(bytes)
}

/// The positions and the state of a mark; `None` for the mark of another wrapper.
pub(super) fn split(mark: &Mark) -> Option<(Positions, Mark)> {
    let (length, rest) = mark.bytes().strip_prefix(&FORMAT)?.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (positions, state) = rest.split_at_checked(length)?;
    Some((reading::decode(positions)?, Mark::long(state.to_vec())))
}

/// The inputs of a processor that is open.
pub(super) struct Processing {
    app: App,
    name: String,
    reading: Reading,
    /// Up to where the processor has answered.
    positions: Positions,
    state: Mark,
    /// The ends of the batch that it has not answered, if there is one.
    passed: Option<Vec<(String, Position)>>,
    /// The mark of the newest batch that has reached the level of its streams.
    stored: Option<Mark>,
}

impl Processing {
    /// The inputs of the wrapper `name`, which was opened with `mark`.
    pub(super) fn open(
        app: &App,
        name: &str,
        inputs: &Inputs,
        mark: Option<&Mark>,
        missed: &Missed,
    ) -> Self {
        let (positions, state) = mark.and_then(split).unwrap_or_default();
        Self {
            app: app.clone(),
            name: name.to_owned(),
            reading: Reading::of_processor(app, name, inputs.clone(), missed.clone()),
            positions,
            state,
            passed: None,
            stored: mark.cloned(),
        }
    }

    /// Follows the streams that are selected. Returns a mark to store if one of them starts at its next
    /// element.
    ///
    /// # Errors
    /// There are too many, or the processor would read what it writes.
    pub(super) fn follow(&mut self) -> Result<Option<Mark>, WrapperError> {
        let key = wrapper_key(&self.name);
        for entry in self.reading.selected() {
            if entry.source() == key {
                let text = format!(
                    "inputs: they select {:?}, which it itself writes",
                    entry.name
                );
                let hint = "name the output so that `inputs` does not select it";
                return Err(WrapperError::settings(text).with_hint(hint));
            }
        }
        let is_new = self.reading.follow(&mut self.positions);
        let count = self.reading.streams().count();
        if count > INPUTS_MAX {
            let text = format!("inputs: they select {count} streams; the limit is {INPUTS_MAX}");
            return Err(WrapperError::settings(text));
        }
        let inputs = self.shown();
        self.app
            .wrappers
            .update(&self.name, |row| row.inputs = inputs);
        self.check_loops()?;
        Ok(is_new.then(|| join(&self.positions, self.state.bytes())))
    }

    /// Refuses a loop: other processors and virtual sensors may read what this one writes.
    ///
    /// # Errors
    /// An input is made of what the processor writes.
    pub(super) fn check_loops(&self) -> Result<(), WrapperError> {
        let key = wrapper_key(&self.name);
        match loops::find(&self.app, &key, self.reading.streams()) {
            None => Ok(()),
            Some(output) => {
                let text = format!("inputs: a loop, as they are made of its output {output:?}");
                Err(WrapperError::settings(text))
            }
        }
    }

    /// The next inputs to pass; never while the processor owes an answer. Dropping the future loses
    /// nothing.
    ///
    /// # Errors
    /// The log failed.
    pub(super) async fn next(&mut self) -> Result<Batch, chappe_stream::StoreError> {
        match self.passed {
            Some(_) => std::future::pending().await,
            None => self.reading.next().await,
        }
    }

    /// These inputs are being passed.
    pub(super) fn pass(&mut self, batch: &Batch) {
        let parts = batch.parts.iter();
        let ends = parts.filter_map(|part| {
            let last = part.elements.last()?;
            Some((part.stream.to_string(), last.position))
        });
        self.passed = Some(ends.collect());
    }

    /// The processor has answered: `batch` is what became of the inputs. Its mark gets their positions.
    pub(super) fn answered(&mut self, batch: &mut Batch) {
        for (stream, at) in self.passed.take().into_iter().flatten() {
            reading::advance(&mut self.positions, &stream, at);
        }
        // A stream that was removed has no position that could be continued.
        let catalogue = &self.app.catalogue;
        self.positions
            .retain(|stream, _| catalogue.get(stream).is_some());
        self.state = std::mem::take(&mut batch.mark);
        batch.mark = join(&self.positions, self.state.bytes());
    }

    /// The batch with this mark has reached the level of its streams.
    pub(super) fn stored(&mut self, mark: &Mark) {
        self.stored = Some(mark.clone());
    }

    /// The inputs, and how far what became of them is stored.
    pub(super) fn shown(&self) -> Vec<Exported> {
        let stored = self.stored.as_ref().and_then(split);
        let (positions, _) = stored.unwrap_or_default();
        self.reading.shown(&positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_stream::Epoch;

    #[test]
    fn a_mark_has_positions_and_state() {
        let position = |sequence| Position {
            epoch: Epoch(u64::MAX),
            sequence,
        };
        let positions =
            Positions::from([("a".to_owned(), position(3)), ("b".to_owned(), position(0))]);
        for state in ["", "{\"sum\":3}"] {
            let mark = join(&positions, state.as_bytes());
            let (again, read) = split(&mark).unwrap();
            assert_eq!((&again, read.bytes()), (&positions, state.as_bytes()));
            for end in 0..mark.bytes().len() - state.len() {
                assert!(split(&Mark::long(mark.bytes()[..end].to_vec())).is_none());
            }
        }
        for other in ["", "512", "{\"offset\":7}"] {
            assert!(
                split(&Mark::long(other.as_bytes().to_vec())).is_none(),
                "{other}"
            );
        }
    }
}
