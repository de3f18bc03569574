//! A connection of a DEALER or a ROUTER.
//!
//! It has no task: the task that awaits it runs it, so that a frame costs one wake-up and no queue. To send and receive
//! in different tasks, split it; then a separate task runs it, with a bounded queue in each direction.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use chappe_zmtp::Message;
use tokio::sync::oneshot;

use super::driver::{Driver, Outgoing, Shared};
use super::{Error, Limits, Peer};

/// One connection. It makes progress while it is awaited: heartbeats are answered and queued messages sent while its
/// owner waits in one of its functions.
///
/// When it is dropped, the messages that the socket accepts at once are sent, and the connection ends.
pub struct Connection {
    /// `None` after it has ended.
    driver: Option<Driver>,
    peer: Arc<Peer>,
    limits: Arc<Limits>,
    /// Shared with the listener: notified at the end, dropped with the listener.
    lease: Option<oneshot::Sender<Error>>,
    ended: Option<Error>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Connection");
        debug.field("peer", &self.peer);
        debug.field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(
        driver: Driver,
        peer: Peer,
        limits: Arc<Limits>,
        lease: Option<oneshot::Sender<Error>>,
    ) -> Self {
        Self {
            driver: Some(driver),
            peer: Arc::new(peer),
            limits,
            lease,
            ended: None,
        }
    }

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The next message; sends queued messages meanwhile.
    ///
    /// # Errors
    /// The connection has ended, and all received messages were returned: the cause, which is [`Error::Ended`] if
    /// the peer simply closed it.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Message, Error>> {
        let polled = self.open()?.poll_message(context);
        self.polled(polled, context)
    }

    /// Like [`Connection::poll_recv`]. Cancel-safe.
    ///
    /// # Errors
    /// The same errors.
    pub async fn recv(&mut self) -> Result<Message, Error> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Whether [`Connection::poll_recv`] would return a message without reading from the socket.
    #[must_use]
    pub fn has_message(&self) -> bool {
        let driver = self.driver.as_ref();
        driver.is_some_and(Driver::has_event)
    }

    /// Queued bytes that the system has not accepted yet, with an overhead for each frame.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.driver.as_ref().map_or(0, Driver::queued_bytes)
    }

    /// Queues a message, sent by [`Connection::poll_flush`] or while a message is awaited. The caller bounds the
    /// queue.
    ///
    /// # Errors
    /// The message is too large, or the connection has ended: the cause.
    pub fn feed(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        let message = message.into();
        check(&message, &self.limits)?;
        match &mut self.driver {
            Some(driver) => driver.feed(message),
            None => return Err(self.error()),
        }
        Ok(())
    }

    /// Ready when the system has all queued messages. Reads nothing meanwhile.
    ///
    /// # Errors
    /// The connection has ended: the cause.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let polled = self.open()?.poll_flush(context);
        self.polled(polled, context)
    }

    /// Like [`Connection::poll_flush`]; if it is cancelled, the rest is sent later.
    ///
    /// # Errors
    /// The same errors.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Sends a message; returns when the system has it, so that a peer that does not read blocks the sender. If it
    /// is cancelled, the message is still sent later.
    ///
    /// *Sent* is not *received*: that requires an answer of the peer.
    ///
    /// # Errors
    /// The errors of [`Connection::feed`].
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.feed(message)?;
        self.flush().await
    }

    /// Splits it into two halves, for different tasks.
    #[must_use]
    pub fn split(mut self) -> (ConnectionSender, ConnectionReceiver) {
        let shared = Shared::new(&self.limits);
        let (driver, lease) = (self.driver.take(), self.lease.take());
        match driver {
            Some(driver) => {
                let run = run(driver, Arc::clone(&shared), Arc::clone(&self.limits), lease);
                tokio::spawn(run);
            }
            None => shared.end(self.error()),
        }
        halves(&shared, &self.peer, &self.limits)
    }

    fn open(&mut self) -> Result<&mut Driver, Error> {
        match &mut self.driver {
            Some(driver) => Ok(driver),
            None => Err(self.ended.clone().unwrap_or(Error::Closed)),
        }
    }

    fn polled<T>(
        &mut self,
        polled: Poll<Result<T, Error>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<T, Error>> {
        let lease = self.lease.as_mut();
        match polled {
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.end(error))),
            Poll::Pending if lease.is_some_and(|it| it.poll_closed(context).is_ready()) => {
                Poll::Ready(Err(self.end(Error::Closed)))
            }
            other => other,
        }
    }

    fn error(&self) -> Error {
        self.ended.clone().unwrap_or(Error::Closed)
    }

    fn end(&mut self, error: Error) -> Error {
        self.driver = None;
        if let Some(lease) = self.lease.take() {
            // The listener may be dropped already.
            let _ = lease.send(error.clone());
        }
        self.ended.get_or_insert(error).clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(driver) = &mut self.driver {
            driver.flush_now();
        }
    }
}

