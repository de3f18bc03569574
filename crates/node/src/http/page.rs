//! An answer with elements of a stream. It is read, encoded and sent in chunks as the client receives
//! them, so its memory does not depend on the requested amount.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chappe_gsn::rest::{Columns, milliseconds};
use chappe_log::Error;
use chappe_stream::{Position, Scan, StoreError, StreamElement, StreamSchema};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::parts;
use super::problem::Problem;
use super::streams::store_problem;
use super::units::Units;
use crate::accounts::Caller;
use crate::catalogue::Entry;
use crate::permits::{Permit, RequestKind};
use crate::shared::App;
use crate::view::{ElementView, ExactElementView};

/// The media type of lines of JSON.
pub(super) const NDJSON: &str = "application/x-ndjson";
/// Bytes of JSON in one chunk. A shorter answer is sent whole.
const CHUNK_BYTES: usize = 256 << 10;
/// An answer is abandoned if the client receives nothing for this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The treatment of a gap, where elements are damaged or no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gaps {
    /// Skip gaps, and count damaged elements.
    Skip,
    /// End the answer before the gap; a gap at its start is an error.
    End,
}

/// How an answer is written.
pub(super) enum Form {
    /// Elements with their positions, and where to continue.
    Elements(Units),
    /// A line for each element, which keeps all numbers; the last one says where to continue.
    Lines(Units),
    /// GSN's form: a feature up to its values, which are arrays of the fields of a schema.
    Gsn {
        /// The text before the first value.
        head: String,
        /// The announced fields.
        schema: StreamSchema,
    },
}

/// An answer in progress.
pub(super) struct Page {
    entry: Arc<Entry>,
    scan: Scan,
    left: usize,
    gaps: Gaps,
    form: Form,
    /// The time of the last element in milliseconds.
    last_ms: i64,
    /// Whose request it is, if each chunk needs the permit of a query.
    asker: Option<(App, Caller)>,
    first: Option<Position>,
    last: Option<Position>,
    truncated: bool,
}

