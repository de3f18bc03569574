//! The subscriber's side of pushing: the contact point.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_stream::{StreamElement, StreamSchema};

use super::{Confirmation, SENT_AGAIN, Taken};
use crate::links::handle::Links;
use crate::links::inlet::{Arrival, Inlet, InletError, Pending};
use crate::links::link::Link;
use crate::links::serialization::{Document, Elements};
use crate::links::{HttpRefusal, Serialization};

/// How long what a full queue refused waits before it is given again.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// How often before the sender is asked to come again.
const BUSY_TRIES: usize = 250;
/// The same, of a stream that is being defined; reason: a definition takes two syncs at most, and five
/// seconds are less than a sender waits for its answer.
const DEFINING_TRIES: usize = 2_500;

/// The contact point of a link.
pub(crate) struct ContactPoint {
    /// Stands in its address: whoever knows it may send.
    secret: String,
    inlets: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Inlet>>>>,
}

impl ContactPoint {
    pub(crate) fn new(secret: String) -> Self {
        Self {
            secret,
            inlets: Mutex::default(),
        }
    }

    /// The path of its address.
    pub(super) fn path(&self, link: &str) -> String {
        format!("{}/{link}/{}", super::CONTACT_POINTS_PATH, self.secret)
    }

    /// The receiving end of a stream that was subscribed to.
    pub(super) fn inlet(&self, stream: &str) -> Option<Arc<tokio::sync::Mutex<Inlet>>> {
        let inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.get(stream).cloned()
    }

    /// The link ends: receiving ends hold it, and it holds them.
    pub(crate) fn close(&self) {
        let mut inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.clear();
    }

    /// This node does not take a stream, or the origin does not give it: its receiving end gives way
    /// to that of another link, and is made anew when it is subscribed to once more.
    pub(super) fn drop_inlet(&self, stream: &str) {
        let mut inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.remove(stream);
    }

    /// A stream is about to be subscribed to.
    pub(super) fn put(&self, stream: &str, inlet: Inlet) {
        let mut inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.insert(stream.to_owned(), Arc::new(tokio::sync::Mutex::new(inlet)));
    }
}

impl Links {
    /// A contact point of this node is given something: a question whether it wants elements, or
    /// documents. Returns when they are stored. Authorized by the secret in the path.
    ///
    /// # Errors
    /// There is no such contact point, or what came is not stored: 4xx for ever, 5xx for now.
    pub async fn http_take(
        &self,
        link: &str,
        secret: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<Taken, HttpRefusal> {
        let gone = || {
            HttpRefusal::new(
                404,
                "unknown contact point",
                "there is no such contact point",
            )
        };
        let link = self.link(link).map_err(|_| gone())?;
        let contact = link.contact.as_ref().ok_or_else(gone)?;
        let same = ring_eq(contact.secret.as_bytes(), secret.as_bytes());
        if !same {
            return Err(gone());
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
            HttpRefusal::new(415, "unknown media type", "xml, postcard or MessagePack")
        })?;
        let again = content_type.ends_with(SENT_AGAIN);
        take_documents(&link, contact, serialization, body, again).await?;
        Ok(Taken {
            status: 204,
            body: None,
        })
    }
}

/// Equal, in a time that does not depend on where they differ.
pub(super) fn ring_eq(one: &[u8], other: &[u8]) -> bool {
    let different = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && different == 0
}

async fn take_documents(
    link: &Arc<Link>,
    contact: &ContactPoint,
    serialization: Serialization,
    mut body: &[u8],
    again: bool,
) -> Result<(), HttpRefusal> {
    let held = body.len() as u64;
    while !body.trim_ascii().is_empty() {
        let (document, used) = serialization
            .decode(body)
            .map_err(|error| HttpRefusal::new(400, "malformed", error.to_string()))?;
        body = &body[used..];
        let Some(stream) = stream_of(&document) else {
            continue;
        };
        let inlet = contact.inlet(stream).ok_or_else(|| {
            HttpRefusal::new(
                404,
                "not subscribed",
                format!("{stream:?} is not wanted here"),
            )
        })?;
        let mut inlet = inlet.lock().await;
        if link.is_ended() {
            let text = "the link was removed";
            return Err(HttpRefusal::new(404, "not subscribed", text));
        }
        inlet.holds(held);
        let outcome = match document {
            Document::Elements(elements) if again => inlet.take_again(elements).await,
            other => apply(&mut inlet, other).await,
        };
        inlet.holds(0);
        match outcome {
            Ok(()) => {}
            Err(error @ InletError::UnknownSchema(_)) => {
                return Err(HttpRefusal::new(409, "unknown schema", error.to_string()));
            }
            Err(InletError::Misfit(why)) => {
                return Err(HttpRefusal::new(422, "does not fit", why));
            }
            Err(InletError::Link(error)) if error.is_of_stream() => {
                inlet.refused(&error.told());
                contact.drop_inlet(inlet.name());
                return Err(HttpRefusal::new(404, "not subscribed", error.to_string()));
            }
            Err(error) => {
                let host = &link.shared.host;
                let peer = &link.config.name;
                host.dropped("not stored", peer, error.to_string(), None);
                return Err(HttpRefusal::new(503, "not stored", error.to_string()));
            }
        }
    }
    Ok(())
}

