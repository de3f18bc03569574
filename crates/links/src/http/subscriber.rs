//! The subscriber's side of both HTTP kinds: requests to the origin, with retries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_flow::ReconnectCommand;
use chappe_stream::Position;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout_at};

use super::request::{Origin, OriginRequest, detail, unwanted};
use super::storing::Storing;
use super::{SubscriptionAnswer, SubscriptionRequest};
use crate::dial::RetryTimer;
use crate::directory;
use crate::documents::stream_of;
use crate::inlet::{self, Inlet, InletError};
use crate::link::Link;
use crate::serialization::{DOCUMENT_BYTES_MAX, SerializationError};
use crate::session::ConnectionError;
use crate::{LinkError, LinkStart, LinkState, Selection, Serialization};

/// Silence after which an endless response counts as broken: three times the origin's keep-alive.
const SILENCE_MAX: Duration = Duration::from_secs(45);

fn plain(text: impl Into<String>) -> ConnectionError {
    ConnectionError {
        text: text.into(),
        hint: None,
    }
}

/// A subscription at the origin.
struct Made {
    id: String,
    secret: String,
    /// The time of its renewal.
    renew: Instant,
}

impl Made {
    fn of(answer: SubscriptionAnswer) -> Self {
        // After a third of the lease, so that two renewals may fail.
        let lease = Duration::from_secs((answer.lease_s / 3).clamp(1, 3_600));
        Self {
            id: answer.id,
            secret: answer.secret,
            renew: Instant::now() + lease,
        }
    }
}

/// Why a stream is not received.
enum Ended {
    /// The origin or this node refuses it; the link's other streams continue.
    Refused(String),
    /// The connection or the origin failed.
    Down(ConnectionError),
}

impl Ended {
    /// The meaning of an unsuccessful response. An origin without room for another reader refuses
    /// this stream only, unless the response is from a proxy.
    fn of(status: StatusCode, body: &[u8]) -> Self {
        let error = unwanted(status, body);
        match status {
            StatusCode::NOT_FOUND => Self::Refused(error.text),
            StatusCode::SERVICE_UNAVAILABLE if detail(body).is_some() => Self::Refused(error.text),
            _ => Self::Down(error),
        }
    }
}

impl From<ConnectionError> for Ended {
    fn from(error: ConnectionError) -> Self {
        Self::Down(error)
    }
}

impl From<InletError> for Ended {
    fn from(error: InletError) -> Self {
        match error {
            InletError::Link(error) => error.into(),
            error => Self::Down(plain(error.to_string())),
        }
    }
}

impl From<LinkError> for Ended {
    fn from(error: LinkError) -> Self {
        match error.is_of_stream() {
            true => Self::Refused(error.with_hint()),
            false => Self::Down(plain(error.to_string())),
        }
    }
}

/// The origin's streams that the link selects; those selected by name whether they exist or not.
async fn selected(link: &Link, origin: &Origin) -> Result<Vec<String>, ConnectionError> {
    let mut names = Vec::new();
    let selections = link
        .config
        .selections()
        .map_err(|error| plain(error.to_string()))?;
    for selection in selections {
        match &selection {
            Selection::Exact(name) => names.push(name.clone()),
            Selection::Prefix(prefix) => {
                let word = Serialization::Postcard.as_str();
                let path = format!(
                    "{}?streams={prefix}*&serialization={word}",
                    super::DIRECTORY_PATH
                );
                let (status, body) = origin.ask(OriginRequest::get(path)).await?;
                if status != StatusCode::OK {
                    return Err(unwanted(status, &body));
                }
                let structures = directory::read(&body, Serialization::Postcard);
                let structures = structures.map_err(|error| plain(error.to_string()))?;
                let streams = structures.into_iter().map(|structure| structure.stream);
                names.extend(streams.filter(|name| link.config.takes(&selection, name)));
            }
        }
    }
    names.retain(|name| {
        let fits = chappe_stream::check_name(&link.config.local_name(name)).is_ok();
        if !fits {
            inlet::refused(link, name, "its name is not valid here");
        }
        fits
    });
    names.sort();
    names.dedup();
    for name in names.iter().skip(link.config.limits.streams) {
        let why = "the link has as many streams as its limit allows";
        inlet::refused(link, name, why);
    }
    names.truncate(link.config.limits.streams);
    Ok(names)
}

