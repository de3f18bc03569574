//! The output of a virtual sensor next to an origin's stream: a copy of its contents, derived by an
//! eager follower and written after its input, mostly by the same commit.

use std::task::{Context, Poll, Waker};

use chappe_log::{EagerFollower, Store, Stream};

use super::record;
use super::world::World;
use crate::judge::{At, Event};

/// Maximum number of records kept; more would keep the segments of a trimmed stream.
const KEPT: u64 = 100;

/// See the [module documentation](self).
pub(super) struct Derived {
    store: Store,
    output: Stream,
    follower: EagerFollower,
}

impl Derived {
    /// Reports the derived records to the judge, and whether their inputs exist, and continues with
    /// new ones; `None`: not now.
    pub(super) fn begin(
        world: &mut World,
        store: &Store,
        source: &Stream,
        number: usize,
    ) -> Option<Self> {
        let name = format!("derived-{number}");
        let output = store.stream(&name, source.level(), b"").ok()?;
        let mut found = Vec::new();
        record::each(&output, |record| found.extend(split(&record.payload))).ok()?;
        for (at, content) in found {
            let there = match source.read(at.number, 1) {
                Ok(records) => records.first().is_some_and(|record| {
                    record.position.epoch == at.epoch && record.position.sequence == at.number
                }),
                Err(chappe_log::Error::Gap { .. }) => false,
                Err(_) => return None,
            };
            world.sometimes.derived += 1;
            world.report(Event::Derived {
                stream: number,
                at,
                content,
                there,
            });
        }
        let missing = store.lost().into_iter().find(|lost| lost.stream == name);
        world.sometimes.derived_dropped += missing.map_or(0, |lost| lost.missing);
        Some(Self {
            follower: source.follow_eagerly(source.last() + 1),
            store: store.clone(),
            output,
        })
    }

    /// Derives from new records; the next commit writes the result.
    pub(super) fn derive(&mut self) {
        let taken_back = self.store.retractions();
        let mut batch = Vec::new();
        let mut take = |at: chappe_log::Position, time: i64, payload: &[u8]| {
            let at = At {
                epoch: at.epoch,
                number: at.sequence,
            };
            let content = record::content(payload).unwrap_or_default();
            batch.push((time, record::with_origin(at, &content.to_le_bytes())));
        };
        let mut context = Context::from_waker(Waker::noop());
        // After a gap and after retracted records it continues the next time.
        while let Poll::Ready(Ok(())) = self.follower.poll_next(&mut context, &mut take) {}
        for record in batch {
            // Refused records do not exist; nothing is promised about them.
            drop(self.output.append_derived(taken_back, vec![record]));
        }
        let before = (self.output.last() + 1).saturating_sub(KEPT);
        if before > self.output.first() + KEPT {
            drop(self.output.trim(before));
        }
    }
}

/// The position and the content of the input of a derived record.
fn split(record: &[u8]) -> Option<(At, u64)> {
    let (at, content) = record::split(record)?;
    Some((at, u64::from_le_bytes(content.try_into().ok()?)))
}
