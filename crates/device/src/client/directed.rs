//! Probes sent by HTTP to one device, for networks that let no UDP through (DPWS 1.1, section 3).

use std::sync::Arc;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::{Content, Message, Probe};
use chappe_identity::Contact;
use chappe_transport::Hop;

use super::{Found, Search, Shared, learning};
use crate::Error;

const OPERATION: &str = "a Probe by HTTP";

/// Asks in each dialect until one is answered, and adds the devices in the answer to the list.
pub(super) async fn search(
    shared: &Arc<Shared>,
    contact: &Contact,
    search: &Search,
) -> Result<Vec<Found>, Error> {
    let mut failure = Error::NoAddress;
    for dialect in &shared.options.dialects {
        match probe(shared, contact, search, *dialect).await {
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

async fn probe(
    shared: &Shared,
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
    let message = Message {
        dialect,
        message_id: shared.message_id().into(),
        relates_to: None,
        to: Some(dialect.multicast_to().into()),
        // WS-Addressing 2004/08 requires it in requests.
        reply_to: Some(dialect.addressing().anonymous().into()),
        sequence: None,
        content: Content::Probe(Probe {
            types: types.collect(),
            scopes: search.scopes.iter().cloned().map(Into::into).collect(),
            match_by,
        }),
    };
    let asking = shared
        .ask(&shared.small, contact, &message.to_envelope(&[]), None)
        .await?;
    let unusable = |what: String| Error::Answer {
        operation: OPERATION,
        what,
    };
    let answer = asking
        .envelope
        .ok_or_else(|| unusable("it is empty".to_owned()))?;
    let answer = Message::from_envelope(&answer).map_err(|error| unusable(error.to_string()))?;
    if answer.relates_to.as_ref() != Some(&message.message_id) {
        return Err(unusable("it relates to another message".to_owned()));
    }
    let Content::ProbeMatches(targets) = answer.content else {
        return Err(unusable(format!("it is {}", answer.content.action())));
    };
    let found = |target| Found::new(target, answer.dialect, contact.address);
    Ok(targets.iter().map(found).collect())
}
