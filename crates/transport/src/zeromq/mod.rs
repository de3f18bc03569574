//! ZeroMQ on TCP: the sockets of links between nodes and of foreign programs.
//!
//! Runs [`chappe_zmtp`] (ZMTP 3.1 with NULL and CURVE; also 2.0 with [`Security::NullFrom2`]) with one task for each
//! connection, on one thread as well as on many. Unlike libzmq, a socket has no queue shared by its connections:
//!
//! - [`Router`] and [`Dealer`] return a [`Connection`] for each peer; sending waits while the peer is slow, and never
//!   drops;
//! - [`Publisher`] and [`Subscriber`] are best effort: a subscriber that is too slow loses messages, which are counted;
//!   publishers and subscribers in the same process are connected to those on TCP;
//! - [`Proxy`] forwards subscriptions to remote publishers and their messages back;
//! - [`Reply`] and [`Request`] exchange requests and replies in lock-step.
//!
//! Everything that a peer can prolong has a limit in [`Limits`], and refusals are counted in
//! [`Drops`](crate::Drops).
//!
//! Out of scope: `ipc://` and `inproc://` addresses, PLAIN, ZAP, other socket types.
//!
//! # Example
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use chappe_transport::Drops;
//! use chappe_transport::zeromq::{Dealer, Limits, Router, Security};
//! let limits = Limits::default();
//! let mut router =
//!     Router::bind("tcp://127.0.0.1:0", Security::Null, limits.clone(), Drops::default()).await?;
//! let endpoint = router.local_endpoint().to_string();
//! let mut dealer = Dealer::connect(&endpoint, Security::Null, limits).await?;
//! dealer.send(&b"hello"[..]).await?;
//! let mut peer = router.accept().await?;
//! assert_eq!(peer.recv().await?.first(), "hello");
//! # Ok::<(), chappe_transport::zeromq::Error>(()) }).unwrap();
//! ```

mod config;
mod connection;
mod driver;
mod error;
mod hold;
mod listener;
mod proxy;
mod publisher;
mod queue;
mod reply;
mod router;
mod subscriber;

pub use chappe_identity::{CurvePublic, CurveSecret};
pub use chappe_zmtp::{Fault, Heartbeat, Message, SocketType};
pub use config::{Allowed, Endpoint, Limits, Security};
pub use connection::{Connection, ConnectionReceiver, ConnectionSender};
pub use error::Error;
pub use proxy::Proxy;
pub use publisher::{LocalSubscriber, Publisher, SubscriberState};
pub use queue::Dropping;
pub use reply::{IncomingRequest, Reply, Request};
pub use router::{Dealer, Peer, Router};
pub use subscriber::{Subscriber, SubscriberLink};
