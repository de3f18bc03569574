//! Counting a stream's records by time, mostly without reading them.

use super::Stream;
use super::read::READ_BYTES;
use crate::Error;

/// Most records that one step of counting reads.
const STEP: usize = 4_096;

impl Stream {
    /// How many of its records the size limit has removed since the log was opened.
    pub fn removed_by_size_limit(&self) -> u64 {
        self.core.view().index.losses().removed
    }

    /// How many records are kept with `from_ns <= time < to_ns`. Frames whose times are all within the
    /// range are counted by the index, the others are read. Damage that nothing has read yet is not
    /// noticed in the former.
    ///
    /// # Errors
    /// An error of the disk.
    ///
    /// ```
    /// use chappe_log::{Level, MemoryDisk, Options, Store};
    /// let disk = Box::new(MemoryDisk::new());
    /// let (store, _) = Store::open(disk, Options::default(), 1)?;
    /// let stream = store.stream("a", Level::Process, b"")?;
    /// let records: Vec<_> = (0..100).map(|time| (time, vec![7])).collect();
    /// stream.append(records)?.wait()?;
    /// assert_eq!(stream.count_times(10, 20)?, 10);
    /// assert_eq!(stream.count_times(i64::MIN, i64::MAX)?, 100);
    /// # Ok::<_, chappe_log::Error>(())
    /// ```
    pub fn count_times(&self, from_ns: i64, to_ns: i64) -> Result<u64, Error> {
        let (mut count, unread) = {
            let view = self.core.view();
            let (certain, mut unread) = view.index.count_times(from_ns, to_ns);
            // Of records that wait for room no times are kept.
            if view.index.next() < view.end() {
                unread.push((view.index.next(), view.end()));
            }
            (certain, unread)
        };
        for (first, next) in unread {
            let mut at = first;
            while at < next {
                let most = usize::try_from(next - at).unwrap_or(STEP).min(STEP);
                let visited = self.visit(at, most, READ_BYTES, &mut |position, time, _| {
                    let is_wanted = position.sequence < next && time >= from_ns && time < to_ns;
                    count += u64::from(is_wanted);
                });
                match visited {
                    Ok(after) if after > at => at = after,
                    Ok(_) => break,
                    Err(Error::Gap { next, .. }) => at = next,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(count)
    }
}
