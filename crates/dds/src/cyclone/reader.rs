//! A reader of Cyclone DDS.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::participant::Known;
use crate::DdsError;
use crate::backend::{Guid, Reader, Sample};
use crate::lost::Lost;

/// The largest number of writer handles; reason: any host in the domain can create an unlimited number of
/// writers.
const HANDLES_MAX: usize = 4_096;

pub(super) struct CycloneReader {
    known: Arc<Known>,
    /// Writers by the handles of the library.
    writers: BTreeMap<u64, Guid>,
    ready: VecDeque<Sample>,
    lost: Lost,
}

impl CycloneReader {
    pub(super) fn new(known: Arc<Known>) -> Self {
        Self {
            known,
            writers: BTreeMap::new(),
            ready: VecDeque::new(),
            lost: Lost::default(),
        }
    }
}

impl Reader for CycloneReader {
    fn guid(&self) -> Guid {
        self.known.guid
    }

    fn take(&mut self, most: usize, into: &mut Vec<Sample>) -> Result<(), DdsError> {
        let library = self
            .known
            .end
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while self.ready.len() < most {
            let (writers, ready, lost) = (&mut self.writers, &mut self.ready, &mut self.lost);
            let count = library.take(&mut |taken| {
                let writer = writers.get(&taken.writer).copied();
                let writer = writer.unwrap_or_else(|| {
                    // A writer that has left is identified by its handle.
                    let handle = taken.writer.to_be_bytes();
                    let mut named = [0; 16];
                    named[8..].copy_from_slice(&handle);
                    let guid = library.matched_guid(taken.writer).unwrap_or(Guid(named));
                    if writers.len() < HANDLES_MAX {
                        writers.insert(taken.writer, guid);
                    }
                    guid
                });
                // A full reader refuses samples and drops none.
                lost.count(writer, taken.number, false);
                ready.push_back(Sample {
                    writer,
                    number: taken.number,
                    payload: taken.payload,
                });
            })?;
            if count == 0 {
                break;
            }
        }
        into.extend(self.ready.drain(..most.min(self.ready.len())));
        Ok(())
    }

    fn matched(&self) -> usize {
        self.known.matched.load(Ordering::Relaxed)
    }

    fn lost(&self) -> u64 {
        self.lost.lost()
    }
}
