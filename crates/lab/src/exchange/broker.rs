//! A client of a broker: the traffic of its connection, and how its protocol publishes and
//! subscribes.
//!
//! The clients are minimal ones of our own, which do only what the comparison needs, so that the
//! broker is measured. Elements that are due together are written together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::latency::Latencies;
use super::message::{Counted, Role};
use super::station::{Due, Station};
use super::tally::Received;
use crate::Error;

/// Maximum number of pieces written together.
const TOGETHER: usize = 256;

/// Counters of a connection's traffic in both directions. Clones share them.
#[derive(Clone)]
pub(crate) struct Traffic {
    write: mpsc::UnboundedSender<Vec<u8>>,
    pub(crate) received: Received,
    accepted: Arc<AtomicU64>,
}

impl Traffic {
    /// Connects to a broker; also returns the reading half.
    pub(crate) async fn connect(
        address: &str,
        role: &Role,
        latencies: Latencies,
    ) -> Result<(Self, OwnedReadHalf), Error> {
        let failed = || Error::io(format!("connecting to the broker at {address}"));
        let stream = TcpStream::connect(address).await.map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        let (read, write) = stream.into_split();
        let (sender, queue) = mpsc::unbounded_channel();
        tokio::spawn(writing(write, queue));
        let traffic = Self {
            write: sender,
            received: Received::new(role, latencies),
            accepted: Arc::default(),
        };
        Ok((traffic, read))
    }

    /// Writes bytes after those written before.
    pub(crate) fn send(&self, bytes: impl Into<Vec<u8>>) {
        // A closed connection shows as missing elements.
        let _ = self.write.send(bytes.into());
    }

    /// Counts an element that the broker has acknowledged.
    pub(crate) fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }
}

async fn writing(mut write: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Vec<u8>>) {
    let mut pieces = Vec::new();
    while queue.recv_many(&mut pieces, TOGETHER).await > 0 {
        if write.write_all(&pieces.concat()).await.is_err() {
            return;
        }
        pieces.clear();
    }
}

/// A protocol of a broker.
pub(crate) trait Protocol {
    /// Subscribes to all nodes.
    async fn subscribe(&mut self, traffic: &Traffic) -> Result<(), Error>;
    /// Appends the publication of an element.
    fn publish(&mut self, due: Due, out: &mut Vec<u8>);
}

/// A connected client.
pub(crate) struct Client<P> {
    pub(crate) traffic: Traffic,
    pub(crate) protocol: P,
}

impl<P: Protocol> Station for Client<P> {
    async fn connect(&mut self) -> Result<(), Error> {
        self.protocol.subscribe(&self.traffic).await
    }

    fn produce(&mut self, due: &[Due]) {
        let mut out = Vec::new();
        for due in due {
            self.protocol.publish(*due, &mut out);
        }
        self.traffic.send(out);
    }

    fn produced(&self) -> u64 {
        self.traffic.accepted.load(Ordering::Relaxed)
    }

    fn outputs(&self) -> Vec<u64> {
        self.traffic.received.outputs()
    }

    fn reached(&mut self) -> Vec<u64> {
        self.traffic.received.reached()
    }

    async fn count(self, before: &[u64], produced: &[u64]) -> Result<Counted, Error> {
        Ok(self.traffic.received.count(before, produced))
    }
}
