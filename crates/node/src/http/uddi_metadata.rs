//! Metadata over SOAP 1.1, by the names of GRIMOIRES' interfaces.
//!
//! Requests, answers and faults are those of [`chappe_registry::metadata::message`]. The sender is the
//! account of the token that get_authToken gave (`authInfo`), or that of the HTTP request, for programs
//! that know no token. A request that changes nothing needs the role `read`, and others what publication
//! needs.

use std::net::{IpAddr, SocketAddr};

use axum::body::Bytes;
use axum::extract::{ConnectInfo, Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use chappe_identity::{Reach, Role};
use chappe_registry::Attempts;
use chappe_registry::metadata::Annotator;
use chappe_registry::metadata::message::{self, Message, Request};
use chappe_registry::uddi::message::fault_text;
use chappe_registry::uddi::{Error, ErrorCode};

use super::publish::room;
use super::uddi::{
    Outcome, address, faulty, limits, may_publish, no_audit_room, publisher, read, run, soap,
};
use crate::accounts::{Caller, Change};
use crate::clock;
use crate::registrar::key_bits;
use crate::shared::App;

/// The path of all interfaces.
pub(super) const PATH: &str = "/uddi/metadata";

/// The WSDL of the interfaces.
pub(super) async fn describe(State(app): State<App>, headers: HeaderMap) -> Response {
    let address = address(&app, &headers, PATH);
    soap(StatusCode::OK, message::wsdl(&address))
}

fn failed(app: &App, error: &Error) -> Response {
    faulty(fault_text(message::fault(error, &app.identity.name)))
}

/// Answers a request. Its change and the record of it complete even if the client disconnects meanwhile.
pub(super) async fn ask(State(app): State<App>, request: HttpRequest) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = peer.map(|ConnectInfo(peer)| peer.ip());
    let caller = request.extensions().get::<Caller>();
    let caller = caller.cloned().unwrap_or_default();
    let body = request.into_body();
    let of = app.clone();
    let running = tokio::spawn(async move {
        let bytes = read(&of, body).await?;
        let mut attempts = Attempts::default();
        loop {
            let (message, sender) = (bytes.clone(), caller.clone());
            let outcome = run(&of, &caller, move |app| {
                answer(app, &message, sender, address)
            });
            let mut outcome = outcome.await?;
            if outcome.is_settled(&of, &mut attempts).await {
                return outcome.recorded(&of).await;
            }
        }
    });
    match running.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => failed(&app, &error),
        Err(_) => failed(
            &app,
            &Error::new(ErrorCode::FatalError, "the request failed"),
        ),
    }
}

/// Reads a message and runs its request, without waiting for the disk.
fn answer(app: &App, bytes: &Bytes, caller: Caller, address: Option<IpAddr>) -> Outcome {
    let operator = &app.identity.name;
    let done = |answer| Outcome {
        answer,
        publication: None,
        change: None,
    };
    let received = match message::receive(bytes, limits(app), operator) {
        Ok(received) => received,
        Err(fault) => return done(Ok(faulty(fault_text(fault)))),
    };
    let caller = match &received.token {
        None => Ok(caller),
        Some(token) => publisher(app, Some(token), &caller),
    };
    let caller = match caller {
        Ok(caller) => caller,
        Err(error) => return done(Err(error)),
    };
    if received.request.is_change() {
        return change(app, &received, &caller, address);
    }
    if caller.reach(Role::Read) != Reach::All {
        let detail = "the request needs an account with the role read for the whole node";
        return done(Err(Error::new(ErrorCode::AuthTokenRequired, detail)));
    }
    let found = app
        .registry
        .metadata(&caller.reader())
        .answer(&received.request);
    done(found.map(|found| soap(StatusCode::OK, found.to_text(operator))))
}

fn change(app: &App, received: &Message, caller: &Caller, address: Option<IpAddr>) -> Outcome {
    if caller.is_anonymous() {
        let detail = "the authInfo is missing; get_authToken of /uddi/publish gives one";
        return Outcome::refused(Error::new(ErrorCode::AuthTokenRequired, detail));
    }
    let name = received.name;
    let record = |subject: String| Change {
        account: caller.name().to_owned(),
        address,
        operation: "uddi_metadata",
        method: "POST".to_owned(),
        path: PATH.to_owned(),
        subject: Some(subject),
        status: 0,
    };
    let begun = app
        .shares
        .begin_change(caller, record(String::new()).text_bytes());
    let charge = match begun {
        Ok(charge) => charge,
        Err(wait) => return Outcome::refused(no_audit_room(caller, wait)),
    };
    let done = may_publish(caller).and_then(|()| save(app, caller, &received.request));
    match done {
        Ok((key, response, publication)) => {
            let change = (record(format!("{name} {key}")), charge);
            Outcome::answered(app, response, publication, change)
        }
        Err(error) => {
            let subject = format!("{name} {}", error.code.as_str());
            Outcome::failed(app, caller, error, Some((record(subject), charge)))
        }
    }
}

type Saved = (String, Response, Option<chappe_registry::Publication>);

fn save(app: &App, caller: &Caller, request: &Request) -> Result<Saved, Error> {
    let random = key_bits();
    let mut random = random.map_err(|error| Error::new(ErrorCode::Busy, error.to_string()))?;
    let unix_ms = clock::now().0 / 1_000_000;
    let (name, reader) = (caller.name(), caller.reader());
    let author = Annotator::new(&app.registry, name, reader, unix_ms, &mut random);
    let changed = author.within(room(app, caller)).answer(request)?;
    let (key, answer) = changed.value;
    let text = answer.to_text(&app.identity.name);
    Ok((key, soap(StatusCode::OK, text), changed.publication))
}
