//! A connection with or without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection with or without TLS.
#[derive(Debug)]
pub enum Stream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS, at the server end.
    Server(Box<tokio_rustls::server::TlsStream<TcpStream>>),
    /// With TLS, at the client end.
    Client(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl Stream {
    /// The underlying connection.
    #[must_use]
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Server(stream) => stream.get_ref().0,
            Self::Client(stream) => stream.get_ref().0,
        }
    }
}

impl Stream {
    /// The verified certificate of the client in DER, at the server end, if it has shown one.
    #[must_use]
    pub fn client_certificate(&self) -> Option<&[u8]> {
        let Self::Server(stream) = self else {
            return None;
        };
        let certificates = stream.get_ref().1.peer_certificates()?;
        certificates.first().map(|certificate| certificate.as_ref())
    }
}

/// Forwards a call to the variant.
macro_rules! on {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Plain($stream) => $call,
            Stream::Server($stream) => $call,
            Stream::Client($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, stream => Pin::new(stream).poll_shutdown(context))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on!(self, stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Server(stream) => stream.is_write_vectored(),
            Self::Client(stream) => stream.is_write_vectored(),
        }
    }
}