/// The stream that a document is about.
pub(super) fn stream_of(document: &Document) -> Option<&str> {
    match document {
        Document::Structure(structure) => Some(&structure.stream),
        Document::Elements(elements) => Some(&elements.stream),
        Document::Lost(lost) => Some(&lost.stream),
        Document::Rollback(rollback) => Some(&rollback.stream),
        Document::Alive(_) => None,
    }
}

/// Gives the log the same again while its queue is full, or the stream is being defined.
pub(crate) async fn patiently(
    mut give: impl FnMut() -> Result<(), InletError>,
) -> Result<(), InletError> {
    let (mut busy, mut defining) = (0, 0);
    loop {
        match give() {
            Err(InletError::Busy) if busy < BUSY_TRIES => busy += 1,
            Err(InletError::Defining) if defining < DEFINING_TRIES => defining += 1,
            other => return other,
        }
        tokio::time::sleep(BUSY_PAUSE).await;
    }
}

/// Does what a document says; returns when its elements are stored. What does not fit becomes a dead
/// letter.
pub(crate) async fn apply(inlet: &mut Inlet, document: Document) -> Result<(), InletError> {
    let applied = apply_once(inlet, document).await;
    if applied.as_ref().is_err_and(InletError::is_taken_back) {
        inlet.resume().await?;
    }
    applied
}

async fn apply_once(inlet: &mut Inlet, document: Document) -> Result<(), InletError> {
    match document {
        Document::Structure(structure) => {
            patiently(|| inlet.structure(structure.version, &structure.schema)).await
        }
        Document::Elements(elements) => {
            let schema = inlet.schema(elements.schema).cloned();
            let schema = schema.ok_or(InletError::UnknownSchema(elements.schema))?;
            let (last, at_origin) = (elements.last, elements.schema);
            let arrivals = shaped(elements, &schema);
            let mut pending = VecDeque::new();
            let take = || inlet.take_elements(at_origin, arrivals.clone(), &mut pending);
            let taken = patiently(take).await;
            let newest = inlet.have().map(|have| have.sequence);
            let behind = last
                .zip(newest)
                .map(|(last, newest)| last.saturating_sub(newest));
            inlet.count(|stream| stream.status.lag_elements = behind.unwrap_or(0));
            if pending.is_empty() {
                // They were queued for a request that nobody waits for any more.
                return inlet.all_stored().await.and(taken);
            }
            // What was taken before an error is stored all the same.
            settle(inlet, pending).await.and(taken)
        }
        Document::Lost(lost) => {
            let sequence = lost.from;
            let from = chappe_stream::Position {
                epoch: lost.epoch,
                sequence,
            };
            patiently(|| inlet.told_lost(from, lost.next, lost.reason)).await
        }
        Document::Rollback(rollback) => {
            let Some(have) = inlet.have() else {
                return Ok(());
            };
            patiently(|| inlet.rollback(have, rollback.kept, rollback.next)).await
        }
        Document::Alive(after) => match after {
            Some(after) => patiently(|| inlet.begin(after)).await,
            None => Ok(()),
        },
    }
}

/// The elements of a document in the shape of their schema; those that have none are misfits, each by
/// itself.
fn shaped(elements: Elements, schema: &StreamSchema) -> Vec<Arrival> {
    if let Ok(shaped) = elements.clone().shape(schema) {
        return shaped.into_iter().map(Arrival::fitting).collect();
    }
    let Elements {
        names,
        elements: all,
        ..
    } = elements;
    let known: Vec<String> = schema.fields.iter().map(|it| it.name.clone()).collect();
    let one = |element: StreamElement| {
        let alone = Elements {
            names: names.clone(),
            elements: vec![element.clone()],
            ..Elements::default()
        };
        match alone.shape(schema) {
            Ok(mut shaped) => Arrival::fitting(shaped.pop().unwrap_or(element)),
            Err(error) => Arrival {
                names: Some(if names.is_empty() { &known } else { &names }.clone()),
                why: error.to_string(),
                element,
            },
        }
    };
    all.into_iter().map(one).collect()
}

/// Waits until everything has reached the disk.
pub(crate) async fn settle(inlet: &Inlet, pending: VecDeque<Pending>) -> Result<(), InletError> {
    for one in pending {
        let (Pending::Stored(position, appended) | Pending::Letter(position, _, appended)) = one;
        let count = u64::from(appended.count);
        appended.await.map_err(chappe_stream::StoreError::from)?;
        inlet.stored(position, count);
    }
    Ok(())
}
