//! Elements in the schema in which they were written, for copies: with the current schema, a copy
//! would lose the values of fields that it lacks.

use std::iter::Peekable;

use chappe_log::{Follower, Record};

use super::elements::decode_written;
use super::{StoreError, StreamLog};
use crate::codec::record_version;
use crate::{StreamElement, StreamSchema};

/// Consecutive elements of one version of the schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The version.
    pub schema_version: u32,
    /// The schema of this version.
    pub schema: StreamSchema,
    /// The elements.
    pub elements: Vec<StreamElement>,
}

/// Returns a stream's elements in order, as they are stored, in the schema in which they were
/// written.
pub struct WrittenFollower {
    follower: Follower,
    log: StreamLog,
    /// Records that were read and not returned yet.
    waiting: Peekable<std::vec::IntoIter<Record>>,
}

impl StreamLog {
    /// Follows from number `from` (0: from the first kept), with the schemas in which elements were
    /// written.
    #[must_use]
    pub fn follow_written(&self, from: u64) -> WrittenFollower {
        WrittenFollower {
            follower: self.stream.follow(from),
            log: self.clone(),
            waiting: Vec::new().into_iter().peekable(),
        }
    }
}

impl WrittenFollower {
    /// Limits what is returned at once to about `max_bytes` as stored, instead of 8 MiB; it still is at least
    /// one element.
    #[must_use]
    pub fn within(mut self, max_bytes: usize) -> Self {
        self.follower = self.follower.within(max_bytes);
        self
    }

    /// Limits what is returned at once to so many elements, instead of the store's number for followers.
    #[must_use]
    pub fn elements(mut self, most: usize) -> Self {
        self.follower = self.follower.records(most);
        self
    }

    /// The next elements, of one version; never empty. After a gap it continues after the gap.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// A gap, or an element that does not decode.
    pub async fn next(&mut self) -> Result<Written, StoreError> {
        let first = loop {
            match self.waiting.peek() {
                Some(record) => break record_version(&record.payload)?,
                None => self.waiting = self.follower.next().await?.into_iter().peekable(),
            }
        };
        // After the read: by now the versions of all records are known.
        let metadata = self.log.snapshot();
        let mut elements = Vec::with_capacity(self.waiting.len());
        while let Some(record) = self
            .waiting
            .next_if(|record| record_version(&record.payload) == Ok(first))
        {
            let (element, _) =
                decode_written(&metadata, record.position, record.time, &record.payload)?;
            elements.push(element);
        }
        Ok(Written {
            schema_version: first,
            schema: metadata.versions[first as usize].clone(),
            elements,
        })
    }
}
