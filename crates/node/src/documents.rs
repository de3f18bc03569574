//! Fetches WSDL documents with the documents that they import.
//!
//! A client names the addresses, so each is fetched only as the address policy allows: that of the client itself, and the
//! networks in `discovery.contact` and `exchange.contact`. Host names are not resolved, and redirects not followed.
//! Each document is fetched once, so circles end. An import that is not read is reported; the first document must be.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use chappe_registry::uddi::{Error, ErrorCode};
use chappe_registry::wsdl::message::Unread;
use chappe_registry::wsdl::{MAX_DOCUMENT_BYTES, MAX_DOCUMENTS, NewDocument, Prepared, resolve};
use chappe_transport::Hop;
use chappe_transport::http::{Client, ClientLimits};
use tokio::time::{Instant, timeout_at};

use crate::shared::App;

/// Imports of imports; reason: descriptions are two or three documents deep.
const DEPTH_MAX: usize = 4;
/// Documents of one request.
const DOCUMENTS_MAX: usize = 32;
/// Bytes of all documents of one request; they become one batch of changes.
pub(crate) const BYTES_MAX: usize = 4 << 20;
/// Time for all fetches of one request.
const TIME_MAX: Duration = Duration::from_secs(15);
/// Time for one step of a fetch.
const STEP_MAX: Duration = Duration::from_secs(5);
/// Imports that an answer lists as not read.
const UNREAD_MAX: usize = 100;

const _: () = assert!(
    DOCUMENTS_MAX <= MAX_DOCUMENTS,
    "a publisher takes all documents of a request"
);

/// The documents of a request, and the imports that were not read.
pub(crate) struct Collected {
    pub(crate) documents: Vec<Prepared>,
    pub(crate) unread: Vec<Unread>,
}

struct Fetcher<'a> {
    app: &'a App,
    client: Client,
    source: SocketAddr,
    deadline: Instant,
}

/// Reads a document, which is fetched from its location if it has no bytes, and those that it imports. `source` is the
/// host of the client.
///
/// # Errors
/// The document is not fetched (`E_invalidURLPassed`), or not read.
pub(crate) async fn collect(
    app: &App,
    source: Option<IpAddr>,
    mut first: NewDocument,
) -> Result<Collected, Error> {
    let limits = ClientLimits {
        header_deadline: STEP_MAX,
        body_deadline: STEP_MAX,
        body_bytes: MAX_DOCUMENT_BYTES,
        ..ClientLimits::default()
    };
    let fetcher = Fetcher {
        app,
        client: Client::new(limits),
        source: SocketAddr::new(source.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0),
        deadline: Instant::now() + TIME_MAX,
    };
    if first.bytes.is_empty() {
        let url = first.location.clone().unwrap_or_default();
        let fetched = fetcher.get(&url).await;
        let (bytes, media_type) = fetched.map_err(|reason| {
            let detail = format!("{url:.200}: {reason}");
            Error::new(ErrorCode::InvalidUrlPassed, detail)
        })?;
        first.bytes = bytes;
        first.media_type = first.media_type.or(media_type);
    }
    let mut seen: HashSet<String> = first.location.iter().cloned().collect();
    let mut bytes = first.bytes.len();
    let first = prepare(first).await?;
    let mut waiting = VecDeque::new();
    wait_for_imports(&first, 1, &mut waiting);
    let mut collected = Collected {
        documents: vec![first],
        unread: Vec::new(),
    };
    while let Some((url, depth)) = waiting.pop_front() {
        if !seen.insert(url.clone()) {
            continue;
        }
        let full = collected.documents.len() >= DOCUMENTS_MAX || bytes >= BYTES_MAX;
        let read = match (depth > DEPTH_MAX, full) {
            (true, _) => Err(format!(
                "it is imported more than {DEPTH_MAX} documents deep"
            )),
            (_, true) => Err(format!(
                "more than {DOCUMENTS_MAX} documents, or {BYTES_MAX} bytes"
            )),
            _ => fetcher.import(&url).await,
        };
        match read {
            Ok(document) => {
                bytes += document.size();
                wait_for_imports(&document, depth + 1, &mut waiting);
                collected.documents.push(document);
            }
            Err(reason) if collected.unread.len() < UNREAD_MAX => {
                let url = url.chars().take(1_024).collect();
                collected.unread.push(Unread { url, reason });
            }
            Err(_) => break,
        }
    }
    Ok(collected)
}

fn wait_for_imports(document: &Prepared, depth: usize, waiting: &mut VecDeque<(String, usize)>) {
    let imports = document.imports().iter();
    let imports = imports.map(|import| resolve(document.location(), import));
    let imports = imports.filter(|url| !url.is_empty());
    waiting.extend(imports.take(1_000).map(|url| (url, depth)));
}

/// Reads a document on a thread that may take a while.
async fn prepare(document: NewDocument) -> Result<Prepared, Error> {
    let reading = tokio::task::spawn_blocking(move || document.prepare());
    let failed = |_| Error::new(ErrorCode::FatalError, "the request failed");
    reading.await.map_err(failed)?
}

impl Fetcher<'_> {
    /// Fetches a document; the reason if it cannot.
    async fn get(&self, url: &str) -> Result<(Vec<u8>, Option<String>), String> {
        let with_hint = |text: String, hint: Option<String>| match hint {
            Some(hint) => format!("{text} (hint: {hint})"),
            None => text,
        };
        let contact = self.app.config.contact_policy().check(url, self.source);
        let contact = contact.map_err(|refusal| {
            let (detail, hint) = (format!("{url:.200}: {refusal}"), refusal.hint());
            let (drops, peer) = (&self.app.observability.drops, self.source.ip().to_string());
            drops.record(
                Hop::Http,
                "document address refused",
                &peer,
                detail,
                hint.clone(),
            );
            with_hint(refusal.to_string(), hint)
        })?;
        let answer = timeout_at(self.deadline, self.client.get(&contact)).await;
        let answer = answer.map_err(|_| format!("not fetched within {} s", TIME_MAX.as_secs()))?;
        let answer = answer.map_err(|error| with_hint(error.to_string(), None))?;
        let media_type = answer.headers.get("content-type");
        let media_type = media_type
            .and_then(|value| value.to_str().ok())
            .and_then(media_type_of);
        Ok((answer.body.to_vec(), media_type))
    }

    /// Fetches and reads an imported document.
    async fn import(&self, url: &str) -> Result<Prepared, String> {
        let (bytes, media_type) = self.get(url).await?;
        let document = NewDocument {
            media_type,
            ..NewDocument::new(url, bytes)
        };
        prepare(document).await.map_err(|error| error.detail)
    }
}

/// The media type of a document, if it is one of XML: it is given back with the bytes.
pub(crate) fn media_type_of(text: &str) -> Option<String> {
    let text = text.trim();
    let essence = text
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let is_xml = matches!(
        essence.as_str(),
        "text/xml" | "application/xml" | "application/wsdl+xml"
    );
    let is_short = text.len() <= 100 && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    (is_xml && is_short).then(|| text.to_owned())
}