/// Runs a pull link until it is removed.
pub(crate) async fn pull_link(link: Arc<Link>) {
    let origin = match Origin::of(&link.config) {
        Ok(origin) => origin,
        Err(error) => return link.disconnected(error.to_string(), error.hint()),
    };
    let mut pulls = JoinSet::new();
    let mut pulled: BTreeMap<String, AbortHandle> = BTreeMap::new();
    let period = Duration::from_secs(link.config.limits.directory_s.max(1));
    loop {
        match selected(&link, &origin).await {
            Ok(names) => {
                // Without a stream, the response of the directory shows that the origin works.
                if names.is_empty() {
                    link.connected();
                }
                pulled.retain(|name, pull| {
                    let wanted = names.contains(name);
                    if !wanted {
                        pull.abort();
                    }
                    wanted
                });
                while pulls.try_join_next().is_some() {}
                for name in names {
                    pulled.entry(name).or_insert_with_key(|name| {
                        let pull = pull_stream(link.clone(), origin.clone(), name.clone());
                        pulls.spawn(pull)
                    });
                }
            }
            Err(error) => link.disconnected(error.text, error.hint),
        }
        tokio::time::sleep(period).await;
    }
}

/// Pulls one stream, with retries.
async fn pull_stream(link: Arc<Link>, origin: Origin, name: String) {
    let mut retry = RetryTimer::new(link.shared.host.random());
    retry.wait(ReconnectCommand::Start).await;
    loop {
        match pull_once(&link, &origin, &name, &mut retry).await {
            Ok(()) => link.disconnected("the origin ended the response".to_owned(), None),
            Err(Ended::Refused(why)) => inlet::refused(&link, &name, &why),
            Err(Ended::Down(error)) => link.disconnected(error.text, error.hint),
        }
        retry.wait(ReconnectCommand::Failed).await;
    }
}

async fn pull_once(
    link: &Arc<Link>,
    origin: &Origin,
    name: &str,
    retry: &mut RetryTimer,
) -> Result<(), Ended> {
    let inlet = Inlet::new(link, name).await?;
    let serialization = link.config.serialization();
    let begin = match (inlet.have(), link.config.start) {
        (Some(have), _) => {
            let earlier = inlet.earlier();
            let earlier: Vec<String> = earlier.iter().map(Position::to_string).collect();
            match earlier.is_empty() {
                true => format!("after={have}"),
                false => format!("after={have}&earlier={}", earlier.join(",")),
            }
        }
        (None, LinkStart::First) => "start=first".to_owned(),
        (None, LinkStart::New) => "start=new".to_owned(),
    };
    let word = serialization.as_str();
    let path = format!(
        "{}/{name}?{begin}&serialization={word}",
        super::STREAMS_PATH
    );
    let answer = origin.send(OriginRequest::get(path)).await?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => {
            link.connected();
            let (status, body) = origin.whole(answer).await?;
            return Err(Ended::of(status, &body));
        }
        _ => {
            let (status, body) = origin.whole(answer).await?;
            return Err(Ended::of(status, &body));
        }
    }
    retry.report(ReconnectCommand::Connected);
    link.connected();
    read(
        link,
        serialization,
        answer.into_body(),
        Storing::new(inlet),
        retry,
    )
    .await
}

/// Reads an endless response, and stores its elements while more is read.
async fn read(
    link: &Link,
    serialization: Serialization,
    mut body: Incoming,
    mut storing: Storing,
    retry: &mut RetryTimer,
) -> Result<(), Ended> {
    let window = link.config.limits.stream_window_bytes;
    let mut buffer: Vec<u8> = Vec::new();
    let mut heard = Instant::now();
    loop {
        let has_room = storing.has_room(window);
        let frame = tokio::select! {
            biased;
            stored = storing.stored() => {
                stored?;
                // Without room the connection was not read, so silence does not count.
                heard = if has_room { heard } else { Instant::now() };
                continue;
            }
            frame = timeout_at(heard + SILENCE_MAX, body.frame()), if has_room => frame,
        };
        let frame = match frame.map_err(|_| plain("the origin is silent"))? {
            None => return Ok(()),
            Some(frame) => frame.map_err(|error| plain(error.to_string()))?,
        };
        heard = Instant::now();
        let Ok(data) = frame.into_data() else {
            continue;
        };
        link.live().bytes_received += data.len() as u64;
        retry.report(ReconnectCommand::Worked(1));
        buffer.extend_from_slice(&data);
        storing.waits(buffer.len());
        let used = take_ready(&mut storing, serialization, &buffer).await?;
        buffer.drain(..used);
        storing.waits(buffer.len());
    }
}

