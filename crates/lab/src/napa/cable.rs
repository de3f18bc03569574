//! Two networks for this run alone, and a cable between them in user space, with a bandwidth, a
//! latency, a queue and loss, for programs that send datagrams and announce their own addresses.
//!
//! Each direction has the full bandwidth. A frame waits for those before it, leaves at the
//! bandwidth and arrives a latency later. A frame that finds the queue full is dropped, as is the
//! given share of those that leave. The kernel splits longer datagrams into frames of 1,500 bytes,
//! as on Ethernet: with ten frames per datagram, one per cent of loss affects one datagram in ten.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use chappe_transport::FineAlarm;
use nix::sched::{CloneFlags, setns};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::bottleneck::Narrow;
use super::unsafe_tap;
use crate::Error;
use crate::exchange::namespace;

/// The largest frame, its head included.
const FRAME_BYTES_MAX: usize = 1_514;
/// Maximum number of frames between leaving and arriving.
const UNDER_WAY_MAX: usize = 65_536;
/// The addresses of the ends.
pub(super) const NEAR: &str = "10.78.0.1";
pub(super) const FAR: &str = "10.78.0.2";
/// Each end's interface, in its own network.
const INTERFACE: &str = "cable0";
/// Memory of a system for datagrams with missing frames, in bytes: 4 MiB by default, which lost
/// frames fill within seconds, since each datagram is kept for half a minute. After that, complete
/// ones are dropped too.
const FRAGMENT_MEMORY: (&str, &str) = ("/proc/sys/net/ipv4/ipfrag_high_thresh", "134217728");

/// A cable that exists until it is dropped. Its near end is in the network of the thread that
/// created it.
pub(super) struct Cable {
    far: File,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Cable {
    /// Moves this thread into its own network, and connects it to another one by a cable that loses
    /// this share of the frames.
    pub(super) fn lay(narrow: Narrow, loss: f64, seed: u64) -> Result<Self, Error> {
        namespace::enter()?;
        let near = end(1)?;
        let opened = std::thread::spawn(|| {
            namespace::enter()?;
            let network = File::open("/proc/thread-self/ns/net");
            Ok((
                end(2)?,
                network.map_err(Error::io("naming the far network"))?,
            ))
        });
        let opened = opened.join();
        let (tap, far) =
            opened.unwrap_or_else(|_| Err(Error::Failed("the far end panicked".to_owned())))?;
        let (stop, stopped) = oneshot::channel();
        let (began, beginning) = std_mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(began.send(Err(error))),
            };
            runtime.block_on(async {
                let ends = asynchronous(near).and_then(|near| Ok((near, asynchronous(tap)?)));
                let (near, far) = match ends {
                    Ok((near, far)) => (Arc::new(near), Arc::new(far)),
                    Err(error) => return drop(began.send(Err(error))),
                };
                drop(began.send(Ok(())));
                let there = carry(near.clone(), far.clone(), narrow, loss, seed);
                let back = carry(far, near, narrow, loss, seed.wrapping_add(1));
                tokio::select! {
                    Err(error) = async { tokio::try_join!(there, back) } => {
                        tracing::warn!(%error, "the cable has failed");
                    }
                    _ = stopped => {}
                }
            });
        });
        let started = beginning
            .recv()
            .unwrap_or(Err(io::ErrorKind::BrokenPipe.into()));
        started.map_err(Error::io("starting the cable"))?;
        Ok(Self {
            far,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Runs a function in the far network; processes that it starts are there too.
    pub(super) fn far<T: Send>(
        &self,
        run: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        std::thread::scope(|scope| {
            let within = scope.spawn(|| {
                setns(&self.far, CloneFlags::CLONE_NEWNET)
                    .map_err(|error| Error::io("entering the far network")(error.into()))?;
                run()
            });
            let outcome = within.join();
            outcome.unwrap_or_else(|_| Err(Error::Failed("the far end panicked".to_owned())))
        })
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, no frame would be carried any more, which would be
            // noticed.
            let _ = thread.join();
        }
    }
}

/// An end of the cable in this thread's network, with routes to the other one and to groups.
/// Addresses are known to both ends, because an address query may be lost.
fn end(number: u8) -> Result<File, Error> {
    let tap = unsafe_tap::open(INTERFACE).map_err(Error::io("creating an interface"))?;
    let hardware = |number: u8| format!("02:00:00:00:00:{number:02}");
    let (own, other) = (hardware(number), hardware(3 - number));
    let mut addresses = [NEAR, FAR];
    addresses.rotate_left(usize::from(number - 1));
    let [address, neighbour] = addresses;
    let address = format!("{address}/24");
    let commands: [&[&str]; 5] = [
        &["link", "set", INTERFACE, "address", &own],
        &["addr", "add", &address, "dev", INTERFACE],
        &["link", "set", INTERFACE, "up"],
        &[
            "neigh", "add", neighbour, "lladdr", &other, "dev", INTERFACE,
        ],
        &["route", "add", "239.0.0.0/8", "dev", INTERFACE],
    ];
    for words in commands {
        let output = Command::new("ip").args(words).output();
        let output = output.map_err(Error::io("running ip"))?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            let what = format!("ip {}: {}", words.join(" "), printed.trim());
            return Err(Error::Failed(what));
        }
    }
    let (setting, bytes) = FRAGMENT_MEMORY;
    if let Err(error) = std::fs::write(setting, bytes) {
        tracing::warn!(%error, "lost frames will fill the memory for fragments: {setting} stays as it is");
    }
    Ok(tap)
}