/// Ends the work for a request when the request ends, because its client has gone.
struct Watch(Arc<AtomicBool>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Page {
    /// An answer with at most `limit` elements of `scan`.
    pub(super) fn new(entry: Arc<Entry>, scan: Scan, limit: usize, gaps: Gaps) -> Self {
        Self {
            entry,
            scan,
            left: limit,
            gaps,
            form: Form::Elements(Units::default()),
            last_ms: 0,
            asker: None,
            first: None,
            last: None,
            truncated: false,
        }
    }

    /// The same answer in another form.
    pub(super) fn in_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// The same answer, each chunk of which needs the permit of a query while it is read: one chunk may read
    /// the whole stream to find the elements of a time.
    pub(super) fn with_permits(self, app: App, caller: Caller) -> Self {
        Self {
            asker: Some((app, caller)),
            ..self
        }
    }

    /// The permit to read a chunk.
    async fn permit(&self) -> Result<Option<Permit>, Problem> {
        match &self.asker {
            None => Ok(None),
            Some((app, caller)) => parts::permit_soon(app, caller, RequestKind::Query)
                .await
                .map(Some),
        }
    }

    /// Builds the response; the chunks after the first are sent while they are read.
    pub(super) async fn respond(self) -> Result<Response, Problem> {
        let text = match &self.form {
            Form::Elements(_) => {
                let name = serde_json::to_string(&self.entry.current_name());
                let name = name.map_err(|error| Problem::internal(error.to_string()))?;
                format!("{{\"stream\":{name},\"elements\":[")
            }
            Form::Lines(_) => String::new(),
            Form::Gsn { head, .. } => head.clone(),
        };
        let kind = match &self.form {
            // GSN's wrapper reads a text of no declared encoding as ISO 8859-1.
            Form::Gsn { .. } => "application/json; charset=utf-8",
            Form::Elements(_) => "application/json",
            Form::Lines(_) => NDJSON,
        };
        let is_gone = Arc::<AtomicBool>::default();
        let _watch = Watch(is_gone.clone());
        let is_gone = move || is_gone.load(Ordering::Relaxed);
        let (text, rest) = self.chunk(text, is_gone).await?.map_err(store_problem)?;
        let body = match rest {
            None => Body::from(text),
            Some(page) => {
                let (sender, receiver) = mpsc::channel(1);
                tokio::spawn(page.send(text, sender));
                Body::from_stream(ReceiverStream::new(receiver))
            }
        };
        Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
    }

    /// Sends `text` and the rest of the page. An error closes the connection, so that an incomplete
    /// answer does not look complete.
    async fn send(self, mut text: String, sender: mpsc::Sender<Result<String, StoreError>>) {
        let mut page = self;
        loop {
            let sent = timeout(STALL_TIMEOUT, sender.send(Ok(text))).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
            let client = sender.clone();
            let is_gone = move || client.is_closed();
            let (next, rest) = match page.chunk(String::new(), is_gone).await {
                Ok(Ok(chunk)) => chunk,
                Ok(Err(error)) => {
                    tracing::error!(%error, "an answer with elements was aborted");
                    let _ = sender.send(Err(error)).await;
                    return;
                }
                Err(problem) => {
                    let error = StoreError::Log(Error::Failed {
                        reason: problem.detail,
                    });
                    let _ = sender.send(Err(error)).await;
                    return;
                }
            };
            text = next;
            match rest {
                Some(rest) => page = rest,
                None => {
                    let _ = timeout(STALL_TIMEOUT, sender.send(Ok(text))).await;
                    return;
                }
            }
        }
    }

    /// Appends the next chunk to `text` on a thread that may block on the disk, until the client has gone;
    /// returns the page too while there is more.
    async fn chunk(
        mut self,
        mut text: String,
        is_gone: impl Fn() -> bool + Send + 'static,
    ) -> Result<Result<(String, Option<Self>), StoreError>, Problem> {
        let permit = self.permit().await?;
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            while text.len() < CHUNK_BYTES && !is_gone() {
                if !self.write_piece(&mut text)? {
                    self.write_end(&mut text);
                    return Ok((text, None));
                }
            }
            Ok((text, Some(self)))
        });
        let failed = |_| Problem::internal("reading the elements failed");
        work.await.map_err(failed)
    }

    /// Writes a piece of elements and returns whether there are more.
    fn write_piece(&mut self, text: &mut String) -> Result<bool, StoreError> {
        let piece = match self.gaps {
            Gaps::Skip => self.scan.next_undamaged(self.left)?,
            Gaps::End => match self.scan.next_piece(self.left) {
                Err(StoreError::Log(Error::Gap { .. })) if self.last.is_some() => {
                    self.truncated = true;
                    return Ok(false);
                }
                piece => piece?,
            },
        };
        let Some(mut piece) = piece else {
            return Ok(false);
        };
        if let Some(first) = piece.first()
            && self.left == 0
            && !self.completes_millisecond(first)
        {
            self.truncated = true;
            return Ok(false);
        }
        let schema = self.scan.schema();
        let columns = match &self.form {
            Form::Elements(units) | Form::Lines(units) => {
                units.apply(schema, &mut piece);
                None
            }
            Form::Gsn {
                schema: announced, ..
            } => Some(Columns::new(announced, schema)),
        };
        let is_lines = matches!(self.form, Form::Lines(_));
        for element in &piece {
            if self.last.is_some() && !is_lines {
                text.push(',');
            }
            match &columns {
                Some(columns) => columns.write(element, text),
                None => {
                    let view = ElementView {
                        stream: None,
                        element,
                        schema,
                    };
                    let json = match is_lines {
                        true => serde_json::to_string(&ExactElementView(view)),
                        false => serde_json::to_string(&view),
                    };
                    let malformed = |error: serde_json::Error| {
                        StoreError::Codec(chappe_stream::CodecError::Malformed(error.to_string()))
                    };
                    text.push_str(&json.map_err(malformed)?);
                    text.push_str(if is_lines { "\n" } else { "" });
                }
            }
            self.last_ms = milliseconds(element);
            self.first.get_or_insert(element.position);
            self.last = Some(element.position);
        }
        self.left = self.left.saturating_sub(piece.len());
        Ok(true)
    }

    /// Whether an element belongs to the answer beyond its limit: GSN continues with the last time that it got, so
    /// that an answer never ends within a millisecond.
    fn completes_millisecond(&self, element: &StreamElement) -> bool {
        let is_gsn = matches!(self.form, Form::Gsn { .. });
        is_gsn && self.last.is_some() && milliseconds(element) == self.last_ms
    }

    /// Writes the members that are known only at the end.
    fn write_end(&self, text: &mut String) {
        if matches!(self.form, Form::Gsn { .. }) {
            text.push_str("]}}");
            return;
        }
        let numbers = self.first.zip(self.last);
        let numbers = numbers.map(|(first, last)| (first.sequence, last.sequence));
        let damaged = match self.gaps {
            Gaps::Skip => {
                let (first, last) = numbers.unwrap_or((0, u64::MAX));
                self.entry.log.damaged(first, last)
            }
            Gaps::End => 0,
        };
        let end = serde_json::json!({
            "truncated": self.truncated,
            "next_after": self.last.map(|position| position.to_string()),
            "damaged": damaged,
        });
        if matches!(self.form, Form::Lines(_)) {
            text.push_str(&end.to_string());
            text.push('\n');
            return;
        }
        text.push_str("],");
        text.push_str(&end.to_string()[1..]);
    }
}

