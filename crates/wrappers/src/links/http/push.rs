//! The origin's side of pushing: subscriptions by contact point.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use chappe_flow::ReconnectCommand;
use chappe_identity::Contact;
use chappe_stream::{Position, StreamSchema, encode_element};
use chappe_transport::http::{Client, ClientLimits};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::outflow::Outflow;
use super::{Confirmation, SubscriptionAnswer, SubscriptionRequest};
use crate::links::dead_letters::{DeadLetters, Letter, Reason};
use crate::links::dial::Again;
use crate::links::handle::{Links, Shared};
use crate::links::peers::Place;
use crate::links::serialization::{Document, Elements};
use crate::links::{HttpRefusal, LinkKind, Reader, Serialization};

/// Whose dead letters those of pushing are; no link may have this name.
pub(crate) const PUSH_LETTERS: &str = "http-push";
/// Elements of one request at most, where a request takes more than one.
const ELEMENTS_MAX: usize = 256;

/// The subscriptions that others have here.
pub(crate) struct Pushes {
    client: Client,
    subscriptions: Mutex<BTreeMap<String, Subscription>>,
}

struct Subscription {
    expires: Instant,
    task: AbortHandle,
}

impl Default for Pushes {
    fn default() -> Self {
        Self {
            client: Client::new(ClientLimits {
                body_bytes: 64 << 10,
                ..ClientLimits::default()
            }),
            subscriptions: Mutex::default(),
        }
    }
}

impl Pushes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Subscription>> {
        let subscriptions = self.subscriptions.lock();
        subscriptions.unwrap_or_else(PoisonError::into_inner)
    }

    fn expire(&self) {
        let now = Instant::now();
        self.lock().retain(|_, subscription| {
            let lives = subscription.expires > now && !subscription.task.is_finished();
            if !lives {
                subscription.task.abort();
            }
            lives
        });
    }

    /// Ends all.
    pub(crate) fn close(&self) {
        for (_, subscription) in std::mem::take(&mut *self.lock()) {
            subscription.task.abort();
        }
    }
}

impl Links {
    /// Makes a subscription by contact point, which has to give back a token first. `reader` was let
    /// in by the caller; its address says which contact points are its own.
    ///
    /// # Errors
    /// There is no such stream, the contact point is a stranger's or does not confirm, or there is no
    /// place for one more.
    pub async fn http_subscribe(
        &self,
        request: &SubscriptionRequest,
        reader: &Reader,
    ) -> Result<SubscriptionAnswer, HttpRefusal> {
        let shared = self.shared();
        shared.pushes.expire();
        let log = shared.host.stream(&request.stream, reader).ok_or_else(|| {
            let text = format!("there is no stream {:?}", request.stream);
            HttpRefusal::new(404, "unknown stream", text)
        })?;
        let after: Option<Position> = match request.after.as_deref().map(str::parse).transpose() {
            Ok(after) => after,
            Err(error) => return Err(HttpRefusal::new(400, "no position", format!("{error}"))),
        };
        let contact = self.check_contact(request, reader)?;
        if shared.pushes.lock().len() >= shared.config.subscriptions {
            let text = "there are as many subscriptions as allowed";
            return Err(HttpRefusal::new(503, "too many readers", text));
        }
        let now = shared.host.now();
        let place = shared
            .peers
            .place(reader, LinkKind::HttpPush, &shared.config, now)
            .map_err(|error| HttpRefusal::new(503, "too many readers", error.to_string()))?;
        place.peer.reads(vec![request.stream.clone()]);
        self.confirm(&contact).await?;
        let id = format!("{:016x}{:016x}", shared.host.random(), shared.host.random());
        let push = Push {
            shared: shared.clone(),
            id: id.clone(),
            outflow: Outflow::new(&log, after, request.start),
            serialization: request.serialization,
            contact,
            place,
        };
        let task = tokio::spawn(push.run()).abort_handle();
        let lease = shared.config.lease;
        let expires = Instant::now() + lease;
        let subscription = Subscription { expires, task };
        shared.pushes.lock().insert(id.clone(), subscription);
        let lease_s = lease.as_secs();
        Ok(SubscriptionAnswer { id, lease_s })
    }

