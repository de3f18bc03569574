//! The subscriber's side of pushing: requests to a contact point.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::contact_point::ContactPoint;
use super::{Confirmation, SENT_AGAIN, Taken};
use crate::documents::{last_of, stored, stream_of, take};
use crate::handle::Links;
use crate::inlet::{self, Inlet, InletError, Pending};
use crate::link::Link;
use crate::serialization::Document;
use crate::{HttpRefusal, Serialization};

impl Links {
    /// Handles a request to a contact point of this node: a confirmation, or documents. Returns
    /// when they are stored. The secret in the path authorizes the request.
    ///
    /// # Errors
    /// An unknown contact point, or documents that are not stored: 4xx if permanent, 5xx if a retry
    /// can succeed.
    pub async fn http_take(
        &self,
        link: &str,
        secret: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<Taken, HttpRefusal> {
        let unknown = || {
            HttpRefusal::new(
                404,
                "unknown contact point",
                "this address is not a contact point of this node",
            )
        };
        let link = self.link(link).map_err(|_| unknown())?;
        let contact = link.contact.as_ref().ok_or_else(unknown)?;
        if !contact.is_secret(secret) {
            return Err(unknown());
        }
        link.live().bytes_received += body.len() as u64;
        if content_type.starts_with("application/json") {
            let asked: Confirmation = serde_json::from_slice(body)
                .map_err(|error| HttpRefusal::new(400, "malformed", error.to_string()))?;
            let confirmed = BTreeMap::from([("confirmed", asked.confirm)]);
            return Ok(Taken {
                status: 200,
                body: serde_json::to_string(&confirmed).ok(),
            });
        }
        let serialization = Serialization::of_media_type(content_type).ok_or_else(|| {
            HttpRefusal::new(
                415,
                "unknown media type",
                "the media type has to be XML, postcard or MessagePack",
            )
        })?;
        let again = content_type.ends_with(SENT_AGAIN);
        take_documents(&link, contact, serialization, body, again).await?;
        Ok(Taken {
            status: 204,
            body: None,
        })
    }
}

async fn take_documents(
    link: &Arc<Link>,
    contact: &ContactPoint,
    serialization: Serialization,
    mut body: &[u8],
    again: bool,
) -> Result<(), HttpRefusal> {
    let held = body.len() as u64;
    let mut delivery: Option<Delivery> = None;
    while !body.trim_ascii().is_empty() {
        let (document, used) = serialization
            .decode(body)
            .map_err(|error| HttpRefusal::new(400, "malformed", error.to_string()))?;
        body = &body[used..];
        let Some(stream) = stream_of(&document) else {
            continue;
        };
        if let Some(other) = delivery.take_if(|it| it.inlet.replica().name() != stream) {
            let stored = finish(other, Ok(())).await;
            stored.map_err(|(error, name)| refusal(link, contact, &name, error))?;
        }
        let one = match &mut delivery {
            Some(one) => one,
            none => none.insert(Delivery::begin(link, contact, stream, held).await?),
        };
        let last = last_of(&document);
        let taken = match document {
            Document::Elements(elements) if again => one.inlet.store_resent(elements).await,
            other => take(&mut one.inlet, other, &mut one.pending).await,
        };
        one.inlet.note_newest(last);
        if taken.is_err() {
            let Some(one) = delivery else { break };
            let stored = finish(one, taken).await;
            return stored.map_err(|(error, name)| refusal(link, contact, &name, error));
        }
        // Other tasks run between documents.
        tokio::task::yield_now().await;
    }
    let Some(one) = delivery else { return Ok(()) };
    let stored = finish(one, Ok(())).await;
    stored.map_err(|(error, name)| refusal(link, contact, &name, error))
}

/// The receiving end of a stream during one request, with its batches queued in the log.
struct Delivery {
    inlet: OwnedMutexGuard<Inlet>,
    pending: VecDeque<Pending>,
}

impl Delivery {
    async fn begin(
        link: &Arc<Link>,
        contact: &ContactPoint,
        stream: &str,
        held: u64,
    ) -> Result<Self, HttpRefusal> {
        let inlet = contact.inlet(stream).ok_or_else(|| {
            let text = format!("{stream:?} is not subscribed to here");
            HttpRefusal::new(404, "not subscribed", text)
        })?;
        let inlet = inlet.lock_owned().await;
        if link.is_ended() {
            let text = "the link was removed";
            return Err(HttpRefusal::new(404, "not subscribed", text));
        }
        inlet.replica().holds(held);
        Ok(Self {
            inlet,
            pending: VecDeque::new(),
        })
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.inlet.replica().holds(0);
    }
}

/// Waits until everything queued is stored; then returns `taken`. An error includes the name of its
/// stream.
async fn finish(
    mut delivery: Delivery,
    taken: Result<(), InletError>,
) -> Result<(), (InletError, String)> {
    let pending = std::mem::take(&mut delivery.pending);
    let stored = stored(&mut delivery.inlet, pending, taken).await;
    stored.map_err(|error| (error, delivery.inlet.replica().name().to_owned()))
}

/// The response when a document of `stream` is not stored.
fn refusal(link: &Link, contact: &ContactPoint, stream: &str, error: InletError) -> HttpRefusal {
    match error {
        InletError::UnknownSchema(_) => HttpRefusal::new(409, "unknown schema", error.to_string()),
        InletError::Misfit(why) => HttpRefusal::new(422, "does not fit", why),
        InletError::Link(error) if error.is_of_stream() => {
            inlet::refused(link, stream, &error.with_hint());
            contact.drop_inlet(stream);
            HttpRefusal::new(404, "not subscribed", error.to_string())
        }
        error => {
            let host = &link.shared.host;
            host.dropped("not stored", &link.config.name, error.to_string(), None);
            HttpRefusal::new(503, "not stored", error.to_string())
        }
    }
}
