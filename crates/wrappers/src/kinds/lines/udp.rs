//! Datagrams over UDP, which nobody acknowledges.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, PoisonError};

use chappe_stream::{DescriptorError, Timestamp};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    BATCH_BYTES_MAX, Batch, Delivery, Lost, Step, Wrapper, WrapperError, WrapperFile, WrapperKind,
    WrapperOpening,
};

/// Bytes of datagrams that wait to be decoded; for one more the oldest are dropped. Reason: a second of
/// ten thousand small ones.
const QUEUE_BYTES: usize = 4 << 20;
/// What a waiting datagram costs besides its bytes, about: its place in the queue, and its allocation.
const DATAGRAM_COST: usize = 64;
/// Bytes of the kernel's buffer, as far as the system allows: it fills while this process does not run.
const SOCKET_BYTES: usize = 4 << 20;
/// The longest datagram.
const DATAGRAM_BYTES: usize = 65_535;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "udp",
    about: "datagrams over UDP, one message each",
    delivery: Delivery {
        acknowledges: "never: UDP has no acknowledgement",
        resumes: "the next datagram",
        may_double: "datagrams that the network repeats",
        may_miss: "datagrams that the network loses, or that arrive while the node is down or storing lags",
        back_pressure: "nothing: the oldest datagrams are dropped and counted as `queue_full`, those that the kernel drops as `socket_full`",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `udp`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Address and port to listen on.
    #[schemars(with = "String", extend("format" = "socket-address"))]
    listen: SocketAddr,
}

fn settings(file: &WrapperFile) -> Result<(Settings, Decoder), DescriptorError> {
    Ok((file.settings()?, Decoder::new(file, &[])?))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let (settings, decoder) =
        settings(opening.file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let WrapperOpening { condition, .. } = opening;
    condition.waits("no datagram has arrived");
    Ok(Box::new(UdpWrapper {
        listen: settings.listen,
        decoder,
        queue: Arc::default(),
        receiving: None,
        condition,
    }))
}

struct UdpWrapper {
    listen: SocketAddr,
    decoder: Decoder,
    queue: Arc<Queue>,
    /// The task that empties the socket while nothing is asked for.
    receiving: Option<AbortHandle>,
    condition: crate::Condition,
}

impl Drop for UdpWrapper {
    fn drop(&mut self) {
        if let Some(receiving) = &self.receiving {
            receiving.abort();
        }
    }
}

/// Datagrams that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    inner: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    datagrams: VecDeque<(Timestamp, Vec<u8>)>,
    bytes: usize,
    dropped: u64,
    /// Those that the kernel dropped.
    unreceived: u64,
    failed: Option<String>,
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, at: Timestamp, datagram: &[u8]) {
        let mut waiting = self.lock();
        waiting.bytes += datagram.len() + DATAGRAM_COST;
        waiting.datagrams.push_back((at, datagram.to_vec()));
        while waiting.bytes > QUEUE_BYTES {
            let Some((_, oldest)) = waiting.datagrams.pop_front() else {
                break;
            };
            waiting.bytes -= oldest.len() + DATAGRAM_COST;
            waiting.dropped += 1;
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    fn miss(&self, datagrams: u32) {
        self.lock().unreceived += u64::from(datagrams);
    }

    fn fail(&self, text: String) {
        self.lock().failed = Some(text);
        self.arrived.notify_one();
    }

    /// What waits, up to a batch; `None` if nothing does.
    fn take(&self, decoder: &mut Decoder) -> Result<Option<Batch>, WrapperError> {
        let mut waiting = self.lock();
        let mut batch = Batch::default();
        let (dropped, unreceived) = (
            std::mem::take(&mut waiting.dropped),
            std::mem::take(&mut waiting.unreceived),
        );
        for (reason, messages) in [("queue_full", dropped), ("socket_full", unreceived)] {
            if messages > 0 {
                batch.lost.push(Lost {
                    stream: decoder.only_stream().map(str::to_owned),
                    reason,
                    messages,
                });
            }
        }
        let mut bytes = 0;
        while bytes < BATCH_BYTES_MAX / 8
            && let Some((at, datagram)) = waiting.datagrams.pop_front()
        {
            waiting.bytes -= datagram.len() + DATAGRAM_COST;
            bytes += datagram.len() + DATAGRAM_COST;
            decoder.message(&datagram, at, &mut batch);
        }
        if bytes == 0 && batch.lost.is_empty() {
            return match waiting.failed.take() {
                Some(text) => Err(WrapperError::peer(text)),
                None => Ok(None),
            };
        }
        Ok(Some(batch))
    }
}

impl Wrapper for UdpWrapper {
    fn repeats(&self) -> bool {
        false
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            if self.receiving.is_none() {
                let listen = self.listen;
                let failed =
                    |error| WrapperError::peer(format!("cannot listen on {listen}: {error}"));
                let socket = UdpSocket::bind(listen).await.map_err(failed)?;
                let queue = self.queue.clone();
                self.receiving = Some(tokio::spawn(receive(socket, queue)).abort_handle());
            }
            loop {
                if let Some(batch) = self.queue.take(&mut self.decoder)? {
                    self.condition.runs();
                    return Ok(batch);
                }
                self.queue.arrived.notified().await;
            }
        })
    }
}

