//! A relay between a client and its server that keeps what crosses it: the bytes of each call.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::floor::Sizes;

/// Bytes of one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes {
    /// With the heads of HTTP.
    pub(super) whole: Sizes,
    /// Without them.
    pub(super) bodies: Sizes,
}

/// A question and its answer, as they crossed.
#[derive(Default)]
struct Exchange {
    question: Vec<u8>,
    answer: Vec<u8>,
}

type Exchanges = Arc<Mutex<Vec<Exchange>>>;

fn locked(exchanges: &Exchanges) -> MutexGuard<'_, Vec<Exchange>> {
    exchanges.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running relay. Its threads end with their connections.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    exchanges: Exchanges,
}

impl Relay {
    /// Listens on the loopback in front of `server`.
    pub(super) fn start(server: SocketAddr) -> Result<Self, Error> {
        let failed = || Error::io("listening as a relay");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        let exchanges = Exchanges::default();
        let kept = Arc::clone(&exchanges);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let kept = Arc::clone(&kept);
                // The client notices a connection that ends.
                std::thread::spawn(move || pass(client, server, &kept));
            }
        });
        Ok(Self { address, exchanges })
    }

    /// The bytes of the last exchanges.
    pub(super) fn last(&self, count: usize) -> Result<Vec<Bytes>, Error> {
        let exchanges = locked(&self.exchanges);
        let Some(first) = exchanges.len().checked_sub(count) else {
            let what = format!("{} of {count} calls crossed the relay", exchanges.len());
            return Err(Error::Failed(what));
        };
        Ok(exchanges[first..].iter().map(Exchange::bytes).collect())
    }
}

impl Exchange {
    fn bytes(&self) -> Bytes {
        let sizes = |of: fn(&[u8]) -> usize| Sizes {
            question: of(&self.question),
            answer: of(&self.answer),
        };
        Bytes {
            whole: sizes(<[u8]>::len),
            bodies: sizes(body),
        }
    }
}

/// The bytes after the head.
fn body(message: &[u8]) -> usize {
    let end = b"\r\n\r\n";
    let head = message.windows(end.len()).position(|four| four == end);
    head.map_or(0, |head| message.len() - head - end.len())
}

/// Passes both directions on until either end closes.
fn pass(client: TcpStream, server: SocketAddr, exchanges: &Exchanges) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let asked = Arc::clone(exchanges);
    std::thread::spawn(move || {
        copy(&mut from_client, &mut to_server, |bytes| {
            let mut exchanges = locked(&asked);
            match exchanges.last_mut() {
                Some(last) if last.answer.is_empty() => last.question.extend_from_slice(bytes),
                _ => exchanges.push(Exchange {
                    question: bytes.to_vec(),
                    answer: Vec::new(),
                }),
            }
        })
    });
    let (mut from_server, mut to_client) = (server, client);
    copy(&mut from_server, &mut to_client, |bytes| {
        if let Some(last) = locked(exchanges).last_mut() {
            last.answer.extend_from_slice(bytes);
        }
    })
}

fn copy(
    from: &mut TcpStream,
    to: &mut TcpStream,
    mut keep: impl FnMut(&[u8]),
) -> std::io::Result<()> {
    let mut buffer = [0; 16_384];
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return to.shutdown(Shutdown::Write);
        }
        keep(&buffer[..length]);
        to.write_all(&buffer[..length])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exchange_has_its_bytes() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(server.local_addr().unwrap()).unwrap();
        let answers: [&[u8]; 2] = [b"a\r\n\r\nbc", b"nothing"];
        let mut client = TcpStream::connect(relay.address).unwrap();
        let (mut peer, _) = server.accept().unwrap();
        for answer in answers {
            client.write_all(b"q\r\n\r\nr").unwrap();
            peer.read_exact(&mut [0; 6]).unwrap();
            peer.write_all(answer).unwrap();
            client.read_exact(&mut vec![0; answer.len()]).unwrap();
        }
        let bytes = relay.last(2).unwrap();
        let sizes = bytes.iter().map(|it| (it.whole.question, it.whole.answer));
        assert_eq!(sizes.collect::<Vec<_>>(), [(6, 7), (6, 7)]);
        let sizes = bytes
            .iter()
            .map(|it| (it.bodies.question, it.bodies.answer));
        assert_eq!(sizes.collect::<Vec<_>>(), [(1, 2), (1, 0)]);
        assert!(relay.last(3).is_err());
    }
}
