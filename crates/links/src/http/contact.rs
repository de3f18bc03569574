//! The subscriber's side of pushing: the contact point.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_stream::{StreamElement, StreamSchema};
use tokio::sync::OwnedMutexGuard;

use super::{Confirmation, SENT_AGAIN, Taken};
use crate::handle::Links;
use crate::inlet::{self, Arrival, Inlet, InletError, Pending};
use crate::link::Link;
use crate::serialization::{Document, Elements};
use crate::{HttpRefusal, Serialization};

/// How long what a full queue refused waits before it is given again.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// How often before the sender is asked to come again; reason: five seconds are several syncs of a slow
/// disk, and less than a sender waits for its answer.
const BUSY_TRIES: usize = 2_500;

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
    let mut taking: Option<Taking> = None;
    while !body.trim_ascii().is_empty() {
        let (document, used) = serialization
            .decode(body)
            .map_err(|error| HttpRefusal::new(400, "malformed", error.to_string()))?;
        body = &body[used..];
        let Some(stream) = stream_of(&document) else {
            continue;
        };
        if let Some(other) = taking.take_if(|it| it.inlet.replica().name() != stream) {
            let stored = finish(other, Ok(())).await;
            stored.map_err(|(error, name)| refusal(link, contact, &name, error))?;
        }
        let one = match &mut taking {
            Some(one) => one,
            none => none.insert(Taking::begin(link, contact, stream, held).await?),
        };
        let last = last_of(&document);
        let taken = match document {
            Document::Elements(elements) if again => one.inlet.take_again(elements).await,
            other => take(&mut one.inlet, other, &mut one.pending).await,
        };
        one.inlet.behind(last);
        if taken.is_err() {
            let Some(one) = taking else { break };
            let stored = finish(one, taken).await;
            return stored.map_err(|(error, name)| refusal(link, contact, &name, error));
        }
        // Those who ask meanwhile are answered between documents.
        tokio::task::yield_now().await;
    }
    let Some(one) = taking else { return Ok(()) };
    let stored = finish(one, Ok(())).await;
    stored.map_err(|(error, name)| refusal(link, contact, &name, error))
}

/// The receiving end of a stream while a request is taken, and what of it is on its way to the disk.
struct Taking {
    inlet: OwnedMutexGuard<Inlet>,
    pending: VecDeque<Pending>,
}

impl Taking {
    async fn begin(
        link: &Arc<Link>,
        contact: &ContactPoint,
        stream: &str,
        held: u64,
    ) -> Result<Self, HttpRefusal> {
        let inlet = contact.inlet(stream).ok_or_else(|| {
            let text = format!("{stream:?} is not wanted here");
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

impl Drop for Taking {
    fn drop(&mut self) {
        self.inlet.replica().holds(0);
    }
}

/// Waits until all that was taken is stored; then `taken` is the outcome. An error comes with the name
/// of its stream.
async fn finish(
    mut taking: Taking,
    taken: Result<(), InletError>,
) -> Result<(), (InletError, String)> {
    let pending = std::mem::take(&mut taking.pending);
    let stored = stored(&mut taking.inlet, pending, taken).await;
    stored.map_err(|error| (error, taking.inlet.replica().name().to_owned()))
}

/// What is answered when a document of `stream` is not stored.
fn refusal(link: &Link, contact: &ContactPoint, stream: &str, error: InletError) -> HttpRefusal {
    match error {
        InletError::UnknownSchema(_) => HttpRefusal::new(409, "unknown schema", error.to_string()),
        InletError::Misfit(why) => HttpRefusal::new(422, "does not fit", why),
        InletError::Link(error) if error.is_of_stream() => {
            inlet::refused(link, stream, &error.told());
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
            Err(InletError::Defining) if defining < BUSY_TRIES => defining += 1,
            other => return other,
        }
        tokio::time::sleep(BUSY_PAUSE).await;
    }
}

/// Does what a document says; returns when its elements are stored. What does not fit becomes a dead
/// letter.
pub(crate) async fn apply(inlet: &mut Inlet, document: Document) -> Result<(), InletError> {
    let mut pending = VecDeque::new();
    let taken = take(inlet, document, &mut pending).await;
    stored(inlet, pending, taken).await
}

/// Waits until what was taken is stored; then `taken` is the outcome.
async fn stored(
    inlet: &mut Inlet,
    pending: VecDeque<Pending>,
    taken: Result<(), InletError>,
) -> Result<(), InletError> {
    let stored = match pending.is_empty() {
        // They were queued for a request that nobody waits for any more.
        true => inlet.replica().all_stored().await,
        // What was taken before an error is stored all the same.
        false => settle(inlet, pending).await,
    };
    let outcome = stored.and(taken);
    if outcome.as_ref().is_err_and(InletError::is_taken_back) {
        inlet.resume().await?;
    }
    outcome
}

/// The number of the newest element at the origin, as a document of elements says it.
fn last_of(document: &Document) -> Option<u64> {
    match document {
        Document::Elements(elements) => elements
            .last
            .or_else(|| Some(elements.elements.last()?.position.sequence)),
        _ => None,
    }
}

/// Does what a document says, and appends to `pending` what of it is on its way to the disk, also before
/// an error. What does not fit becomes a dead letter.
pub(super) async fn take(
    inlet: &mut Inlet,
    document: Document,
    pending: &mut VecDeque<Pending>,
) -> Result<(), InletError> {
    match document {
        Document::Structure(structure) => {
            patiently(|| inlet.structure(structure.version, &structure.schema)).await
        }
        Document::Elements(elements) => {
            let schema = inlet.schema(elements.schema).cloned();
            let schema = schema.ok_or(InletError::UnknownSchema(elements.schema))?;
            let at_origin = elements.schema;
            let arrivals = shaped(elements, &schema);
            patiently(|| inlet.take_elements(at_origin, arrivals.clone(), pending)).await
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
        inlet.replica().stored(position, count);
    }
    Ok(())
}
