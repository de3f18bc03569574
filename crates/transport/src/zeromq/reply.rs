//! REP and REQ (28/REQREP): a request, its reply, then the next.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chappe_zmtp::{Message, SocketType};
use tokio::sync::{mpsc, oneshot};

use super::connection::{ConnectionReceiver, ConnectionSender, halves};
use super::driver::{Driver, Shared};
use super::listener::{Listener, Serve};
use super::router::dial;
use super::{Connection, Endpoint, Error, Limits, Peer, Security};
use crate::{Drops, Hop};

/// Requests that wait to be taken, each from another peer.
const QUESTIONS_MAX: usize = 64;

/// A listening REP. Each peer has one open request at a time; the next is not read before its reply.
#[derive(Debug)]
pub struct Reply {
    listener: Listener,
    asked: mpsc::Receiver<IncomingRequest>,
}

/// A request.
#[derive(Debug)]
pub struct IncomingRequest {
    /// The peer.
    pub peer: Peer,
    /// The request, without its envelope.
    pub question: Message,
    answer: oneshot::Sender<Message>,
}

impl IncomingRequest {
    /// Replies. A peer that has disconnected gets nothing. A request dropped without a reply ends its peer's
    /// connection, so that the peer does not wait forever.
    pub fn answer(self, answer: impl Into<Message>) {
        let _ = self.answer.send(answer.into());
    }
}

impl Reply {
    /// Listens. Refusals are recorded in `drops`.
    ///
    /// # Errors
    /// The endpoint is malformed or cannot be bound.
    pub async fn bind(
        endpoint: &str,
        security: Security,
        limits: Limits,
        drops: Drops,
    ) -> Result<Self, Error> {
        let (sender, asked) = mpsc::channel(QUESTIONS_MAX);
        let serve = Questions {
            sender,
            limits: Arc::new(limits.clone()),
            drops: drops.clone(),
        };
        let kind = SocketType::Rep;
        let listener = Listener::bind(endpoint, kind, &security, &limits, drops, serve)?;
        Ok(Self { listener, asked })
    }

    /// The listening endpoint, with the bound port.
    #[must_use]
    pub fn local_endpoint(&self) -> Endpoint {
        self.listener.local.into()
    }

    /// The next request.
    ///
    /// # Errors
    /// [`Error::Closed`] if the runtime shuts down.
    pub async fn recv(&mut self) -> Result<IncomingRequest, Error> {
        self.asked.recv().await.ok_or(Error::Closed)
    }
}

#[derive(Clone)]
struct Questions {
    sender: mpsc::Sender<IncomingRequest>,
    limits: Arc<Limits>,
    drops: Drops,
}

impl Serve for Questions {
    async fn serve(&self, driver: Driver, peer: Peer) -> Error {
        let shared = Shared::new(&self.limits);
        let (mut sender, mut receiver) = halves(&shared, &Arc::new(peer), &self.limits);
        let answering = async {
            loop {
                let message = match receiver.recv().await {
                    Ok(message) => message,
                    Err(error) => return error,
                };
                let peer = receiver.peer().clone();
                let Some((envelope, question)) = open(message) else {
                    let hint = Some("a DEALER must send an empty frame first".to_owned());
                    let reason = "question without an envelope";
                    let who = peer.address.ip();
                    self.drops.record(Hop::Exchange, reason, who, "", hint);
                    continue;
                };
                let (answer, answered) = oneshot::channel();
                let asked = IncomingRequest {
                    peer,
                    question,
                    answer,
                };
                if self.sender.send(asked).await.is_err() {
                    return Error::Closed;
                }
                let Ok(answer) = answered.await else {
                    return Error::Closed;
                };
                let frames = envelope.into_iter().chain(answer.into_frames());
                if let Some(message) = Message::from_frames(frames)
                    && let Err(error) = sender.send(message).await
                {
                    return error;
                }
            }
        };
        let running = driver.run(Arc::clone(&shared), &self.limits, ());
        tokio::pin!(running, answering);
        tokio::select! {
            error = &mut running => error,
            error = &mut answering => {
                shared.close();
                running.await;
                error
            }
        }
    }
}

/// Separates a request from its envelope: all frames up to the first empty one.
fn open(message: Message) -> Option<(Vec<Bytes>, Message)> {
    let mut envelope = message.into_frames();
    let end = envelope.iter().position(Bytes::is_empty)?;
    let question = Message::from_frames(envelope.split_off(end + 1))?;
    Some((envelope, question))
}

/// A REQ, which connects on its first request, and again after a failure.
#[derive(Debug)]
pub struct Request {
    endpoint: String,
    security: Security,
    limits: Limits,
    /// Kept only while no reply is pending: a late reply is never taken for that of the next request.
    idle: Option<(ConnectionSender, ConnectionReceiver)>,
}

impl Request {
    /// Connects.
    ///
    /// # Errors
    /// There is no connection, or the handshake fails.
    pub async fn connect(
        endpoint: &str,
        security: Security,
        limits: Limits,
    ) -> Result<Self, Error> {
        let mut request = Self {
            endpoint: endpoint.to_owned(),
            security,
            limits,
            idle: None,
        };
        request.idle = Some(request.dial().await?);
        Ok(request)
    }

    /// A connection with a separate task, since no task awaits it between two requests.
    async fn dial(&self) -> Result<(ConnectionSender, ConnectionReceiver), Error> {
        let (security, limits) = (&self.security, Arc::new(self.limits.clone()));
        let (driver, peer) = dial(&self.endpoint, SocketType::Req, security, &limits).await?;
        Ok(Connection::new(driver, peer, limits, None).split())
    }

    /// Sends a request, and waits this long for the reply. Never sends it twice.
    ///
    /// # Errors
    /// There is no connection, or the reply is late or malformed.
    pub async fn ask(
        &mut self,
        question: impl Into<Message>,
        patience: Duration,
    ) -> Result<Message, Error> {
        let (mut sender, mut receiver) = match self.idle.take() {
            Some(connection) => connection,
            None => self.dial().await?,
        };
        let frames = std::iter::once(Bytes::new()).chain(question.into().into_frames());
        let Some(question) = Message::from_frames(frames) else {
            return Err(Error::Closed);
        };
        let asking = async {
            sender.send(question).await?;
            loop {
                // Malformed replies are skipped (28/REQREP, The REQ Socket Type).
                if let Some((envelope, answer)) = open(receiver.recv().await?)
                    && envelope.len() == 1
                {
                    return Ok(answer);
                }
            }
        };
        let answer = match tokio::time::timeout(patience, asking).await {
            Ok(answer) => answer?,
            Err(_) => {
                let endpoint = self.endpoint.clone();
                return Err(Error::Late { endpoint });
            }
        };
        self.idle = Some((sender, receiver));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_ends_at_the_first_empty_frame() {
        let message = Message::from_frames(["a", "b", "", "question", ""]).unwrap();
        let (envelope, question) = open(message).unwrap();
        assert_eq!(envelope, ["a", "b", ""]);
        assert_eq!(question, Message::from_frames(["question", ""]).unwrap());
        assert!(open(Message::from_frames(["a", "b"]).unwrap()).is_none());
        assert!(open(Message::from_frames(["a", ""]).unwrap()).is_none());
    }
}
