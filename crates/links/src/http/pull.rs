//! The origin's side of pulling: a response that never ends.

use std::sync::Arc;

use bytes::Bytes;
use chappe_stream::{Position, StoreError, StreamSchema};

use super::PullRequest;
use super::outflow::Outflow;
use crate::handle::Links;
use crate::peers::Place;
use crate::serialization::{Document, Elements, Lost};
use crate::shared::Shared;
use crate::{HttpRefusal, LinkKind, LinkStart, LossReason, Reader, Serialization};

/// Most elements of one document; reason: small documents spread the work.
const ELEMENTS_MAX: usize = 256;

/// The body of an endless response. Dropping it ends the pull.
pub struct PullBody {
    shared: Arc<Shared>,
    outflow: Outflow,
    serialization: Serialization,
    place: Place,
    /// The reader wants only new elements, and has not received its start position.
    begins: bool,
}

impl Links {
    /// Responds to a request for an endless response. The caller has authorized `reader`.
    ///
    /// # Errors
    /// An unknown stream, or the limit of readers.
    pub fn http_pull(
        &self,
        request: &PullRequest,
        reader: &Reader,
    ) -> Result<PullBody, HttpRefusal> {
        let shared = self.shared();
        let log = shared.host.stream(&request.stream, reader).ok_or_else(|| {
            let text = format!("there is no stream {:?}", request.stream);
            HttpRefusal::new(404, "unknown stream", text)
        })?;
        let now = shared.host.now();
        let place = shared
            .peers
            .place(reader, LinkKind::HttpPull, &shared.config, now)
            .map_err(|error| HttpRefusal::new(503, "too many readers", error.to_string()))?;
        place.peer.reads(vec![request.stream.clone()]);
        Ok(PullBody {
            shared: shared.clone(),
            outflow: Outflow::new(
                &log,
                &request.stream,
                request.after,
                &request.earlier,
                request.start,
            ),
            serialization: request.serialization.unwrap_or(Serialization::Xml),
            place,
            begins: request.after.is_none() && request.start == LinkStart::New,
        })
    }
}

impl PullBody {
    /// The media type.
    #[must_use]
    pub const fn media_type(&self) -> &'static str {
        self.serialization.media_type()
    }

    /// The next part: whole documents. `None`: the stream cannot be read any more.
    pub async fn next(&mut self) -> Option<Bytes> {
        let keep_alive = self.shared.config.keep_alive;
        let mut bytes = Vec::new();
        if std::mem::take(&mut self.begins) {
            let begins = Document::Alive(Some(self.outflow.begins()));
            self.encode(&begins, &Default::default(), &mut bytes);
            return Some(bytes.into());
        }
        match tokio::time::timeout(keep_alive, self.outflow.next(ELEMENTS_MAX)).await {
            Err(_) => {
                self.encode(&Document::Alive(None), &Default::default(), &mut bytes);
            }
            Ok(Ok(outgoing)) => {
                if let Some(structure) = &outgoing.structure {
                    self.encode(structure, &outgoing.schema, &mut bytes);
                }
                match outgoing.document {
                    Document::Elements(mut elements) => {
                        let count = elements.elements.len() as u64;
                        let newest = elements.elements.last();
                        let newest = newest.map(|it| it.position.sequence);
                        let behind = newest.map_or(0, |it| self.outflow.elements_after(it));
                        // Each in a document of its own, or all in one.
                        let each = match self.serialization {
                            Serialization::Xml => 1,
                            _ => ELEMENTS_MAX,
                        };
                        let mut rest = std::mem::take(&mut elements.elements).into_iter();
                        while rest.len() > 0 {
                            elements.elements = rest.by_ref().take(each).collect();
                            self.encode_elements(&elements, &outgoing.schema, &mut bytes);
                        }
                        self.place.peer.add(count, 0, 0);
                        self.place.peer.behind(behind, 0);
                        if let Some(newest) = newest {
                            self.place.peer.has(self.outflow.name(), newest);
                        }
                    }
                    other => {
                        self.encode(&other, &outgoing.schema, &mut bytes);
                    }
                }
            }
            Ok(Err(error)) => {
                if !matches!(error, StoreError::Log(chappe_log::Error::Closed)) {
                    tracing::warn!(stream = self.outflow.name(), %error, "pull ended");
                }
                return None;
            }
        }
        Some(bytes.into())
    }

    /// Encodes elements; those that do not fit a document of this serialization are sent as lost.
    fn encode_elements(&self, elements: &Elements, schema: &StreamSchema, bytes: &mut Vec<u8>) {
        if self.encode(&Document::Elements(elements.clone()), schema, bytes) {
            return;
        }
        for element in &elements.elements {
            let one = Document::Elements(Elements {
                elements: vec![element.clone()],
                ..elements.clone()
            });
            if elements.elements.len() > 1 && self.encode(&one, schema, bytes) {
                continue;
            }
            let Position { epoch, sequence } = element.position;
            let lost = Document::Lost(Lost {
                stream: elements.stream.clone(),
                epoch,
                from: sequence,
                next: sequence + 1,
                reason: LossReason::TooLarge,
            });
            self.encode(&lost, schema, bytes);
        }
    }

    /// Encodes a document if it fits its serialization; otherwise `bytes` is unchanged.
    fn encode(&self, document: &Document, schema: &StreamSchema, bytes: &mut Vec<u8>) -> bool {
        let before = bytes.len();
        let encoded = self.serialization.encode(document, schema, bytes);
        if let Err(error) = &encoded {
            bytes.truncate(before);
            let host = &self.shared.host;
            host.dropped("too large to pull", "", error.to_string(), None);
        }
        encoded.is_ok()
    }
}