    /// Renews a subscription.
    ///
    /// # Errors
    /// There is none (any more).
    pub fn http_renew(&self, id: &str) -> Result<SubscriptionAnswer, HttpRefusal> {
        let shared = self.shared();
        shared.pushes.expire();
        let mut subscriptions = shared.pushes.lock();
        let subscription = subscriptions.get_mut(id).ok_or_else(unknown)?;
        subscription.expires = Instant::now() + shared.config.lease;
        Ok(SubscriptionAnswer {
            id: id.to_owned(),
            lease_s: shared.config.lease.as_secs(),
        })
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// There is none (any more).
    pub fn http_end(&self, id: &str) -> Result<(), HttpRefusal> {
        let removed = self.shared().pushes.lock().remove(id);
        removed.ok_or_else(unknown)?.task.abort();
        Ok(())
    }

    fn check_contact(
        &self,
        request: &SubscriptionRequest,
        reader: &Reader,
    ) -> Result<Contact, HttpRefusal> {
        let shared = self.shared();
        let source = reader.address.ok_or_else(|| {
            HttpRefusal::new(403, "contact point refused", "the asker has no address")
        })?;
        let policy = shared.host.address_policy();
        policy
            .check(&request.contact_point, source)
            .map_err(|refusal| {
                let (text, hint) = (refusal.to_string(), refusal.hint());
                let host = &shared.host;
                host.dropped(
                    "contact point refused",
                    &reader.label(),
                    text.clone(),
                    hint.clone(),
                );
                HttpRefusal {
                    hint,
                    ..HttpRefusal::new(403, "contact point refused", text)
                }
            })
    }

    /// Asks the contact point whether it wants this: it gives back a token that only it was told.
    async fn confirm(&self, contact: &Contact) -> Result<(), HttpRefusal> {
        let shared = self.shared();
        let token = format!("{:016x}{:016x}", shared.host.random(), shared.host.random());
        let asked = Confirmation {
            confirm: token.clone(),
        };
        let body = serde_json::to_vec(&asked).unwrap_or_default();
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(CONTENT_TYPE, json);
        let client = &shared.pushes.client;
        let answer = client
            .request(contact, Method::POST, headers, body.into())
            .await;
        let confirmed = match &answer {
            Ok(answer) if answer.status == StatusCode::OK => {
                // Not an echo of the question: a page that mirrors what it is sent confirms nothing.
                let found: Result<BTreeMap<String, String>, _> =
                    serde_json::from_slice(&answer.body);
                found.is_ok_and(|it| it.len() == 1 && it.get("confirmed") == Some(&token))
            }
            _ => false,
        };
        if confirmed {
            return Ok(());
        }
        let text = match answer {
            Ok(answer) => format!("{contact} does not confirm (status {})", answer.status),
            Err(error) => error.to_string(),
        };
        shared.host.dropped(
            "contact point not confirmed",
            &contact.to_string(),
            text.clone(),
            None,
        );
        Err(HttpRefusal {
            hint: Some(
                "a contact point answers {\"confirm\": T} with {\"confirmed\": T}".to_owned(),
            ),
            ..HttpRefusal::new(422, "contact point not confirmed", text)
        })
    }
}

fn unknown() -> HttpRefusal {
    HttpRefusal::new(404, "unknown subscription", "there is no such subscription")
}

/// One subscription at work.
struct Push {
    shared: Arc<Shared>,
    id: String,
    outflow: Outflow,
    serialization: Serialization,
    contact: Contact,
    place: Place,
}

/// What a contact point did with a request.
enum Outcome {
    Stored,
    /// It will never take this.
    Refused(String),
    /// It does not know the schema.
    UnknownSchema,
    /// It does not want anything any more.
    Gone,
    /// Perhaps later.
    Later(String),
}

impl Push {
    async fn run(mut self) {
        let most = match self.serialization {
            Serialization::Xml => 1,
            _ => ELEMENTS_MAX,
        };
        let mut again = Again::new(self.shared.host.random());
        again.wait(ReconnectCommand::Start).await;
        while let Ok(outgoing) = self.outflow.next(most).await {
            self.shared.pushes.expire();
            if let Some(structure) = outgoing.structure {
                let bytes = self.encode(&structure, &outgoing.schema);
                if let Ok(bytes) = bytes
                    && !self
                        .deliver(bytes, None, &outgoing.schema, &mut again)
                        .await
                {
                    break;
                }
            }
            let bytes = match self.encode(&outgoing.document, &outgoing.schema) {
                Ok(bytes) => bytes,
                Err(why) => {
                    if let Document::Elements(elements) = &outgoing.document {
                        self.bury(elements, &outgoing.schema, &why).await;
                    }
                    continue;
                }
            };
            let elements = match &outgoing.document {
                Document::Elements(elements) => Some(elements),
                _ => None,
            };
            if !self
                .deliver(bytes, elements, &outgoing.schema, &mut again)
                .await
            {
                break;
            }
        }
        self.shared.pushes.lock().remove(&self.id);
    }

