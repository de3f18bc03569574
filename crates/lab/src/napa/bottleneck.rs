//! A bottleneck on the path, in user space: a relay for TCP connections with a bandwidth, a latency
//! and a queue, so that loopback behaves like a real path.
//!
//! Each direction of each connection has the full bandwidth. Bytes that arrive wait for those
//! before them, leave at the bandwidth and arrive a latency later. When the queue is full, the
//! relay stops reading, and TCP holds the sender back: a relay of streams cannot lose data. Kernel
//! buffers before the relay add to the queue, as on any path; the relay keeps its own receive
//! buffers small.
//!
//! Datagrams do not use this relay: DDS announces the ports of its participants in its discovery,
//! so a relay cannot be inserted. For them there is [`super::cable`].

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use chappe_transport::FineAlarm;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Size of a unit of transfer in bytes: at 25 MB/s a third of a millisecond.
const CHUNK: usize = 8 << 10;
/// The relay's receive buffer: small compared with the queue.
const RECEIVE_BUFFER: u32 = 32 << 10;
/// Maximum number of chunks between leaving and arriving.
const UNDER_WAY_MAX: usize = 65_536;

/// The properties of the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Narrow {
    /// Bandwidth of each direction.
    pub(crate) bytes_per_s: u32,
    /// One-way latency.
    pub(crate) latency: Duration,
    /// Maximum number of queued bytes per direction.
    pub(crate) queue_bytes: u32,
}

impl Narrow {
    /// Transmission time of `bytes` bytes.
    pub(super) fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / f64::from(self.bytes_per_s.max(1)))
    }
}

/// A relay that runs until it is dropped.
pub(crate) struct Bottleneck {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Bottleneck {
    /// Accepts connections, and opens one to `to` for each.
    pub(crate) fn start(to: SocketAddr, narrow: Narrow) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let socket = {
            let _entered = runtime.enter();
            let socket = TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            socket.listen(16)?
        };
        let address = socket.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let accept = async move {
            // Their tasks end with the runtime.
            while let Ok((near, _)) = socket.accept().await {
                tokio::spawn(async move {
                    if let Err(error) = join(near, to, narrow).await {
                        tracing::debug!(%error, "a relayed connection ended");
                    }
                });
            }
        };
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The address on which it accepts connections.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Bottleneck {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, nothing would be relayed any more, which would be
            // noticed.
            let _ = thread.join();
        }
    }
}

async fn join(near: TcpStream, to: SocketAddr, narrow: Narrow) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    let far = socket.connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    // Each direction ends independently; the other may have more to send.
    let there = pipe(near_in, far_out, narrow);
    let back = pipe(far_in, near_out, narrow);
    tokio::try_join!(there, back).map(drop)
}

/// Relays one direction until its end.
async fn pipe(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    narrow: Narrow,
) -> io::Result<()> {
    let (enter, leave) = mpsc::channel(UNDER_WAY_MAX);
    tokio::try_join!(queue(from, enter, narrow), deliver(to, leave)).map(drop)
}

/// Reads while there is room, and sets when each chunk arrives.
async fn queue(
    mut from: impl AsyncRead + Unpin,
    enter: mpsc::Sender<(Instant, Bytes)>,
    narrow: Narrow,
) -> io::Result<()> {
    let mut alarm = FineAlarm::new(Duration::ZERO)?;
    let room = narrow.time_of(narrow.queue_bytes as usize);
    let mut free = Instant::now();
    let mut buffer = BytesMut::new();
    loop {
        // If the last chunk leaves later than the time of a full queue, there is no room.
        if let Some(until) = free.checked_sub(room)
            && until > Instant::now()
        {
            alarm.set(Some(until));
            alarm.rings().await;
        }
        buffer.reserve(CHUNK);
        let read = from.read_buf(&mut (&mut buffer).limit(CHUNK)).await?;
        if read == 0 {
            return Ok(());
        }
        free = free.max(Instant::now()) + narrow.time_of(read);
        let chunk = buffer.split().freeze();
        if enter.send((free + narrow.latency, chunk)).await.is_err() {
            return Ok(());
        }
    }
}

async fn deliver(
    mut to: impl AsyncWrite + Unpin,
    mut leave: mpsc::Receiver<(Instant, Bytes)>,
) -> io::Result<()> {
    let mut alarm = FineAlarm::new(Duration::ZERO)?;
    while let Some((at, chunk)) = leave.recv().await {
        alarm.set(Some(at));
        alarm.rings().await;
        to.write_all(&chunk).await?;
    }
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn every_byte_arrives_in_order_both_ways_and_none_faster_than_the_bandwidth() {
        let narrow = Narrow {
            bytes_per_s: 4_000_000,
            latency: Duration::from_millis(3),
            queue_bytes: 20_000,
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Bottleneck::start(listener.local_addr().unwrap(), narrow).unwrap();
        let mut near = TcpStream::connect(relay.address()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let mut sent = vec![0; 400_000];
        random.fill(&mut sent);
        let expected = sent.clone();
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            let echo = scope.spawn(move || {
                let mut came = Vec::new();
                far.read_to_end(&mut came).unwrap();
                let took = began.elapsed();
                far.write_all(&came).unwrap();
                took
            });
            near.write_all(&sent).unwrap();
            near.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = Vec::new();
            near.read_to_end(&mut back).unwrap();
            assert!(back == expected);
            // It may be later on a busy machine, never sooner.
            let least = narrow.time_of(expected.len()) + narrow.latency;
            assert!(echo.join().unwrap() >= least);
            assert!(began.elapsed() >= least * 2);
        });
    }

    #[test]
    fn what_cannot_be_reached_ends_the_connection_and_not_the_relay() {
        // An address of this process without a listener.
        let [.., high, low] = std::process::id().to_be_bytes();
        let gone = ([127, high % 127 + 1, low, 1], 9).into();
        let narrow = Narrow {
            bytes_per_s: 1_000,
            latency: Duration::ZERO,
            queue_bytes: 100,
        };
        let relay = Bottleneck::start(gone, narrow).unwrap();
        for _ in 0..2 {
            let mut near = TcpStream::connect(relay.address()).unwrap();
            assert_eq!(near.read(&mut [0; 10]).unwrap_or(0), 0);
        }
    }
}
