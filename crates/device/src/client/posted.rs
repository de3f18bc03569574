//! Messages that devices post to the server of notifications: judged, parsed and handed to the event sink.

use std::sync::{Arc, PoisonError, Weak};

use chappe_dpws::eventing::SinkRefusal;
use chappe_dpws::exchange::{self, Reply};
use chappe_identity::CertificateName;
use chappe_soap::Envelope;
use chappe_transport::http::{Request, Response};
use chappe_transport::signatures::{NotAdmitted, Signing};
use chappe_transport::{Hop, ParserEnded, Parsers};

use super::Shared;
use super::subscription::Sink;
use crate::http::{limits_for, response};

/// Answers a request to the server of notifications.
pub(super) async fn receive(shared: &Weak<Shared>, request: Request) -> Response {
    let Some(shared) = shared.upgrade() else {
        return response(&Reply::UNAVAILABLE);
    };
    let sink = {
        let sinks = shared.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sinks = sinks.by_dialect.values().map(|(sink, _)| sink);
        let is_below = |sink: &&Arc<Sink>| {
            let rest = request.path.strip_prefix(sink.path);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        sinks.find(is_below).map(Arc::clone)
    };
    let Some(sink) = sink else {
        return response(&Reply::NOT_FOUND);
    };
    let signing = shared.options.event_signing.clone();
    let key = sink.subscription_at(&request.path).await;
    // A short message that needs no signature goes on to the machine, which answers with the reason.
    let is_costly = signing.is_some() || Parsers::is_large(request.body.len());
    if key.is_none() && is_costly {
        let (peer, detail) = (request.peer.ip(), format!("{:?}", SinkRefusal::Path));
        let reason = "notification refused";
        shared.drops.record(Hop::Event, reason, peer, detail, None);
        return response(&Reply::NOT_FOUND);
    }
    let signer = key.and_then(|key| sink.signer(key));
    let read = match read(&shared, &request, signing, signer).await {
        Ok(Ok(envelope)) => envelope,
        Err(_) => return response(&Reply::UNAVAILABLE),
        Ok(Err(error)) => {
            let (peer, detail) = (request.peer.ip(), error.to_string());
            let drops = &shared.drops;
            drops.record(Hop::Event, "signature", peer, detail, None);
            let fault = exchange::unrelated_fault(&error.fault(), shared.message_id());
            return response(&Reply::message(fault));
        }
    };
    let envelope = match read {
        Ok(envelope) => envelope,
        Err(error) => {
            let (peer, detail) = (request.peer.ip(), error.to_string());
            let reason = "notification is not a message";
            shared.drops.record(Hop::Event, reason, peer, detail, None);
            return response(&exchange::unreadable(&error, shared.message_id()));
        }
    };
    let (peer, path) = ((request.peer, &shared.drops), (request.path, key));
    let Some(reply) = sink.post(peer, path, envelope).await else {
        let (peer, reason) = (request.peer.ip(), "notification after the end");
        let drops = &shared.drops;
        drops.record(Hop::Event, reason, peer, String::new(), None);
        return response(&Reply::UNAVAILABLE);
    };
    response(&reply)
}

/// The message in a request, if it is admitted: that of SOAP, or what was signed of it.
async fn read(
    shared: &Shared,
    request: &Request,
    signing: Option<Signing>,
    signer: Option<CertificateName>,
) -> Result<Result<Result<Envelope, chappe_soap::Error>, NotAdmitted>, ParserEnded> {
    let limits = limits_for(&shared.options.http);
    let (body, bytes) = (request.body.clone(), request.body.len());
    let parsers = shared.http.parsers();
    let Some(signing) = signing else {
        let parsing = move || Ok(Envelope::parse_within(&body, limits));
        return parsers.run_if_large(bytes, parsing).await;
    };
    // One for another sink could be sent to this one.
    let address = format!("{}{}", request.base(), request.path);
    // It may wait for the disk.
    let judging = move || {
        let received = signing.receive(&body, limits, vec![address], signer.as_ref());
        received.map(|received| received.envelope)
    };
    parsers.run(judging).await
}
