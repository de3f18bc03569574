//! Following a stream.

use crate::{Error, Record, Stream};
use std::task::{Context, Poll};

/// Hands out a stream's acknowledged records in order, without gaps, as they come.
pub struct Follower {
    stream: Stream,
}

impl Follower {
    /// The next batch; never empty. After [`Error::Gap`] it goes on behind the gap.
    pub fn poll_next(&mut self, _context: &mut Context<'_>) -> Poll<Result<Vec<Record>, Error>> {
        let _ = &self.stream;
        Poll::Ready(Err(Error::Closed))
    }

    /// The next batch; never empty. After [`Error::Gap`] it goes on behind the gap.
    pub async fn next(&mut self) -> Result<Vec<Record>, Error> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The next batch if there is one now.
    pub fn try_next(&mut self) -> Result<Option<Vec<Record>>, Error> {
        Err(Error::Closed)
    }

    /// The sequence number it will hand out next.
    pub fn next_sequence(&self) -> u64 {
        0
    }
}
