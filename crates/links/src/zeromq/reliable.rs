//! Sessions over DEALER and ROUTER.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use chappe_transport::zeromq::{Connection, Dealer, Message};

use super::{ZeromqConfig, connection_error};
use crate::dial::Dialler;
use crate::session::{ConnectionError, FrameConnection, LinkFrame};
use crate::{LinkConfig, LinkError, Reader};

/// The first frame of messages for the directory.
const DIRECTORY: &[u8] = b"D";

impl FrameConnection for Connection {
    fn peer(&self) -> Reader {
        let peer = Connection::peer(self);
        Reader {
            address: Some(peer.address),
            key: peer.key.as_ref().map(|key| *key.as_bytes()),
            account: None,
        }
    }

    fn push(&mut self, frame: LinkFrame) -> Result<(), ConnectionError> {
        let message = match frame {
            LinkFrame::Session(frame) => Message::new(frame),
            LinkFrame::Directory(frame) => {
                let mut message = Message::new(Bytes::from_static(DIRECTORY));
                message.push(frame);
                message
            }
        };
        self.feed(message).map_err(|error| connection_error(&error))
    }

    fn queued_bytes(&self) -> usize {
        Connection::queued_bytes(self)
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<LinkFrame, ConnectionError>> {
        let message = ready!(self.poll_recv(context)).map_err(|error| connection_error(&error))?;
        let unknown = || ConnectionError {
            text: "the peer sent a message that does not belong to a session".to_owned(),
            hint: Some("check that a node, and not another program, listens there".to_owned()),
        };
        Poll::Ready(match message.len() {
            1 => Ok(LinkFrame::Session(message.last().clone())),
            2 if message.frame(0).is_some_and(|first| first == DIRECTORY) => {
                Ok(LinkFrame::Directory(message.last().clone()))
            }
            _ => Err(unknown()),
        })
    }

    fn has_frame(&self) -> bool {
        self.has_message()
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        Connection::poll_flush(self, context).map_err(|error| connection_error(&error))
    }
}

/// Dials the ROUTER of an origin.
pub(crate) struct RouterDialler {
    address: String,
    security: chappe_transport::zeromq::Security,
    limits: chappe_transport::zeromq::Limits,
}

impl RouterDialler {
    pub(crate) fn new(config: &LinkConfig, node: &ZeromqConfig) -> Result<Self, LinkError> {
        Ok(Self {
            address: config.address.clone(),
            security: node.security(config)?,
            limits: node.limits.clone(),
        })
    }
}

impl Dialler for RouterDialler {
    type Connection = Connection;

    async fn dial(&self) -> Result<Connection, ConnectionError> {
        let (security, limits) = (self.security.clone(), self.limits.clone());
        let dialled = Dealer::connect(&self.address, security, limits).await;
        dialled.map_err(|error| connection_error(&error))
    }
}
