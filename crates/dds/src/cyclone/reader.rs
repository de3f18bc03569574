//! A reader of Cyclone DDS.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::participant::Known;
use crate::backend::{Guid, Reader, Sample};
use crate::fields::differences;
use crate::lost::Lost;
use crate::{DdsError, Qos};

/// The largest number of writer handles; reason: any host in the domain can create an unlimited number of
/// writers.
const HANDLES_MAX: usize = 4_096;

pub(super) struct CycloneReader {
    known: Arc<Known>,
    /// The samples that the library holds.
    held: usize,
    /// Whether dropped samples are lost: with `keep_last` they are not asked for.
    counts_all: bool,
    /// Writers by the handles of the library, with the differences of their fields.
    writers: BTreeMap<u64, (Guid, Option<Arc<str>>)>,
    ready: VecDeque<Sample>,
    lost: Lost,
}

impl CycloneReader {
    pub(super) fn new(known: Arc<Known>, qos: &Qos) -> Self {
        Self {
            known,
            held: usize::try_from(qos.held()).unwrap_or(usize::MAX),
            counts_all: qos.keep_last == 0,
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
        if self.ready.len() < most {
            // All at once: their number shows whether the reader was full and has dropped samples.
            let (writers, mut taken) = (&mut self.writers, Vec::new());
            while taken.len() < self.held {
                let count = library.take(&mut |it| taken.push(it))?;
                if count == 0 {
                    break;
                }
            }
            let was_full = self.counts_all && taken.len() >= self.held;
            for it in taken {
                let writer = writers.get(&it.writer).cloned();
                let (writer, differences) = writer.unwrap_or_else(|| {
                    // A writer that has left is identified by its handle.
                    let handle = it.writer.to_be_bytes();
                    let mut named = [0; 16];
                    named[8..].copy_from_slice(&handle);
                    let guid = library.matched_guid(it.writer).unwrap_or(Guid(named));
                    let fields = library.matched_fields(it.writer);
                    let found = differences(&fields, &self.known.fields);
                    let found = (!found.is_empty()).then(|| found.join("; ").into());
                    if writers.len() < HANDLES_MAX {
                        writers.insert(it.writer, (guid, found.clone()));
                    }
                    (guid, found)
                });
                self.lost.count(writer, it.number, was_full);
                self.ready.push_back(Sample {
                    writer,
                    number: it.number,
                    source_time_ns: it.source_time_ns,
                    of: None,
                    differences,
                    payload: it.payload,
                });
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
