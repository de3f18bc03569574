//! The delivery of one subscription by contact point: elements in order, each until it is stored
//! there or refused; and refused elements that an operator sends again.

use std::sync::Arc;

use bytes::Bytes;
use chappe_flow::ReconnectCommand;
use chappe_identity::Contact;
use chappe_stream::{Position, StoreError, StreamSchema};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method};

use super::outflow::Outflow;
use super::subscriptions::Destination;
use super::{CONTACT_ELEMENTS_MAX, ELEMENTS_MAX_HEADER, SENT_AGAIN};
use crate::dead_letters::{Letter, Refused, fit, record_of};
use crate::dial::RetryTimer;
use crate::handle::Links;
use crate::peers::Place;
use crate::serialization::{
    Document, Elements, SchemaId, SchemaRef, SerializationError, Structure,
};
use crate::shared::Shared;
use crate::{DeadLetterReason, LinkError, Reader, Serialization};

/// Most elements of one request, where a request takes more than one.
const ELEMENTS_MAX: usize = CONTACT_ELEMENTS_MAX;

/// One subscription at work.
pub(super) struct Push {
    pub(super) shared: Arc<Shared>,
    pub(super) id: String,
    pub(super) outflow: Outflow,
    pub(super) serialization: Serialization,
    pub(super) destination: Destination,
    pub(super) place: Place,
    /// Most elements of the next request.
    pub(super) elements_max: usize,
}

/// The outcome of a request to a contact point.
enum Outcome {
    /// Stored; with the largest number of elements in a request, if the response has one.
    Stored(Option<usize>),
    /// It will never take this.
    Refused(DeadLetterReason, String),
    /// It does not know the schema.
    UnknownSchema,
    /// The contact point has unsubscribed.
    Unsubscribed,
    /// A retry may succeed.
    Later(String),
}

impl Push {
    pub(super) async fn run(mut self) {
        let mut retry = RetryTimer::new(self.shared.host.random());
        retry.wait(ReconnectCommand::Start).await;
        while let Ok(outgoing) = self.outflow.next(self.elements_max).await {
            self.shared.pushes.expire();
            let schema = &outgoing.schema;
            if let Some(structure) = outgoing.structure
                && let Ok(bytes) = encode(self.serialization, &structure, schema)
                && !self.deliver(bytes, None, schema, &mut retry).await
            {
                break;
            }
            let (delivered, reached) = match &outgoing.document {
                Document::Elements(elements) => {
                    let last = elements.elements.last().map(|it| it.position);
                    let delivered = self.deliver_elements(elements, schema, &mut retry).await;
                    (delivered, last)
                }
                other => {
                    let reached = match other {
                        Document::Lost(lost) => Some(Position {
                            epoch: lost.epoch,
                            sequence: lost.next.saturating_sub(1),
                        }),
                        _ => None,
                    };
                    let delivered = match encode(self.serialization, other, schema) {
                        Ok(bytes) => self.deliver(bytes, None, schema, &mut retry).await,
                        Err(_) => true,
                    };
                    (delivered, reached)
                }
            };
            if !delivered {
                break;
            }
            if let Some(reached) = reached {
                self.shared.pushes.reached(&self.id, reached);
            }
        }
        self.shared.pushes.remove(&self.id);
    }

    /// Sends elements until they are stored or refused; returns false when the subscription has
    /// ended.
    async fn deliver_elements(
        &mut self,
        elements: &Elements,
        schema: &StreamSchema,
        retry: &mut RetryTimer,
    ) -> bool {
        match encode_elements(self.serialization, elements, schema) {
            Ok(bytes) => self.deliver(bytes, Some(elements), schema, retry).await,
            Err(_) if elements.elements.len() > 1 => {
                self.deliver_halves(elements, schema, retry).await
            }
            Err(error) => {
                let reason = match error {
                    SerializationError::Limit { .. } => DeadLetterReason::TooLarge,
                    _ => DeadLetterReason::Schema,
                };
                let why = error.to_string();
                self.store_dead_letters(Some(elements), schema, reason, &why, retry)
                    .await
            }
        }
    }

    /// Sends the halves separately, because a refusal of several elements may concern only some of
    /// them.
    async fn deliver_halves(
        &mut self,
        elements: &Elements,
        schema: &StreamSchema,
        retry: &mut RetryTimer,
    ) -> bool {
        let (first, second) = elements.elements.split_at(elements.elements.len() / 2);
        for half in [first, second] {
            let half = elements.with(half);
            if !Box::pin(self.deliver_elements(&half, schema, retry)).await {
                return false;
            }
        }
        true
    }

