//! The origin's side of pushing: creates, renews and ends subscriptions by contact point.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use chappe_identity::Scheme;
use chappe_link::EPOCHS_MAX;
use chappe_stream::{Position, PositionError, StreamLog};
use chappe_transport::http::Client;
use chappe_transport::tls::{self, Fingerprint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use super::delivery::{Push, elements_for};
use super::kept::keeper;
use super::outflow::Outflow;
use super::subscriptions::{Destination, Subscription, limits};
use super::{
    Confirmation, Credential, SECRET_HEADER, SubscriptionAnswer, SubscriptionRequest, secret,
};
use crate::handle::Links;
use crate::host::KeptSubscription;
use crate::peers::Place;
use crate::{HttpRefusal, LinkKind, Reader};

/// A subscription that passed the checks.
pub(super) struct Wanted {
    log: StreamLog,
    after: Option<Position>,
    earlier: Vec<Position>,
    destination: Destination,
    place: Place,
}

impl Links {
    /// Creates a subscription by contact point, which has to return a token first. The caller has
    /// authorized `reader`; the reader's address determines which contact points it owns.
    ///
    /// # Errors
    /// An unknown stream, a contact point that is refused or does not confirm, or the limit of
    /// readers.
    pub async fn http_subscribe(
        &self,
        request: &SubscriptionRequest,
        reader: &Reader,
    ) -> Result<SubscriptionAnswer, HttpRefusal> {
        let wanted = self.wanted(request, reader)?;
        let source = reader.address.ok_or_else(no_address)?;
        self.confirm(&wanted.destination).await?;
        let host = &self.shared().host;
        let id = format!("{:016x}{:016x}", host.random(), host.random());
        let secret = secret::new(&**host);
        let from = (source, reader.account.clone());
        let after = self.begin(wanted, request, from, id.clone(), secret.clone());
        Ok(SubscriptionAnswer {
            after: Some(after.to_string()),
            ..self.answer(id, secret)
        })
    }

    /// Checks a request for a subscription.
    pub(super) fn wanted(
        &self,
        request: &SubscriptionRequest,
        reader: &Reader,
    ) -> Result<Wanted, HttpRefusal> {
        let shared = self.shared();
        shared.pushes.expire();
        let log = shared.host.stream(&request.stream, reader).ok_or_else(|| {
            let text = format!("there is no stream {:?}", request.stream);
            HttpRefusal::new(404, "unknown stream", text)
        })?;
        let no_position =
            |error: PositionError| HttpRefusal::new(400, "no position", error.to_string());
        let after = request.after.as_deref().map(str::parse).transpose();
        let after: Option<Position> = after.map_err(no_position)?;
        let earlier = request.earlier.iter().take(EPOCHS_MAX).map(|at| at.parse());
        let earlier: Vec<Position> = earlier.collect::<Result<_, _>>().map_err(no_position)?;
        let destination = self.destination(request, reader)?;
        if shared.pushes.lock().len() >= shared.config.subscriptions {
            let text = "the limit of subscriptions is reached";
            return Err(HttpRefusal::new(503, "too many readers", text));
        }
        let now = shared.host.now();
        let place = shared
            .peers
            .place(reader, LinkKind::HttpPush, &shared.config, now)
            .map_err(|error| HttpRefusal::new(503, "too many readers", error.to_string()))?;
        place.peer.reads(vec![request.stream.clone()]);
        Ok(Wanted {
            log,
            after,
            earlier,
            destination,
            place,
        })
    }

    /// Starts to push; returns the position after which it starts.
    pub(super) fn begin(
        &self,
        wanted: Wanted,
        request: &SubscriptionRequest,
        (reader, account): (SocketAddr, Option<String>),
        id: String,
        secret: String,
    ) -> Position {
        let shared = self.shared();
        let outflow = Outflow::new(
            &wanted.log,
            &request.stream,
            wanted.after,
            &wanted.earlier,
            request.start,
        );
        let after = outflow.begins();
        let kept = KeptSubscription {
            id: id.clone(),
            secret,
            stream: request.stream.clone(),
            contact_point: request.contact_point.clone(),
            fingerprint: request.fingerprint.clone(),
            reader,
            account,
            after,
            serialization: request.serialization,
        };
        let destination = wanted.destination;
        let push = Push {
            shared: shared.clone(),
            id: id.clone(),
            outflow,
            serialization: request.serialization,
            elements_max: elements_for(request.serialization, None),
            destination: destination.clone(),
            place: wanted.place,
        };
        // Inserted before its task looks it up.
        let mut subscriptions = shared.pushes.lock();
        let task = tokio::spawn(push.run()).abort_handle();
        let expires = Instant::now() + shared.config.lease;
        let subscription = Subscription {
            expires,
            task,
            kept,
            stream: wanted.log.name().to_owned(),
            destination,
        };
        subscriptions.insert(id, subscription);
        drop(subscriptions);
        shared.pushes.kept_by(|| keeper(shared));
        shared.pushes.news.notify_one();
        after
    }

    fn answer(&self, id: String, secret: String) -> SubscriptionAnswer {
        SubscriptionAnswer {
            id,
            secret,
            lease_s: self.shared().config.lease.as_secs(),
            after: None,
        }
    }

    /// Renews a subscription.
    ///
    /// # Errors
    /// An unknown or ended subscription, or a wrong secret.
    pub fn http_renew(
        &self,
        id: &str,
        credential: Credential<'_>,
    ) -> Result<SubscriptionAnswer, HttpRefusal> {
        let shared = self.shared();
        shared.pushes.expire();
        self.admit(id, credential)?;
        let mut subscriptions = shared.pushes.lock();
        let subscription = subscriptions.get_mut(id).ok_or_else(unknown)?;
        subscription.expires = Instant::now() + shared.config.lease;
        Ok(self.answer(id.to_owned(), subscription.kept.secret.clone()))
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// An unknown or ended subscription, or a wrong secret.
    pub fn http_end(&self, id: &str, credential: Credential<'_>) -> Result<(), HttpRefusal> {
        self.admit(id, credential)?;
        let removed = self.shared().pushes.remove(id);
        removed.ok_or_else(unknown)?.abort();
        Ok(())
    }

    /// Checks that the request is from the subscriber or the operator.
    fn admit(&self, id: &str, credential: Credential<'_>) -> Result<(), HttpRefusal> {
        let Credential::Secret(given) = credential else {
            return Ok(());
        };
        let shared = self.shared();
        {
            let subscriptions = shared.pushes.lock();
            let subscription = subscriptions.get(id).ok_or_else(unknown)?;
            if secret::is_equal(subscription.kept.secret.as_bytes(), given.as_bytes()) {
                return Ok(());
            }
        }
        let text = "the subscription's secret is missing or wrong";
        let reason = "wrong subscription secret";
        shared.host.dropped(reason, "", text.to_owned(), None);
        Err(HttpRefusal {
            hint: Some(format!(
                "send the header `{SECRET_HEADER}` with the `secret` of the answer that made the \
                 subscription, or this node's token"
            )),
            ..HttpRefusal::new(403, reason, text)
        })
    }

    /// The contact point of a request, if the policy allows it.
    fn destination(
        &self,
        request: &SubscriptionRequest,
        reader: &Reader,
    ) -> Result<Destination, HttpRefusal> {
        let host = &self.shared().host;
        let source = reader.address.ok_or_else(no_address)?;
        let refuse = |status, text: String, hint: Option<String>| {
            let reason = "contact point refused";
            host.dropped(reason, &reader.label(), text.clone(), hint.clone());
            HttpRefusal {
                hint,
                ..HttpRefusal::new(status, reason, text)
            }
        };
        let policy = host.address_policy();
        let contact = policy.check(&request.contact_point, source);
        let contact = contact.map_err(|error| refuse(403, error.to_string(), error.hint()))?;
        if contact.scheme == Scheme::Http {
            if !contact.address.ip().is_loopback() && !host.may_push_in_clear() {
                let text = format!("elements would travel to {} in clear text", contact.address);
                let hint = "use an https contact point with the fingerprint of its certificate; \
                            or access.insecure = true at the origin";
                return Err(refuse(403, text, Some(hint.to_owned())));
            }
            let client = self.shared().pushes.client();
            return Ok(Destination { contact, client });
        }
        let fingerprint = request.fingerprint.as_deref().unwrap_or_default();
        let fingerprint: Fingerprint = fingerprint.parse().map_err(|error| {
            let hint = "`fingerprint` is the SHA-256 of the certificate at an https contact point";
            refuse(400, format!("fingerprint: {error}"), Some(hint.to_owned()))
        })?;
        let tls = tls::Client::with_fingerprint(fingerprint);
        let client = Client::with_tls(limits(), tls);
        Ok(Destination { contact, client })
    }

    /// Requires the contact point to return a token that only it received.
    async fn confirm(&self, destination: &Destination) -> Result<(), HttpRefusal> {
        let Destination { contact, client } = destination;
        let shared = self.shared();
        let token = format!("{:016x}{:016x}", shared.host.random(), shared.host.random());
        let asked = Confirmation {
            confirm: token.clone(),
        };
        let body = serde_json::to_vec(&asked).unwrap_or_default();
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(CONTENT_TYPE, json);
        let answer = client
            .request(contact, Method::POST, headers, body.into())
            .await;
        let confirmed = match &answer {
            Ok(answer) if answer.status == StatusCode::OK => {
                // The response is not an echo of the request: a page that mirrors its input
                // confirms nothing.
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
            Ok(answer) => format!(
                "the contact point does not confirm (status {})",
                answer.status
            ),
            Err(error) => error.to_string(),
        };
        shared.host.dropped(
            "contact point not confirmed",
            // Without its path, which contains the secret.
            &contact.address.to_string(),
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

fn no_address() -> HttpRefusal {
    HttpRefusal::new(403, "contact point refused", "the requester has no address")
}

fn unknown() -> HttpRefusal {
    HttpRefusal::new(404, "unknown subscription", "there is no such subscription")
}
