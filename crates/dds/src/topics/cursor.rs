//! The delivered position of a stream on a topic, stored in the log, so that publishing continues there.

use chappe_log::{Appended, Error, Level, Store, Stream};
use chappe_stream::{Epoch, Position};

/// The version of the record.
const FORMAT: u8 = 1;

pub(super) struct Cursor {
    stream: Stream,
    at: Option<Position>,
    stored: Option<Position>,
    pending: Option<(Appended, Option<Position>)>,
}

impl Cursor {
    /// Reads the cursor from the log.
    pub(super) fn open(store: &Store, topic: &str, of: &str, level: Level) -> Result<Self, Error> {
        let name = format!("dds-cursor/{of}/{topic}");
        let stream = store.stream(&name, level, &[FORMAT])?;
        let newest = stream.newest(1)?;
        let at = newest.last().and_then(|record| read(&record.payload));
        Ok(Self {
            stream,
            at,
            stored: at,
            pending: None,
        })
    }

    /// The newest delivered element; `None` if there was none.
    pub(super) fn at(&self) -> Option<Position> {
        self.at
    }

    /// Advances the cursor: everything up to this element is delivered.
    pub(super) fn advance(&mut self, to: Position) {
        if self
            .at
            .is_none_or(|at| at.sequence < to.sequence || at.epoch != to.epoch)
        {
            self.at = Some(to);
        }
    }

    /// Stores the cursor, unless it is being stored already.
    pub(super) fn keep(&mut self) -> Result<(), Error> {
        if let Some((appended, told)) = self.pending.take() {
            match appended.try_result() {
                None => {
                    self.pending = Some((appended, told));
                    return Ok(());
                }
                Some(Ok(())) => {
                    // Only the newest one counts; without the mark an older one is kept longer.
                    drop(self.stream.trim(appended.first.sequence));
                    self.stored = told;
                }
                Some(Err(error)) => return Err(error),
            }
        }
        let Some(at) = self.at.filter(|_| self.at != self.stored) else {
            return Ok(());
        };
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&at.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&at.sequence.to_le_bytes());
        let appended = self.stream.append(vec![(0, bytes)])?;
        self.pending = Some((appended, Some(at)));
        Ok(())
    }
}

fn read(bytes: &[u8]) -> Option<Position> {
    let (FORMAT, rest) = bytes.split_first().map(|(format, rest)| (*format, rest))? else {
        return None;
    };
    let (epoch, sequence) = rest.split_first_chunk()?;
    Some(Position {
        epoch: Epoch(u64::from_le_bytes(*epoch)),
        sequence: u64::from_le_bytes(sequence.try_into().ok()?),
    })
}