    /// Sends until the bytes are stored or refused; returns false when the subscription has ended.
    async fn deliver(
        &mut self,
        bytes: Bytes,
        elements: Option<&Elements>,
        schema: &StreamSchema,
        retry: &mut RetryTimer,
    ) -> bool {
        let count = elements.map_or(0, |elements| elements.elements.len() as u64);
        let newest = elements.and_then(|it| Some(it.elements.last()?.position.sequence));
        let mut structure_sent = false;
        loop {
            if let Some(newest) = newest {
                let lag = self.outflow.elements_after(newest) + count;
                self.place.peer.behind(lag, count);
            }
            let outcome = self.send(bytes.clone()).await;
            if let Some(newest) = newest {
                self.place
                    .peer
                    .behind(self.outflow.elements_after(newest), 0);
                if matches!(outcome, Outcome::Stored(_)) {
                    self.place.peer.has(self.outflow.name(), newest);
                }
            }
            match outcome {
                Outcome::Stored(elements_max) => {
                    self.elements_max = elements_for(self.serialization, elements_max);
                    self.place.peer.add(count, count, 0);
                    retry.report(ReconnectCommand::Worked(1));
                    retry.report(ReconnectCommand::Connected);
                    return true;
                }
                Outcome::UnknownSchema if !structure_sent => {
                    structure_sent = true;
                    let structure = self.outflow.structure();
                    let Ok(bytes) = encode(self.serialization, &structure, schema) else {
                        continue;
                    };
                    match self.send(bytes).await {
                        Outcome::Unsubscribed => return false,
                        Outcome::Later(why) => {
                            structure_sent = false;
                            self.wait(&why, 0, retry).await;
                        }
                        _ => {}
                    }
                }
                Outcome::UnknownSchema => {
                    self.outflow.forget_structure();
                    let why = "the contact point does not know the schema";
                    return self
                        .store_dead_letters(elements, schema, DeadLetterReason::Schema, why, retry)
                        .await;
                }
                Outcome::Refused(reason, why) => {
                    if let Some(several) = elements.filter(|it| it.elements.len() > 1) {
                        return self.deliver_halves(several, schema, retry).await;
                    }
                    return self
                        .store_dead_letters(elements, schema, reason, &why, retry)
                        .await;
                }
                Outcome::Unsubscribed => return false,
                Outcome::Later(why) => {
                    // The contact point may have forgotten the structure by then.
                    structure_sent = false;
                    self.wait(&why, count, retry).await;
                }
            }
        }
    }

    /// Waits before `count` elements, or the structure, are sent again.
    async fn wait(&self, why: &str, count: u64, retry: &mut RetryTimer) {
        tracing::debug!(contact = %self.destination.contact.address, why, "to be sent again");
        self.place.peer.again(count);
        retry.wait(ReconnectCommand::Failed).await;
    }

    async fn send(&self, bytes: Bytes) -> Outcome {
        put(&self.destination, self.serialization.media_type(), bytes).await
    }

    /// Stores refused elements as dead letters of pushing; returns when they are stored. While the
    /// log's queue is full the subscription waits, since its cursor then moves past these elements.
    ///
    /// Returns false when the log has stopped: nothing can be stored, and the cursor must not move.
    async fn store_dead_letters(
        &self,
        elements: Option<&Elements>,
        schema: &StreamSchema,
        reason: DeadLetterReason,
        why: &str,
        retry: &mut RetryTimer,
    ) -> bool {
        let Some(elements) = elements else {
            return true;
        };
        let count = elements.elements.len() as u64;
        for element in &elements.elements {
            let letter = Letter {
                stream: elements.stream.clone(),
                origin: Some(element.position),
                reason,
                // Without the path, which contains the secret.
                text: format!("refused by {}: {why}", self.destination.contact.address),
                received: self.shared.host.now(),
                source_time: element.source_time,
                schema: schema.clone(),
                record: record_of(element),
            };
            let contact = self.destination.contact.to_string();
            let refused = Refused { letter, contact };
            loop {
                let error = match self.store_letter(refused.clone()).await {
                    Ok(()) => break,
                    Err(error) => error,
                };
                match Unstored::of(&error) {
                    Unstored::Stopped => return false,
                    Unstored::Never => {
                        let (peer, detail) = (
                            self.destination.contact.address.to_string(),
                            error.to_string(),
                        );
                        let host = &self.shared.host;
                        host.dropped("dead letter too large", &peer, detail, None);
                        break;
                    }
                    Unstored::Later => {
                        tracing::debug!(%error, "a dead letter waits");
                        self.place.peer.again(0);
                        retry.wait(ReconnectCommand::Failed).await;
                    }
                }
            }
        }
        self.place.peer.add(count, 0, count);
        retry.report(ReconnectCommand::Worked(1));
        retry.report(ReconnectCommand::Connected);
        true
    }

    async fn store_letter(&self, refused: Refused) -> Result<(), LinkError> {
        let appended = self.shared.push_letters()?.put_refused(refused)?;
        appended.await.map_err(StoreError::from)?;
        Ok(())
    }
}

/// Why a dead letter was not stored.
enum Unstored {
    /// The queue or the disk is full: it can be stored later.
    Later,
    /// It is larger than a record may be.
    Never,
    /// The log has stopped.
    Stopped,
}

impl Unstored {
    fn of(error: &LinkError) -> Self {
        use chappe_log::Error as Log;
        match error {
            LinkError::Store(StoreError::Log(Log::Failed { .. } | Log::Closed)) => Self::Stopped,
            LinkError::Store(StoreError::Log(Log::TooLarge { .. })) | LinkError::Unsupported(_) => {
                Self::Never
            }
            _ => Self::Later,
        }
    }
}

