//! Records of one stream that are stored together, encoded as they are written.

/// Bytes of a record besides its payload.
pub(crate) const RECORD_BYTES: usize = 12;

/// Records to be stored together: all or none become visible and durable. Each is encoded once, in
/// the buffer from which it is written to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    /// Start of the last payload.
    pub(crate) last_at: usize,
    pub(crate) count: u32,
    pub(crate) time_min: i64,
    pub(crate) time_max: i64,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::with_capacity(0, 0)
    }
}

impl Batch {
    /// An empty batch, with room for `records` records of `bytes` bytes in total.
    pub fn with_capacity(records: usize, bytes: usize) -> Batch {
        Batch {
            bytes: Vec::with_capacity(records * RECORD_BYTES + bytes),
            last_at: 0,
            count: 0,
            time_min: i64::MAX,
            time_max: i64::MIN,
        }
    }

    /// Adds a record: time in nanoseconds, payload.
    pub fn push(&mut self, time: i64, payload: &[u8]) {
        let written = self.push_with(time, |bytes| {
            bytes.extend_from_slice(payload);
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = written;
    }

    /// Adds a record whose payload `write` appends to its argument; none if that fails.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn push_with<E>(
        &mut self,
        time: i64,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&time.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        let payload = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(begin);
            return Err(error);
        }
        // A batch above the limit, which is far below this, is refused entirely.
        let length = u32::try_from(self.bytes.len() - payload).unwrap_or(u32::MAX);
        self.bytes[payload - 4..payload].copy_from_slice(&length.to_le_bytes());
        self.last_at = payload;
        self.count += 1;
        self.time_min = self.time_min.min(time);
        self.time_max = self.time_max.max(time);
        Ok(())
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl From<Vec<(i64, Vec<u8>)>> for Batch {
    fn from(records: Vec<(i64, Vec<u8>)>) -> Batch {
        let bytes = records.iter().map(|(_, payload)| payload.len()).sum();
        let mut batch = Batch::with_capacity(records.len(), bytes);
        for (time, payload) in &records {
            batch.push(*time, payload);
        }
        batch
    }
}