/// Empties a socket.
async fn receive(socket: UdpSocket, queue: Arc<Queue>) {
    // A system that allows less, or does not count what it drops, still delivers.
    if setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES).is_err() {
        let _ = setsockopt(&socket, sockopt::RcvBuf, &SOCKET_BYTES);
    }
    let _ = setsockopt(&socket, sockopt::RxqOvfl, &1);
    let mut buffer = vec![0; DATAGRAM_BYTES];
    let mut dropped = 0;
    loop {
        let received = socket.async_io(Interest::READABLE, || datagram(&socket, &mut buffer));
        match received.await {
            Ok((count, total)) => {
                if let Some(total) = total {
                    // The kernel counts from the start of the socket, and begins at zero again.
                    queue.miss(total.wrapping_sub(std::mem::replace(&mut dropped, total)));
                }
                if count > 0 {
                    queue.push(now(), &buffer[..count]);
                }
            }
            Err(error) => return queue.fail(format!("cannot receive: {error}")),
        }
    }
}

/// The next datagram: its bytes, and how many the kernel had dropped before it, if it dropped any.
fn datagram(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Option<u32>)> {
    let mut space = nix::cmsg_space!(u32);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let total = message.cmsgs()?.find_map(|one| match one {
        ControlMessageOwned::RxqOvfl(total) => Some(total),
        _ => None,
    });
    Ok((message.bytes, total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{open, wrapper_file};
    use chappe_stream::Value;

    const TEXT: &str = r#"
kind = "udp"
format = "json"
listen = "127.0.0.1:0"
[[stream]]
name = "a"
fields = [{ name = "value", type = "integer" }]
"#;

    #[test]
    fn the_oldest_datagrams_are_dropped_and_counted() {
        let mut decoder = Decoder::new(&wrapper_file(TEXT), &[]).unwrap();
        let queue = Queue::default();
        let padding = " ".repeat(1 << 19);
        for number in 0..10 {
            queue.push(
                Timestamp(0),
                format!("{{\"value\": {number}}}{padding}").as_bytes(),
            );
        }
        let mut values = Vec::new();
        let mut lost = 0;
        while let Some(batch) = queue.take(&mut decoder).unwrap() {
            lost += batch.lost.iter().map(|lost| lost.messages).sum::<u64>();
            let elements = batch.parts.iter().flat_map(|part| &part.elements);
            values.extend(elements.map(|element| element.values[0].clone()));
        }
        assert_eq!(values, (3..10).map(Value::Integer).collect::<Vec<_>>());
        assert_eq!(lost, 3);
    }

    #[tokio::test]
    async fn a_datagram_is_a_message() {
        let probe = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = probe.local_addr().unwrap();
        drop(probe);
        let file = wrapper_file(&TEXT.replace("127.0.0.1:0", &address.to_string()));
        let mut wrapper = open(&file, None);
        let sending = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let send = tokio::spawn(async move {
            loop {
                // The wrapper may not listen yet.
                sending.send_to(b"{\"value\": 7}", address).unwrap();
                sending.send_to(b"nonsense", address).unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        let (mut elements, mut undecodable) = (0, 0);
        while elements == 0 || undecodable == 0 {
            let batch = wrapper.next().await.unwrap();
            elements += batch.elements();
            undecodable += batch.undecodable.len();
        }
        send.abort();
    }

    #[tokio::test]
    async fn datagrams_that_the_kernel_drops_are_counted() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let sending = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        setsockopt(&socket, sockopt::RxqOvfl, &1).unwrap();
        setsockopt(&socket, sockopt::RcvBuf, &1).unwrap();
        // Nobody reads the socket meanwhile.
        let sent = 1_000;
        for _ in 0..sent {
            sending.send_to(&[b'x'; 100], address).unwrap();
        }
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let mut received = 0;
        socket.readable().await.unwrap();
        while datagram(&socket, &mut buffer).is_ok() {
            received += 1;
        }
        assert!(received < sent);
        sending.send_to(b"last", address).unwrap();
        let last = socket.async_io(Interest::READABLE, || datagram(&socket, &mut buffer));
        assert_eq!(last.await.unwrap(), (4, Some(sent - received)));
    }
}