#[expect(
    deprecated,
    reason = "a file owns its descriptor, as is asked for; the other way is unsafe to write"
)]
fn asynchronous(file: File) -> io::Result<AsyncFd<File>> {
    AsyncFd::new(file)
}

/// One direction, until an error.
async fn carry(
    from: Arc<AsyncFd<File>>,
    to: Arc<AsyncFd<File>>,
    narrow: Narrow,
    loss: f64,
    seed: u64,
) -> io::Result<()> {
    let (enter, leave) = mpsc::channel(UNDER_WAY_MAX);
    tokio::try_join!(queue(&from, enter, narrow, loss, seed), deliver(&to, leave)).map(drop)
}

/// Reads the frames that are sent, and sets when each arrives.
async fn queue(
    from: &AsyncFd<File>,
    enter: mpsc::Sender<(Instant, Vec<u8>)>,
    narrow: Narrow,
    loss: f64,
    seed: u64,
) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let room = narrow.time_of(narrow.queue_bytes as usize);
    let mut free = Instant::now();
    let mut frame = [0; FRAME_BYTES_MAX];
    loop {
        let mut ready = from.readable().await?;
        let length = match ready.try_io(|from| from.get_ref().read(&mut frame)) {
            Ok(length) => length?,
            Err(_would_wait) => continue,
        };
        let now = Instant::now();
        if free > now + room {
            continue;
        }
        free = free.max(now) + narrow.time_of(length);
        if random.f64() < loss {
            continue;
        }
        let frame = frame[..length].to_vec();
        // If there is no room here, the latency is far too long for the bandwidth: the frame is
        // lost.
        if let Err(mpsc::error::TrySendError::Closed(_)) =
            enter.try_send((free + narrow.latency, frame))
        {
            return Ok(());
        }
    }
}

async fn deliver(
    to: &AsyncFd<File>,
    mut leave: mpsc::Receiver<(Instant, Vec<u8>)>,
) -> io::Result<()> {
    let mut alarm = FineAlarm::new(Duration::ZERO)?;
    while let Some((at, frame)) = leave.recv().await {
        if at > Instant::now() {
            alarm.set(Some(at));
            alarm.rings().await;
        }
        // Frames that the far end does not accept at once are lost there, as on Ethernet.
        let _ = to.get_ref().write(&frame);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// Sends datagrams to the far end, and then markers until one arrives, which shows that the
    /// others have arrived or are lost. Returns how many arrived, and the time of the last.
    fn across(
        narrow: Narrow,
        loss: f64,
        datagrams: u16,
        bytes: usize,
    ) -> Result<(usize, Duration), Error> {
        std::thread::scope(|scope| {
            let run = scope.spawn(move || {
                let cable = Cable::lay(narrow, loss, 7)?;
                let failed = || Error::io("on a socket");
                let receiver = cable.far(|| UdpSocket::bind((FAR, 7_000)).map_err(failed()))?;
                let timeout = Some(Duration::from_millis(100));
                receiver.set_read_timeout(timeout).map_err(failed())?;
                let sender = UdpSocket::bind((NEAR, 0)).map_err(failed())?;
                let send = |datagram: &[u8]| {
                    let sent = sender.send_to(datagram, (FAR, 7_000));
                    sent.map(drop).map_err(failed())
                };
                let began = std::time::Instant::now();
                for _ in 0..datagrams {
                    send(&vec![1; bytes])?;
                }
                send(&[0])?;
                let (mut came, mut took) = (0, Duration::ZERO);
                let mut datagram = [0; 2_000];
                loop {
                    match receiver.recv(&mut datagram) {
                        Ok(1) => return Ok((came, took)),
                        Ok(_) => {
                            came += 1;
                            took = began.elapsed();
                        }
                        Err(late) if began.elapsed() > Duration::from_secs(300) => {
                            return Err(failed()(late));
                        }
                        Err(_late) => send(&[0])?,
                    }
                }
            });
            run.join().unwrap()
        })
    }

    #[test]
    fn datagrams_go_through_at_the_bandwidth_and_are_lost_at_the_share_or_when_the_queue_is_full() {
        let narrow = Narrow {
            bytes_per_s: 1_000_000,
            latency: Duration::from_millis(5),
            queue_bytes: 1_000_000,
        };
        // As many as the receiver's buffer holds.
        match across(narrow, 0.0, 60, 1_000) {
            Err(error) => {
                // Past the capture, which shows nothing of a test that passes.
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: cannot create networks: {error}"
                );
                return;
            }
            Ok((came, took)) => {
                assert_eq!(came, 60);
                assert!(took > Duration::from_millis(65), "{took:?}");
            }
        }
        let (came, _) = across(narrow, 0.3, 300, 100).unwrap();
        assert!((150..270).contains(&came), "{came}");
        // They need 2 s on this cable, far longer than sending takes on a busy machine.
        let full = Narrow {
            bytes_per_s: 100_000,
            queue_bytes: 20_000,
            ..narrow
        };
        let (came, _) = across(full, 0.0, 200, 1_000).unwrap();
        assert!((10..190).contains(&came), "{came}");
    }
}
