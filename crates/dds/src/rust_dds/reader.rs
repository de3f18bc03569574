//! A reader of RustDDS that counts lost samples.

use std::collections::VecDeque;
use std::sync::Arc;

use rustdds::with_key::{DataReader, Sample as Change};
use rustdds::{RTPSEntity as _, ReadCondition};

use super::participant::{Matches, guarded, guid_of, library};
use super::raw::{Raw, RawAdapter};
use crate::backend::{Guid, Reader, Sample};
use crate::lost::Lost;
use crate::{DdsError, Qos};

pub(super) struct RustReader {
    reader: DataReader<Raw, RawAdapter>,
    guid: Guid,
    matches: Arc<Matches>,
    /// The number of samples from which on the library may have dropped some; `None` if it was asked to.
    capacity: Option<usize>,
    ready: VecDeque<Sample>,
    lost: Lost,
}

impl RustReader {
    pub(super) fn new(
        reader: DataReader<Raw, RawAdapter>,
        qos: &Qos,
        matches: Arc<Matches>,
    ) -> Self {
        let held = usize::try_from(qos.held()).unwrap_or(usize::MAX);
        Self {
            guid: guid_of(reader.guid()),
            reader,
            matches,
            capacity: (qos.keep_last == 0).then_some(held),
            ready: VecDeque::new(),
            lost: Lost::default(),
        }
    }
}

impl Reader for RustReader {
    fn guid(&self) -> Guid {
        self.guid
    }

    fn take(&mut self, most: usize, into: &mut Vec<Sample>) -> Result<(), DdsError> {
        if self.ready.len() < most {
            // All at once: each call of the library scans all samples that it holds.
            let taken = guarded("reading", || {
                let taken = self.reader.take(usize::MAX, ReadCondition::any());
                taken.map_err(|error| library("reading", &error))
            })?;
            let was_full = self.capacity.is_some_and(|held| taken.len() >= held);
            for change in taken {
                let identity = change.sample_info().sample_identity();
                let (writer, number) = (guid_of(identity.writer_guid), identity.sequence_number);
                let number = i64::from(number);
                self.lost.count(writer, number, was_full);
                if let Change::Value(Raw(payload)) = change.into_value() {
                    self.ready.push_back(Sample {
                        writer,
                        number,
                        payload,
                    });
                }
            }
        }
        into.extend(self.ready.drain(..most.min(self.ready.len())));
        Ok(())
    }

    fn matched(&self) -> usize {
        self.matches.of(self.guid)
    }

    fn lost(&self) -> u64 {
        self.lost.lost()
    }
}
