//! ZeroMQ on TCP: the sockets that links between nodes and foreign programs use.
//!
//! Runs [`chappe_zmtp`] (ZMTP 3.1 with NULL and CURVE) with one task for each connection, on one
//! thread as well as on many. Unlike in libzmq there is no shared queue behind a socket:
//!
//! - [`Router`] and [`Dealer`] give a [`Connection`] for each peer, whose sending waits while the
//!   peer is slow and never drops;
//! - [`Publisher`] and [`Subscriber`] are best effort: a subscriber that is too slow loses messages,
//!   counted for it; in-process publishers and subscribers are joined with those on TCP;
//! - [`Proxy`] forwards subscriptions to publishers elsewhere and their messages back;
//! - [`Reply`] and [`Request`] ask and answer in lock-step.
//!
//! Everything a peer can stretch is in [`Limits`], and what is refused is counted in
//! [`Drops`](crate::Drops).
//!
//! Deliberately absent: `ipc://` and `inproc://` addresses, PLAIN, ZAP, other socket types.
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
pub use reply::{Asked, Reply, Request};
pub use router::{Dealer, Peer, Router};
pub use subscriber::{Subscriber, SubscriberLink};
