//! What both ends of a session share: sending without ceasing to receive, and taking what is ready.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{ConnectionError, FrameConnection, FrameReceiver, FrameSender, LinkFrame};

/// Frames taken at once before what they cause is sent; reason: an acknowledgement should not wait
/// for more than some milliseconds of work.
const READY_FRAMES_MAX: usize = 64;

type Sending<S> = Pin<Box<dyn Future<Output = (S, Result<(), ConnectionError>)> + Send>>;

/// A connection with what is still to be sent.
pub(super) struct Wire<C: FrameConnection> {
    receiver: C::Receiver,
    sender: Option<C::Sender>,
    sending: Option<Sending<C::Sender>>,
    outgoing: Vec<LinkFrame>,
}

impl<C: FrameConnection> Wire<C> {
    pub(super) fn new(connection: C) -> Self {
        let (sender, receiver) = connection.split();
        Self {
            receiver,
            sender: Some(sender),
            sending: None,
            outgoing: Vec::new(),
        }
    }

    /// Queues a frame; the session's windows bound how many there are.
    pub(super) fn push(&mut self, frame: LinkFrame) {
        self.outgoing.push(frame);
    }

    /// Begins to send what is queued, unless something is being sent.
    fn start(&mut self) {
        if self.outgoing.is_empty() {
            return;
        }
        if let Some(mut sender) = self.sender.take() {
            let frames = std::mem::take(&mut self.outgoing);
            self.sending = Some(Box::pin(async move {
                let outcome = sender.send(frames).await;
                (sender, outcome)
            }));
        }
    }

    /// Sends what is queued, as far as there is room now.
    pub(super) fn send_ready(&mut self) -> Result<(), ConnectionError> {
        self.start();
        while let Some(sending) = &mut self.sending {
            match ready(sending.as_mut()) {
                None => return Ok(()),
                Some((sender, outcome)) => {
                    self.sending = None;
                    self.sender = Some(sender);
                    outcome?;
                    self.start();
                }
            }
        }
        Ok(())
    }

    /// The next frame; sends meanwhile. None: there is room again for what is queued. Nothing is lost
    /// when the future is dropped.
    pub(super) async fn receive(&mut self) -> Result<Option<LinkFrame>, ConnectionError> {
        let Self {
            receiver,
            sender,
            sending,
            ..
        } = self;
        let mut receiving = std::pin::pin!(receiver.receive());
        let mut more = false;
        std::future::poll_fn(|context| {
            if let Some(being_sent) = sending
                && let Poll::Ready((it, outcome)) = being_sent.as_mut().poll(context)
            {
                *sending = None;
                *sender = Some(it);
                more = true;
                if let Err(error) = outcome {
                    return Poll::Ready(Err(error));
                }
            }
            match receiving.as_mut().poll(context) {
                Poll::Ready(frame) => Poll::Ready(frame.map(Some)),
                // There is room again: what waits is sent first.
                Poll::Pending if more => Poll::Ready(Ok(None)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Frames that have come already.
    pub(super) fn receive_ready(
        &mut self,
        frames: &mut Vec<LinkFrame>,
    ) -> Result<(), ConnectionError> {
        while frames.len() < READY_FRAMES_MAX {
            match ready(std::pin::pin!(self.receiver.receive())) {
                Some(frame) => frames.push(frame?),
                None => break,
            }
        }
        Ok(())
    }

    /// Sends what is queued to the last, before the end.
    pub(super) async fn finish(mut self) {
        self.start();
        while let Some(sending) = self.sending.take() {
            let (sender, outcome) = sending.await;
            if outcome.is_err() {
                return;
            }
            self.sender = Some(sender);
            self.start();
        }
    }
}

/// What a future gives now. It is asked again, with a waker, before anybody waits for it.
fn ready<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