/// Handles the whole documents of a buffer; returns the bytes that they took.
async fn take_ready(
    storing: &mut Storing,
    serialization: Serialization,
    buffer: &[u8],
) -> Result<usize, Ended> {
    let mut used = 0;
    loop {
        let is_xml = serialization == Serialization::Xml;
        if is_xml {
            // Skips blank lines, which an origin could send endlessly.
            let rest = &buffer[used..];
            used += rest.len() - rest.trim_ascii_start().len();
        }
        let rest = &buffer[used..];
        // An XML document is a line.
        let line = !is_xml || rest.contains(&b'\n');
        if rest.is_empty() || !line {
            if rest.len() > DOCUMENT_BYTES_MAX {
                return Err(plain("the origin sent a document above the size limit").into());
            }
            return Ok(used);
        }
        let (document, length) = match serialization.decode(rest) {
            Ok(read) => read,
            Err(SerializationError::Incomplete) => return Ok(used),
            Err(error) => {
                return Err(plain(format!("the origin sent an invalid document: {error}")).into());
            }
        };
        used += length;
        if stream_of(&document).is_some_and(|stream| stream != storing.inlet.replica().name()) {
            return Err(plain("the origin sent another stream than the requested one").into());
        }
        storing.take(document, length).await?;
        storing.waits(buffer.len() - used);
        // Other tasks run between documents.
        tokio::task::yield_now().await;
    }
}

/// Runs a push link until it is removed: subscribes, and renews the subscriptions.
pub(crate) async fn push_link(link: Arc<Link>) {
    let origin = match Origin::of(&link.config) {
        Ok(origin) => origin,
        Err(error) => return link.disconnected(error.to_string(), error.hint()),
    };
    let base = link.config.contact.clone();
    let Some(base) = base.or_else(|| link.shared.host.contact_base()) else {
        let why = "this node has no address that the origin can reach";
        let hint = "set the link's contact to http://ADDRESS:PORT of this node";
        return link.disconnected(why.to_owned(), Some(hint.to_owned()));
    };
    let fingerprint = link.shared.host.contact_fingerprint();
    if let Some((why, hint)) = unusable(&link, &base, fingerprint.as_deref()) {
        return link.disconnected(why.to_owned(), Some(hint.to_owned()));
    }
    let mut subscriptions: BTreeMap<String, Made> = BTreeMap::new();
    let mut retry = RetryTimer::new(link.shared.host.random());
    retry.wait(ReconnectCommand::Start).await;
    let mut connected = false;
    loop {
        let mut outcome = Ok(());
        match selected(&link, &origin).await {
            Err(error) => outcome = Err(error),
            Ok(names) => {
                for name in names {
                    let kept = keep(&link, &origin, &base, &name, &mut subscriptions).await;
                    let Err(ended) = kept else { continue };
                    subscriptions.remove(&name);
                    match ended {
                        Ended::Refused(why) => {
                            inlet::refused(&link, &name, &why);
                            if let Some(contact) = &link.contact {
                                contact.drop_inlet(&name);
                            }
                        }
                        Ended::Down(error) => outcome = Err(error),
                    }
                }
            }
        }
        match outcome {
            Ok(()) => {
                if !connected {
                    retry.report(ReconnectCommand::Connected);
                    link.connected();
                    connected = true;
                }
                retry.report(ReconnectCommand::Worked(1));
                let look = Duration::from_secs(link.config.limits.directory_s.max(1));
                let renew = subscriptions.values().map(|made| made.renew).min();
                let next = Instant::now() + look;
                tokio::time::sleep_until(renew.map_or(next, |renew| renew.min(next))).await;
            }
            Err(error) => {
                connected = false;
                link.disconnected(error.text, error.hint);
                retry.wait(ReconnectCommand::Failed).await;
                link.end(LinkState::Connecting);
            }
        }
    }
}

