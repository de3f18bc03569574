//! Frames of a bounded size: the library collects a frame of any announced length, up to 4 GiB, before it looks at it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use opcua_client::transport::{
    Connector, RequestRecv, SecureChannelState, StreamConnection, StreamConnector, StreamTransport,
    TransportConfiguration,
};
use opcua_core::comms::tcp_codec::TcpCodec;
use opcua_types::{DecodingOptions, EndpointDescription, Error, StatusCode};
use tokio::io::{AsyncRead, ReadBuf, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio_util::codec::FramedRead;

/// Largest frame that the client accepts, and names in its first message: what most servers send.
pub(super) const FRAME_BYTES_MAX: usize = 65_536;
/// Bytes of the header of a frame: a type of three letters, a letter for its place in a message, and its size (part 6,
/// section 7.1.2.2).
const HEADER_BYTES: usize = 8;

/// Follows the frames in a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Frames {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that are there.
    have: usize,
    /// Bytes of the frame that follow.
    left: usize,
}

impl Frames {
    /// Takes bytes of the stream.
    ///
    /// # Errors
    /// The size of a frame that is none.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), usize> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            bytes = rest;
            self.header[self.have] = *first;
            self.have += 1;
            if self.have == HEADER_BYTES {
                let [.., a, b, c, d] = self.header;
                let size = u32::from_le_bytes([a, b, c, d]) as usize;
                // A frame of the header alone would never end: the library waits for one byte more.
                if !(HEADER_BYTES + 1..=FRAME_BYTES_MAX).contains(&size) {
                    return Err(size);
                }
                self.have = 0;
                self.left = size - HEADER_BYTES;
            }
        }
        Ok(())
    }
}

/// A reader that fails at a frame beyond the limit.
pub(super) struct Bounded<R> {
    reader: R,
    frames: Frames,
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(context, buffer))?;
        let taken = self.frames.take(&buffer.filled()[before..]);
        Poll::Ready(taken.map_err(|size| {
            let text = format!("a frame of {size} bytes; the limit is {FRAME_BYTES_MAX}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        }))
    }
}

type Reader = Bounded<ReadHalf<TcpStream>>;
type Writer = WriteHalf<TcpStream>;

/// Connects to a server, and keeps the state of its channel.
pub(super) struct Connect {
    /// The address as the server's clients write it.
    pub(super) url: String,
    /// Host and port.
    pub(super) place: String,
    /// The state of the channel, once there is one.
    pub(super) state: Mutex<Option<Arc<SecureChannelState>>>,
}

impl Connector for Connect {
    type Transport = StreamTransport<Reader, Writer>;

    async fn connect(
        &self,
        channel: Arc<SecureChannelState>,
        outgoing: RequestRecv,
        limits: TransportConfiguration,
    ) -> Result<Self::Transport, Error> {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(channel.clone());
        let place = self.place.clone();
        let open = move |url: String, options: DecodingOptions| open(place.clone(), url, options);
        let connector = StreamConnector::new(open, self.url.clone());
        connector.connect(channel, outgoing, limits).await
    }

    fn default_endpoint(&self) -> EndpointDescription {
        EndpointDescription::from(self.url.as_str())
    }
}

async fn open(
    place: String,
    url: String,
    options: DecodingOptions,
) -> Result<StreamConnection<Reader, Writer>, Error> {
    let stream = TcpStream::connect(place).await;
    let stream =
        stream.map_err(|error| Error::new(StatusCode::BadConnectionClosed, error.to_string()))?;
    let (reader, writer) = split(stream);
    let reader = Bounded {
        reader,
        frames: Frames::default(),
    };
    let codec = TcpCodec::new(options);
    Ok(StreamConnection::new(
        FramedRead::new(reader, codec),
        writer,
        url,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(size: u32) -> Vec<u8> {
        let mut bytes = b"MSGF".to_vec();
        bytes.extend(size.to_le_bytes());
        bytes.resize((size as usize).clamp(8, 70_000), 0);
        bytes
    }

    #[test]
    fn a_frame_that_is_too_large_is_refused_at_its_header() {
        let mut frames = Frames::default();
        assert_eq!(frames.take(&frame(65_536)), Ok(()));
        assert_eq!(frames.take(&frame(65_537)[..8]), Err(65_537));
        for size in [0, 8, u32::MAX] {
            assert_eq!(Frames::default().take(&frame(size)), Err(size as usize));
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(sizes in proptest::collection::vec(9..400_u32, 1..9), piece in 1..50_usize) {
            let bytes: Vec<u8> = sizes.iter().flat_map(|size| frame(*size)).collect();
            let mut frames = Frames::default();
            for piece in bytes.chunks(piece) {
                prop_assert_eq!(frames.take(piece), Ok(()));
            }
            prop_assert_eq!((frames.left, frames.have), (0, 0));
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Frames::default().take(&bytes);
        }
    }
}
