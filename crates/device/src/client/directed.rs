//! Probes sent by HTTP: to one device, for networks that let no UDP through (DPWS 1.1, section 3), and to
//! discovery proxies.

use std::sync::Arc;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::{Content, Message, Probe};
use chappe_identity::{Contact, Refusal, Scheme};
use chappe_transport::Hop;
use chappe_transport::http::Client;

use super::{Found, Search, Shared, learning};
use crate::Error;

const OPERATION: &str = "a request of discovery by HTTP";

/// Asks in each dialect until one is answered, and adds the devices in the answer to the list.
pub(super) async fn search(
    shared: &Arc<Shared>,
    contact: &Contact,
    search: &Search,
) -> Result<Vec<Found>, Error> {
    if contact.scheme == Scheme::Http && !shared.options.plain {
        let (address, refusal) = (contact.to_string(), Refusal::Plain);
        return Err(Error::Refused { address, refusal });
    }
    let mut failure = Error::NoAddress;
    for dialect in &shared.options.dialects {
        match probe(shared, &shared.small, contact, search, *dialect).await {
            Ok(found) => {
                for device in &found {
                    learning::learn(shared, device.clone()).await;
                }
                return Ok(found);
            }
            Err(error) => {
                shared.note(Hop::Discovery, &contact.address.ip().to_string(), &error);
                failure = error;
            }
        }
    }
    Err(failure)
}

pub(super) async fn probe(
    shared: &Shared,
    http: &Client,
    contact: &Contact,
    search: &Search,
    dialect: Dialect,
) -> Result<Vec<Found>, Error> {
    let Some(match_by) = search.match_by.attribute(dialect) else {
        let name = search.match_by.uri(Dialect::V2009);
        return Err(Error::Misuse(format!(
            "the 2005 dialect has no rule {name}"
        )));
    };
    let types = search.types.iter().map(|name| dialect.translate(name));
    let probe = Content::Probe(Probe {
        types: types.collect(),
        scopes: search.scopes.iter().cloned().map(Into::into).collect(),
        match_by,
    });
    match exchange(shared, http, contact, dialect, probe).await? {
        Content::ProbeMatches(targets) => {
            let found = |target| Found::new(target, dialect, contact.address);
            Ok(targets.iter().map(found).collect())
        }
        other => Err(unusable(format!("it is {}", other.action()))),
    }
}

fn unusable(what: String) -> Error {
    Error::Answer {
        operation: OPERATION,
        what,
    }
}

/// Sends a request of discovery by HTTP, and returns the content of the answer.
pub(super) async fn exchange(
    shared: &Shared,
    http: &Client,
    contact: &Contact,
    dialect: Dialect,
    content: Content,
) -> Result<Content, Error> {
    let message = Message {
        dialect,
        message_id: shared.message_id().into(),
        relates_to: None,
        to: Some(dialect.multicast_to().into()),
        // WS-Addressing 2004/08 requires it in requests.
        reply_to: Some(dialect.addressing().anonymous().into()),
        sequence: None,
        content,
    };
    let request = message.to_envelope(&[]);
    let asking = shared.ask(http, contact, &request, None).await?;
    let answer = asking
        .envelope
        .ok_or_else(|| unusable("it is empty".to_owned()))?;
    let answer = Message::from_envelope(&answer).map_err(|error| unusable(error.to_string()))?;
    if answer.relates_to.as_ref() != Some(&message.message_id) {
        return Err(unusable("it relates to another message".to_owned()));
    }
    Ok(answer.content)
}
