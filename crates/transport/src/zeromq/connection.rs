//! A connection of a DEALER or a ROUTER.
//!
//! It has no task: whoever awaits it runs it, so that a frame costs one wake-up and no queue. Who
//! sends and receives in different tasks splits it; then a task of its own runs it, with a bounded
//! queue each way.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use chappe_zmtp::Message;
use tokio::sync::oneshot;

use super::driver::{Driver, Outgoing, Shared};
use super::{Error, Limits, Peer};

/// One connection. It lives while it is awaited: heartbeats are answered, and what is queued goes
/// out, while its owner waits in one of its functions.
///
/// When it is dropped, what the socket takes at once goes out and the connection ends.
pub struct Connection {
    /// None: it has ended.
    driver: Option<Driver>,
    peer: Arc<Peer>,
    limits: Arc<Limits>,
    /// Of the listener: told when it ends, gone when the listener is.
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

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The next message; what is queued goes out meanwhile.
    ///
    /// # Errors
    /// When the connection has ended, and everything that came was taken: why it ended, which is
    /// [`Error::Ended`] when the peer just closed it.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Message, Error>> {
        let polled = self.open()?.poll_message(context);
        self.polled(polled, context)
    }

    /// As [`Connection::poll_recv`]. Giving the wait up loses nothing.
    ///
    /// # Errors
    /// As there.
    pub async fn recv(&mut self) -> Result<Message, Error> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Whether something was read that [`Connection::poll_recv`] gives without asking the socket.
    #[must_use]
    pub fn has_message(&self) -> bool {
        let driver = self.driver.as_ref();
        driver.is_some_and(Driver::has_event)
    }

    /// Bytes that are queued and not with the system yet, with some for each frame.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.driver.as_ref().map_or(0, Driver::queued_bytes)
    }

    /// Queues a message; it goes out with [`Connection::poll_flush`], or while a message is awaited.
    /// Its owner bounds how many are queued.
    ///
    /// # Errors
    /// When the message is too large, or the connection has ended, and why.
    pub fn feed(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        let message = message.into();
        check(&message, &self.limits)?;
        match &mut self.driver {
            Some(driver) => driver.feed(message),
            None => return Err(self.error()),
        }
        Ok(())
    }

    /// Ready when everything that was queued is with the system. What comes meanwhile is not read.
    ///
    /// # Errors
    /// When the connection has ended, and why.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let polled = self.open()?.poll_flush(context);
        self.polled(polled, context)
    }

    /// As [`Connection::poll_flush`]; when this is given up, the rest goes out later.
    ///
    /// # Errors
    /// As there.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Sends a message; returns when the system has it, so that a peer that does not read holds the
    /// sender back. When this is given up before, the message still goes out later.
    ///
    /// *Sent* is not *received*: who has to know asks for an answer.
    ///
    /// # Errors
    /// As [`Connection::feed`].
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.feed(message)?;
        self.flush().await
    }

    /// The two halves, for different tasks.
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
            // Gone: then the listener is, and asks no more.
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

/// The task of a connection that was split.
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

/// Both halves of what is shared with a connection's task.
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
    /// Queues a message, waiting while the queue is full: back-pressure, never loss. Messages that
    /// are queued before the connection's task runs leave in one write.
    ///
    /// *Queued* is not *received*: who has to know asks for an answer.
    ///
    /// # Errors
    /// When the message is too large, or the connection has ended, and why.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.push(message.into(), true).await
    }

    /// As [`ConnectionSender::send`], but the message may wait for [`ConnectionSender::flush`] or
    /// for a full queue.
    ///
    /// # Errors
    /// As there.
    pub async fn feed(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.push(message.into(), false).await
    }

    /// Lets what was fed go out. Does not wait for it.
    pub fn flush(&mut self) {
        self.shared.outgoing.wake();
    }

    async fn push(&mut self, message: Message, wake: bool) -> Result<(), Error> {
        check(&message, &self.limits)?;
        let pushed = self.shared.outgoing.push(Outgoing::Message(message), wake);
        pushed.await.map_err(|_| self.shared.error())
    }

    /// Messages and bytes that wait to be sent.
    #[must_use]
    pub fn queued(&self) -> (usize, usize) {
        self.shared.outgoing.size()
    }

    /// Who is at the other end.
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
    /// The next message. Giving the wait up loses nothing.
    ///
    /// # Errors
    /// When the connection has ended and everything that came was taken: why it ended, which is
    /// [`Error::Ended`] when the peer just closed it.
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

    /// A message that is already there.
    pub fn try_recv(&mut self) -> Option<Message> {
        if let Some(message) = self.batch.next() {
            return Some(message);
        }
        let mut batch = Vec::new();
        self.shared.incoming.try_pop(&mut batch, usize::MAX);
        self.batch = batch.into_iter();
        self.batch.next()
    }

    /// Who is at the other end.
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