impl Links {
    /// Sends a dead letter of pushing again, over the current subscription of its contact point.
    pub(crate) async fn push_again(&self, number: u64) -> Result<(), LinkError> {
        let shared = self.shared();
        let letters = shared.push_letters()?;
        let Refused { letter, contact } = letters.refused(number)?;
        let still = |why: String| LinkError::StillDead { number, why };
        let was = Contact::parse(&contact, 0).map_err(|error| still(error.to_string()))?;
        shared.pushes.expire();
        let live = shared.pushes.destination(&letter.stream, &was);
        let (destination, serialization) = live.ok_or_else(|| {
            let (stream, address) = (&letter.stream, was.address);
            still(format!(
                "no contact point at {address} is subscribed to {stream:?}"
            ))
        })?;
        let address = destination.contact.address;
        let reader = Reader {
            address: Some(address),
            key: None,
            account: None,
        };
        let log = shared.host.stream(&letter.stream, &reader);
        let log = log.ok_or_else(|| still(format!("there is no stream {:?}", letter.stream)))?;
        let schema = log.schema();
        let mut element = letter.element().map_err(still)?;
        let values = std::mem::take(&mut element.values);
        element.values = fit(&letter.schema, values, &schema).map_err(still)?;
        element.position = letter.origin.unwrap_or_default();
        let version = log.schema_version();
        let id = SchemaId::of(&schema);
        let document = Document::Elements(Elements {
            stream: letter.stream.clone(),
            schema: SchemaRef { id, version },
            elements: vec![element],
            ..Elements::default()
        });
        let structure = Document::Structure(Structure {
            stream: letter.stream,
            version,
            schema: schema.clone(),
        });
        let encoded = |document| {
            let bytes = encode(serialization, document, &schema);
            bytes.map_err(|error| still(error.to_string()))
        };
        let media_type = serialization.media_type();
        // The contact point most likely knows it, but this node cannot tell.
        put(&destination, media_type, encoded(&structure)?).await;
        let media_type = format!("{media_type}{SENT_AGAIN}");
        match put(&destination, &media_type, encoded(&document)?).await {
            Outcome::Stored(_) => letters.sent_again(number).await,
            Outcome::Refused(_, why) | Outcome::Later(why) => {
                Err(still(format!("{address} answers: {why}")))
            }
            Outcome::UnknownSchema => Err(still(format!("{address} does not know the schema"))),
            Outcome::Unsubscribed => Err(still(format!("{address} has ended its subscription"))),
        }
    }
}

/// The largest number of elements of a request that the contact point accepts.
pub(super) fn elements_for(serialization: Serialization, limit: Option<usize>) -> usize {
    match serialization {
        Serialization::Xml => limit.unwrap_or(1).clamp(1, ELEMENTS_MAX),
        _ => ELEMENTS_MAX,
    }
}

/// Elements as the documents of one request; in XML each element is a document.
fn encode_elements(
    serialization: Serialization,
    elements: &Elements,
    schema: &StreamSchema,
) -> Result<Bytes, SerializationError> {
    let each = match serialization {
        Serialization::Xml => 1,
        _ => ELEMENTS_MAX,
    };
    let mut bytes = Vec::new();
    for some in elements.elements.chunks(each) {
        let document = Document::Elements(elements.with(some));
        serialization.encode(&document, schema, &mut bytes)?;
    }
    Ok(bytes.into())
}

fn encode(
    serialization: Serialization,
    document: &Document,
    schema: &StreamSchema,
) -> Result<Bytes, SerializationError> {
    let mut bytes = Vec::new();
    serialization.encode(document, schema, &mut bytes)?;
    Ok(bytes.into())
}

async fn put(destination: &Destination, media_type: &str, bytes: Bytes) -> Outcome {
    let Destination { contact, client } = destination;
    let mut headers = HeaderMap::new();
    if let Ok(media_type) = HeaderValue::from_str(media_type) {
        headers.insert(CONTENT_TYPE, media_type);
    }
    let answer = client.request(contact, Method::PUT, headers, bytes).await;
    let elements_max;
    let status = match answer {
        Err(error) => return Outcome::Later(error.to_string()),
        Ok(answer) => {
            let most = answer.headers.get(ELEMENTS_MAX_HEADER);
            let most = most.and_then(|most| most.to_str().ok()?.parse().ok());
            elements_max = most;
            answer.status
        }
    };
    let text = format!("status {status}");
    match status.as_u16() {
        200..=299 => Outcome::Stored(elements_max),
        404 | 410 => Outcome::Unsubscribed,
        409 => Outcome::UnknownSchema,
        401 | 403 | 408 | 425 | 429 => Outcome::Later(text),
        413 => Outcome::Refused(DeadLetterReason::TooLarge, text),
        400..=499 => Outcome::Refused(DeadLetterReason::Schema, text),
        _ => Outcome::Later(text),
    }
}
