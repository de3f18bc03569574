//! The floors of a latency: the cost of the loopback's sockets alone at the same sizes, and that of
//! the disk.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use chappe_log::{Disk as _, File};
use chappe_transport::FileDisk;

use crate::{Error, timing};

/// A question and its answer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) question: usize,
    pub(crate) answer: usize,
}

/// Bytes that no exchange is larger than.
const BUFFER: usize = 65_536;

/// Exchanges of one datagram in each direction, with a thread that only answers.
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
        let times = timing::each(rounds, |_| {
            here.send(&question).map_err(failed())?;
            here.recv(&mut buffer).map(drop).map_err(failed())
        })?;
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
        let times = timing::each(rounds, |_| {
            let mut stream = TcpStream::connect(address).map_err(failed())?;
            stream.set_nodelay(true).map_err(failed())?;
            for _ in 0..exchanges {
                stream.write_all(&question).map_err(failed())?;
                stream.read_exact(&mut buffer).map_err(failed())?;
            }
            Ok(())
        })?;
        finish(answering)?;
        Ok(times)
    })
}

/// Appends `bytes` bytes to one file per writer in `folder`, each followed by a sync and `pause`,
/// `rounds` times; returns the duration of each append with its sync.
pub(crate) fn syncs(
    folder: &Path,
    writers: usize,
    bytes: usize,
    pause: Duration,
    rounds: usize,
) -> Result<Vec<Duration>, Error> {
    let write = |writer: usize| {
        let path = folder.join(format!("floor-{writer}"));
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let (block, mut times) = (vec![1; bytes], Vec::with_capacity(rounds));
        for _ in 0..rounds {
            let start = Instant::now();
            file.write_all(&block)?;
            file.sync_data()?;
            times.push(start.elapsed());
            std::thread::sleep(pause);
        }
        std::fs::remove_file(&path)?;
        Ok(times)
    };
    std::thread::scope(|scope| {
        let writing: Vec<_> = (0..writers)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        let mut times = Vec::with_capacity(writers * rounds);
        for thread in writing {
            times.extend(finish(thread)?);
        }
        Ok(times)
    })
}

/// A file that is written as a node writes its log: appended to in reserved space, and synced.
///
/// Its times are a floor only next to those that they are compared with: on an idle processor, and next to other
/// programs, the same sync takes ten times as long. Therefore the caller takes one time between any two that it measures.
pub(crate) struct Synced {
    file: Box<dyn File>,
    block: Vec<u8>,
    bytes: u64,
}

impl Synced {
    /// Bytes that are reserved at once; reason: a segment of the log.
    const RESERVED: u64 = 64 << 20;

    /// A new file in a new folder, for appends of `block_bytes`.
    pub(crate) fn create(folder: &Path, block_bytes: usize) -> Result<Self, Error> {
        let failed = || Error::io("creating the file of the floor");
        let disk = FileDisk::open(folder).map_err(failed())?;
        let mut file = disk.create("floor").map_err(failed())?;
        file.reserve(Self::RESERVED);
        Ok(Self {
            file,
            block: vec![1; block_bytes],
            bytes: 0,
        })
    }

    /// The time of one append with its sync.
    pub(crate) fn once(&mut self) -> Result<Duration, Error> {
        let failed = || Error::io("syncing the file of the floor");
        let block_bytes = self.block.len() as u64;
        if self.bytes + block_bytes > Self::RESERVED {
            self.file.truncate(0).map_err(failed())?;
            self.file.reserve(Self::RESERVED);
            self.bytes = 0;
        }
        let start = Instant::now();
        self.file.append(&self.block).map_err(failed())?;
        self.file.sync().map_err(failed())?;
        self.bytes += block_bytes;
        Ok(start.elapsed())
    }
}

fn finish<T>(thread: std::thread::ScopedJoinHandle<'_, std::io::Result<T>>) -> Result<T, Error> {
    match thread.join() {
        Ok(result) => result.map_err(Error::io("measuring the cost of the system alone")),
        Err(_) => Err(Error::Failed("a thread of the floor panicked".to_owned())),
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

    #[test]
    fn a_floor_is_written_in_the_space_reserved_for_it() {
        let folder = crate::process::Folder::new("floor-synced").unwrap();
        let path = folder.path().join("floor");
        let mut floor = Synced::create(&path, 30 << 20).unwrap();
        for _ in 0..3 {
            floor.once().unwrap();
        }
        let length = std::fs::metadata(path.join("floor")).unwrap().len();
        assert_eq!(length, 30 << 20);
    }

    #[test]
    fn each_writer_syncs_as_often_as_told_and_leaves_nothing() {
        let folder = crate::process::Folder::new("floor-test").unwrap();
        let times = syncs(folder.path(), 2, 100, Duration::ZERO, 3).unwrap();
        assert_eq!(times.len(), 6);
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    }
}
