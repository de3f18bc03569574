//! Files from and to a node, of any length.

use std::io::{Read, Write};

use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::{NodeClient, Reply, failure};
use crate::output::{self, Failure};

/// Bytes of one piece; two are in memory.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes between two reports of progress.
const REPORT_BYTES: u64 = 16 << 20;

impl NodeClient {
    /// Writes the answer of a GET to a file; its length in bytes.
    pub(crate) async fn download(&self, path: &str, to: &mut dyn Write) -> Result<u64, Failure> {
        let response = self.send(Method::GET, path, "*/*", None).await?;
        let mut body = response.into_body();
        let (mut bytes, mut reported) = (0_u64, 0);
        while let Some(frame) = body.frame().await {
            // A connection that closes early must not look like a whole file.
            let frame = frame.map_err(|error| {
                Failure::new(format!("the file is incomplete: {error}")).coded("answer_incomplete")
            })?;
            if let Ok(data) = frame.into_data() {
                to.write_all(&data)?;
                bytes += data.len() as u64;
                progress(bytes, &mut reported);
            }
        }
        to.flush()?;
        Ok(bytes)
    }

    /// Posts a file, and gets a JSON document.
    pub(crate) async fn upload(
        &self,
        path: &str,
        content_type: &str,
        mut from: impl Read + Send + 'static,
    ) -> Result<Value, Failure> {
        let (sender, receiver) = mpsc::channel::<std::io::Result<Bytes>>(1);
        let reading = tokio::task::spawn_blocking(move || {
            let (mut bytes, mut reported) = (0_u64, 0);
            loop {
                let mut piece = vec![0; PIECE_BYTES];
                let read = from.read(&mut piece);
                let piece = match read {
                    Ok(0) => return,
                    Ok(length) => {
                        piece.truncate(length);
                        bytes += length as u64;
                        progress(bytes, &mut reported);
                        Ok(Bytes::from(piece))
                    }
                    Err(error) => Err(error),
                };
                let is_error = piece.is_err();
                if sender.blocking_send(piece).is_err() || is_error {
                    return;
                }
            }
        });
        let pieces = ReceiverStream::new(receiver).map(|piece| piece.map(Frame::data));
        let stream = self.connect().await?;
        let (mut connection, task) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(task);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("host", &self.authority)
            .header("accept", "application/json")
            .header("content-type", content_type);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(StreamBody::new(pieces))?;
        let reply = Reply::of(connection.send_request(request).await?).await?;
        reading.await?;
        match reply.status {
            200..300 => Ok(reply.body),
            _ => Err(failure(&reply)),
        }
    }
}

fn progress(bytes: u64, reported: &mut u64) {
    if bytes - *reported >= REPORT_BYTES {
        *reported = bytes;
        output::progress(format_args!("{} MiB", bytes >> 20));
    }
}