#[cfg(test)]
mod tests {
    use chappe_stream::{
        Epoch, Field, FieldType, Quality, StreamElement, StreamSchema, Timestamp, Value,
    };

    use super::*;
    use crate::node::tests::on_node;

    #[test]
    fn reading_ends_with_its_request_and_counts_as_a_query_where_it_may_be_long() {
        on_node(
            |_| {},
            async |app| {
                let field = Field {
                    name: "v".to_owned(),
                    field_type: FieldType::Integer,
                    unit: None,
                    observed_property: None,
                    description: None,
                };
                let schema = StreamSchema {
                    fields: vec![field],
                    key: None,
                };
                let created = app.catalogue.create("s", &schema, "urn:a", None);
                let entry = created.await.unwrap();
                let element = StreamElement {
                    position: Position {
                        epoch: Epoch(0),
                        sequence: 0,
                    },
                    source_time: Timestamp(1),
                    receive_time: Timestamp(1),
                    key: None,
                    values: vec![Value::Integer(1)],
                    quality: Quality::Good,
                    origin: None,
                };
                let stored = entry.append(&vec![element; 10]).await.unwrap();
                stored.await.unwrap();
                let page = || Page::new(entry.clone(), entry.log.scan(0, None), 10, Gaps::Skip);
                let read = page().chunk(String::new(), || true).await;
                let (text, rest) = read.unwrap().unwrap();
                assert!(text.is_empty() && rest.is_some(), "{text}");

                let ranged = || page().with_permits(app.clone(), Caller::operator());
                let queries = 0..app.config.limits.queries;
                let taken = queries.map(|_| app.permits.take(RequestKind::Query, None).unwrap());
                let taken: Vec<Permit> = taken.collect();
                let refused = ranged().chunk(String::new(), || false).await;
                assert_eq!(refused.err().unwrap().status, 503);
                let read = page().chunk(String::new(), || false).await;
                assert!(read.unwrap().unwrap().1.is_none());
                drop(taken);
                let read = ranged().chunk(String::new(), || false).await;
                assert!(read.unwrap().unwrap().1.is_none());
            },
        );
    }
}