    fn encode(&self, document: &Document, schema: &StreamSchema) -> Result<Bytes, String> {
        let mut bytes = Vec::new();
        match self.serialization.encode(document, schema, &mut bytes) {
            Ok(()) => Ok(bytes.into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends until it is stored or refused; false: the subscription is at its end.
    async fn deliver(
        &mut self,
        bytes: Bytes,
        elements: Option<&Elements>,
        schema: &StreamSchema,
        again: &mut Again,
    ) -> bool {
        let count = elements.map_or(0, |elements| elements.elements.len() as u64);
        let mut structure_sent = false;
        loop {
            match self.send(bytes.clone()).await {
                Outcome::Stored => {
                    self.place.peer.add(count, count, 0);
                    again.tell(ReconnectCommand::Worked(1));
                    again.tell(ReconnectCommand::Connected);
                    return true;
                }
                Outcome::UnknownSchema if !structure_sent => {
                    structure_sent = true;
                    let structure = self.outflow.structure();
                    if let Ok(bytes) = self.encode(&structure, schema) {
                        let _ = self.send(bytes).await;
                    }
                }
                Outcome::UnknownSchema => {
                    self.outflow.forget_structure();
                    self.refused(elements, schema, "the schema is not known there")
                        .await;
                    return true;
                }
                Outcome::Refused(why) => {
                    self.refused(elements, schema, &why).await;
                    return true;
                }
                Outcome::Gone => return false,
                Outcome::Later(why) => {
                    tracing::debug!(contact = %self.contact, why, "to be sent again");
                    again.wait(ReconnectCommand::Failed).await;
                }
            }
        }
    }

    async fn send(&self, bytes: Bytes) -> Outcome {
        let mut headers = HeaderMap::new();
        let media_type = HeaderValue::from_static(self.serialization.media_type());
        headers.insert(CONTENT_TYPE, media_type);
        let client = &self.shared.pushes.client;
        let answer = client
            .request(&self.contact, Method::PUT, headers, bytes)
            .await;
        let status = match answer {
            Err(error) => return Outcome::Later(error.to_string()),
            Ok(answer) => answer.status,
        };
        match status.as_u16() {
            200..=299 => Outcome::Stored,
            404 | 410 => Outcome::Gone,
            409 => Outcome::UnknownSchema,
            401 | 403 | 408 | 425 | 429 => Outcome::Later(format!("status {status}")),
            400..=499 => Outcome::Refused(format!("status {status}")),
            _ => Outcome::Later(format!("status {status}")),
        }
    }

    async fn refused(&self, elements: Option<&Elements>, schema: &StreamSchema, why: &str) {
        if let Some(elements) = elements {
            self.bury(elements, schema, why).await;
        }
    }

    /// What the contact point refuses is kept among the dead letters of pushing.
    async fn bury(&self, elements: &Elements, schema: &StreamSchema, why: &str) {
        let count = elements.elements.len() as u64;
        self.place.peer.add(count, 0, count);
        for element in &elements.elements {
            let letter = Letter {
                stream: elements.stream.clone(),
                origin: None,
                reason: Reason::Schema,
                text: format!("refused by {}: {why}", self.contact),
                received: self.shared.host.now(),
                source_time: element.source_time,
                schema: schema.clone(),
                record: encode_element(element, 0).unwrap_or_default(),
            };
            let put = self.letters().and_then(|letters| letters.put(letter));
            let stored = match put {
                Ok(appended) => appended.await.is_ok(),
                Err(_) => false,
            };
            if !stored {
                let (peer, detail) = (self.contact.to_string(), why.to_owned());
                let host = &self.shared.host;
                host.dropped("refused by a contact point", &peer, detail, None);
            }
        }
    }

    fn letters(&self) -> Result<DeadLetters, crate::links::LinkError> {
        DeadLetters::named(&self.shared.store, PUSH_LETTERS, LETTERS_MAX)
    }
}

/// Dead letters of pushing that are kept; as of a link.
pub(crate) const LETTERS_MAX: u64 = 10_000;
