//! A connection within this process, with a bounded queue in each direction.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{ConnectionError, FrameConnection, LinkFrame};
use crate::Reader;

/// One end of a connection within this process.
#[derive(Debug)]
pub struct MemoryConnection {
    outgoing: VecDeque<LinkFrame>,
    there: Direction,
    here: Direction,
}

/// One direction. Clones share it.
#[derive(Debug, Clone)]
struct Direction(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    frames: VecDeque<LinkFrame>,
    frames_max: usize,
    /// One of the ends was dropped.
    ended: bool,
    /// The wakers of a reader waiting for a frame and of a writer waiting for room.
    wakers: [Option<Waker>; 2],
}

/// Both ends of a connection that holds at most `frames` in each direction.
#[must_use]
pub fn pair(frames: usize) -> (MemoryConnection, MemoryConnection) {
    let way = || {
        Direction(Arc::new(Mutex::new(Queue {
            frames: VecDeque::new(),
            frames_max: frames.max(1),
            ended: false,
            wakers: [None, None],
        })))
    };
    let (one, other) = (way(), way());
    let end = |there: &Direction, here: &Direction| MemoryConnection {
        outgoing: VecDeque::new(),
        there: there.clone(),
        here: here.clone(),
    };
    (end(&one, &other), end(&other, &one))
}

impl Direction {
    /// Every change leaves the queue consistent, so a poisoned lock is usable.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        queue.wakers.iter_mut().for_each(wake);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl FrameConnection for MemoryConnection {
    fn peer(&self) -> Reader {
        Reader {
            address: None,
            key: None,
            account: None,
        }
    }

    fn push(&mut self, frame: LinkFrame) -> Result<(), ConnectionError> {
        self.outgoing.push_back(frame);
        Ok(())
    }

    fn queued_bytes(&self) -> usize {
        self.outgoing.iter().map(|frame| frame.bytes().len()).sum()
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<LinkFrame, ConnectionError>> {
        // The end is noticed below, after the frames before it.
        let _ = self.poll_flush(context);
        let mut queue = self.here.lock();
        if let Some(frame) = queue.frames.pop_front() {
            wake(&mut queue.wakers[1]);
            return Poll::Ready(Ok(frame));
        }
        if queue.ended {
            return Poll::Ready(Err(ended()));
        }
        queue.wakers[0] = Some(context.waker().clone());
        Poll::Pending
    }

    fn has_frame(&self) -> bool {
        !self.here.lock().frames.is_empty()
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let mut queue = self.there.lock();
        while !self.outgoing.is_empty() {
            if queue.ended {
                return Poll::Ready(Err(ended()));
            }
            if queue.frames.len() >= queue.frames_max {
                queue.wakers[1] = Some(context.waker().clone());
                return Poll::Pending;
            }
            queue.frames.extend(self.outgoing.pop_front());
            wake(&mut queue.wakers[0]);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.there.end();
        self.here.end();
    }
}

fn ended() -> ConnectionError {
    ConnectionError {
        text: "the other end was closed".to_owned(),
        hint: None,
    }
}