fn check(message: &Message, limits: &Limits) -> Result<(), Error> {
    let (bytes, bound) = (message.bytes(), limits.max_message_bytes);
    match bytes > bound {
        true => Err(Error::TooLarge { bytes, bound }),
        false => Ok(()),
    }
}

/// The task of a split connection.
async fn run(
    driver: Driver,
    shared: Arc<Shared>,
    limits: Arc<Limits>,
    lease: Option<oneshot::Sender<Error>>,
) {
    let running = driver.run(shared, &limits, ());
    let Some(mut lease) = lease else {
        running.await;
        return;
    };
    tokio::select! {
        error = running => drop(lease.send(error)),
        () = lease.closed() => {}
    }
}

/// Both halves of the state shared with a connection's task.
pub(super) fn halves(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    limits: &Arc<Limits>,
) -> (ConnectionSender, ConnectionReceiver) {
    let sender = ConnectionSender {
        shared: Arc::clone(shared),
        peer: Arc::clone(peer),
        limits: Arc::clone(limits),
    };
    let receiver = ConnectionReceiver {
        shared: Arc::clone(shared),
        peer: Arc::clone(peer),
        batch: Vec::new().into_iter(),
    };
    (sender, receiver)
}

/// The sending half.
#[derive(Debug)]
pub struct ConnectionSender {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    limits: Arc<Limits>,
}

impl ConnectionSender {
    /// Queues a message, and waits while the queue is full: back-pressure without loss. Messages queued before the
    /// connection's task runs are sent in one write.
    ///
    /// *Queued* is not *received*: that requires an answer of the peer.
    ///
    /// # Errors
    /// The message is too large, or the connection has ended: the cause.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.push(message.into(), true).await
    }

    /// Like [`ConnectionSender::send`], but the message may wait for [`ConnectionSender::flush`] or for a full
    /// queue.
    ///
    /// # Errors
    /// The same errors.
    pub async fn feed(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.push(message.into(), false).await
    }

    /// Starts sending queued messages, without waiting.
    pub fn flush(&mut self) {
        self.shared.outgoing.wake();
    }

    async fn push(&mut self, message: Message, wake: bool) -> Result<(), Error> {
        check(&message, &self.limits)?;
        let pushed = self.shared.outgoing.push(Outgoing::Message(message), wake);
        pushed.await.map_err(|_| self.shared.error())
    }

    /// The number of queued outgoing messages, and their bytes.
    #[must_use]
    pub fn queued(&self) -> (usize, usize) {
        self.shared.outgoing.size()
    }

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for ConnectionSender {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct ConnectionReceiver {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    batch: std::vec::IntoIter<Message>,
}

impl ConnectionReceiver {
    /// The next message. Cancel-safe.
    ///
    /// # Errors
    /// The connection has ended, and all received messages were returned: the cause, which is [`Error::Ended`] if
    /// the peer simply closed it.
    pub async fn recv(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.try_recv() {
                return Ok(message);
            }
            let mut batch = Vec::new();
            if !self.shared.incoming.pop(&mut batch, usize::MAX).await {
                return Err(self.shared.error());
            }
            self.batch = batch.into_iter();
        }
    }

    /// The next message, if one has been received.
    pub fn try_recv(&mut self) -> Option<Message> {
        if let Some(message) = self.batch.next() {
            return Some(message);
        }
        let mut batch = Vec::new();
        self.shared.incoming.try_pop(&mut batch, usize::MAX);
        self.batch = batch.into_iter();
        self.batch.next()
    }

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for ConnectionReceiver {
    fn drop(&mut self) {
        self.shared.close();
    }
}