/// Why elements cannot be sent to a contact point at `base`, with a hint.
fn unusable(
    link: &Link,
    base: &str,
    fingerprint: Option<&str>,
) -> Option<(&'static str, &'static str)> {
    if link.config.is_in_clear(base) {
        let why = "elements would travel to this node in plain text";
        let hint = "configure TLS for this node ([http.tls]), or set insecure = true for the link";
        return Some((why, hint));
    }
    let served = !base.starts_with("https://") || fingerprint.is_some();
    let why = "the link's contact is an https address, and this node has no TLS";
    let hint = "set self_signed = true under [http.tls], or a certificate and its key";
    (!served).then_some((why, hint))
}

/// Keeps the subscription to a stream alive.
async fn keep(
    link: &Arc<Link>,
    origin: &Origin,
    base: &str,
    name: &str,
    subscriptions: &mut BTreeMap<String, Made>,
) -> Result<(), Ended> {
    if let Some(made) = subscriptions.get(name) {
        if made.renew > Instant::now() {
            return Ok(());
        }
        let path = format!("{}/{}", super::SUBSCRIPTIONS_PATH, made.id);
        let ask = OriginRequest {
            method: Method::PUT,
            secret: Some(made.secret.clone()).filter(|secret| !secret.is_empty()),
            ..OriginRequest::get(path)
        };
        let (status, body) = origin.ask(ask).await?;
        if status == StatusCode::OK {
            let made = Made::of(read_answer(&body)?);
            subscriptions.insert(name.to_owned(), made);
            return Ok(());
        }
        // The origin has forgotten it: subscribe again, after the newest stored element.
    }
    let Some(contact) = &link.contact else {
        return Err(plain("the link has no contact point").into());
    };
    // One receiving end for the link's whole life: it knows the entries queued in the log.
    let known = |inlet: &Inlet| (inlet.have(), inlet.earlier());
    let (have, earlier) = match contact.inlet(name) {
        Some(inlet) => known(&*inlet.lock().await),
        None => {
            let inlet = Inlet::new(link, name).await?;
            let known = known(&inlet);
            contact.put(name, inlet);
            known
        }
    };
    let request = SubscriptionRequest {
        stream: name.to_owned(),
        fingerprint: link
            .shared
            .host
            .contact_fingerprint()
            .filter(|_| base.starts_with("https://")),
        contact_point: format!(
            "{}{}",
            base.trim_end_matches('/'),
            contact.path(&link.config.name)
        ),
        after: have.map(|have| have.to_string()),
        earlier: earlier.iter().map(Position::to_string).collect(),
        start: link.config.start,
        serialization: link.config.serialization(),
    };
    let ask = OriginRequest {
        method: Method::POST,
        secret: None,
        path: super::SUBSCRIPTIONS_PATH.to_owned(),
        content_type: Some("application/json"),
        body: serde_json::to_vec(&request).unwrap_or_default().into(),
    };
    let (status, body) = origin.ask(ask).await?;
    if !status.is_success() {
        return Err(Ended::of(status, &body));
    }
    let answer = read_answer(&body)?;
    let begins = answer.after.as_deref().map(str::parse).transpose();
    let begins = begins.map_err(|error| plain(format!("the origin's answer: {error}")))?;
    subscriptions.insert(name.to_owned(), Made::of(answer));
    if let (Some(at), Some(inlet)) = (begins, contact.inlet(name)) {
        let mut inlet = inlet.lock().await;
        if inlet.begins_at_end() {
            inlet.begin(at).map_err(|error| plain(error.to_string()))?;
        }
    }
    Ok(())
}

fn read_answer(body: &[u8]) -> Result<SubscriptionAnswer, ConnectionError> {
    let answer: Result<SubscriptionAnswer, _> = serde_json::from_slice(body);
    let answer =
        answer.map_err(|error| plain(format!("cannot read the origin's response: {error}")))?;
    let fits = |text: &str| text.len() <= 128 && text.bytes().all(|b| b.is_ascii_alphanumeric());
    match fits(&answer.id) && fits(&answer.secret) {
        true => Ok(answer),
        false => Err(plain("the origin's response has no usable id and secret")),
    }
}
