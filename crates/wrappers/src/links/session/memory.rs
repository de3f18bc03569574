//! A connection within this process, with a bounded queue each way.

use tokio::sync::mpsc;

use super::{ConnectionError, FrameConnection, FrameReceiver, FrameSender, LinkFrame};
use crate::links::Reader;

/// One end of a connection within this process.
#[derive(Debug)]
pub struct MemoryConnection {
    peer: Reader,
    sender: mpsc::Sender<LinkFrame>,
    receiver: mpsc::Receiver<LinkFrame>,
}

/// Both ends of a connection that holds at most `frames` each way.
#[must_use]
pub fn pair(frames: usize) -> (MemoryConnection, MemoryConnection) {
    let (to_there, from_here) = mpsc::channel(frames);
    let (to_here, from_there) = mpsc::channel(frames);
    let end = |sender, receiver| MemoryConnection {
        peer: Reader {
            address: None,
            key: None,
        },
        sender,
        receiver,
    };
    (end(to_there, from_there), end(to_here, from_here))
}

impl FrameConnection for MemoryConnection {
    type Sender = mpsc::Sender<LinkFrame>;
    type Receiver = mpsc::Receiver<LinkFrame>;

    fn peer(&self) -> Reader {
        self.peer.clone()
    }

    fn split(self) -> (Self::Sender, Self::Receiver) {
        (self.sender, self.receiver)
    }
}

fn ended() -> ConnectionError {
    ConnectionError {
        text: "the other end is gone".to_owned(),
        hint: None,
    }
}

impl FrameSender for mpsc::Sender<LinkFrame> {
    async fn send(&mut self, frames: Vec<LinkFrame>) -> Result<(), ConnectionError> {
        for frame in frames {
            mpsc::Sender::send(self, frame).await.map_err(|_| ended())?;
        }
        Ok(())
    }
}

impl FrameReceiver for mpsc::Receiver<LinkFrame> {
    async fn receive(&mut self) -> Result<LinkFrame, ConnectionError> {
        self.recv().await.ok_or_else(ended)
    }
}
