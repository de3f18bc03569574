//! The floors of a latency over the loopback: what the sockets alone cost, at the same sizes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::Error;

/// A question and its answer, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) question: usize,
    pub(crate) answer: usize,
}

/// Bytes that no exchange is larger than.
const BUFFER: usize = 65_536;

/// Exchanges of one datagram each way, with a thread that only answers.
pub(crate) fn udp(sizes: Sizes, rounds: usize) -> Result<Vec<Duration>, Error> {
    let failed = || Error::io("exchanging raw datagrams");
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed());
    let (here, there) = (bind()?, bind()?);
    here.connect(there.local_addr().map_err(failed())?)
        .map_err(failed())?;
    there
        .connect(here.local_addr().map_err(failed())?)
        .map_err(failed())?;
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let (mut buffer, answer) = (vec![0; BUFFER], vec![1; sizes.answer]);
            for _ in 0..rounds {
                there.recv(&mut buffer)?;
                there.send(&answer)?;
            }
            Ok(())
        });
        let (mut buffer, question) = (vec![0; BUFFER], vec![1; sizes.question]);
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = Instant::now();
            here.send(&question).map_err(failed())?;
            here.recv(&mut buffer).map_err(failed())?;
            times.push(start.elapsed());
        }
        finish(answering)?;
        Ok(times)
    })
}

/// A new connection with `exchanges` exchanges, with a thread that only answers.
pub(crate) fn tcp(sizes: Sizes, exchanges: usize, rounds: usize) -> Result<Vec<Duration>, Error> {
    let failed = || Error::io("exchanging raw bytes");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
    let address = listener.local_addr().map_err(failed())?;
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let (mut buffer, answer) = (vec![0; sizes.question], vec![1; sizes.answer]);
            for _ in 0..rounds {
                let (mut stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                for _ in 0..exchanges {
                    stream.read_exact(&mut buffer)?;
                    stream.write_all(&answer)?;
                }
            }
            Ok(())
        });
        let (mut buffer, question) = (vec![0; sizes.answer], vec![1; sizes.question]);
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = Instant::now();
            let mut stream = TcpStream::connect(address).map_err(failed())?;
            stream.set_nodelay(true).map_err(failed())?;
            for _ in 0..exchanges {
                stream.write_all(&question).map_err(failed())?;
                stream.read_exact(&mut buffer).map_err(failed())?;
            }
            times.push(start.elapsed());
        }
        finish(answering)?;
        Ok(times)
    })
}

fn finish(answering: std::thread::ScopedJoinHandle<'_, std::io::Result<()>>) -> Result<(), Error> {
    match answering.join() {
        Ok(result) => result.map_err(Error::io("answering raw bytes")),
        Err(_) => Err(Error::Failed("the answering thread gave up".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_times_as_rounds() {
        let sizes = Sizes {
            question: 900,
            answer: 1_300,
        };
        assert_eq!(udp(sizes, 3).map(|times| times.len()).ok(), Some(3));
        assert_eq!(tcp(sizes, 2, 3).map(|times| times.len()).ok(), Some(3));
    }
}
