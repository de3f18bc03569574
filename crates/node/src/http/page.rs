//! An answer with elements of a stream. It is read, encoded and sent in chunks as the client receives
//! them, so its memory does not depend on the requested amount.

use std::sync::Arc;
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

use super::problem::Problem;
use super::streams::store_problem;
use super::units::Units;
use crate::catalogue::Entry;
use crate::view::ElementView;

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
    first: Option<Position>,
    last: Option<Position>,
    truncated: bool,
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
            first: None,
            last: None,
            truncated: false,
        }
    }

    /// The same answer with fields in other units.
    pub(super) fn in_units(self, units: Units) -> Self {
        self.in_form(Form::Elements(units))
    }

    /// The same answer in another form.
    pub(super) fn in_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Builds the response; the chunks after the first are sent while they are read.
    pub(super) async fn respond(self) -> Result<Response, Problem> {
        let text = match &self.form {
            Form::Elements(_) => {
                let name = serde_json::to_string(&self.entry.current_name());
                let name = name.map_err(|error| Problem::internal(error.to_string()))?;
                format!("{{\"stream\":{name},\"elements\":[")
            }
            Form::Gsn { head, .. } => head.clone(),
        };
        let (text, rest) = self.chunk(text).await?.map_err(store_problem)?;
        let body = match rest {
            None => Body::from(text),
            Some(page) => {
                let (sender, receiver) = mpsc::channel(1);
                tokio::spawn(page.send(text, sender));
                Body::from_stream(ReceiverStream::new(receiver))
            }
        };
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
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
            let (next, rest) = match page.chunk(String::new()).await {
                Ok(Ok(chunk)) => chunk,
                Ok(Err(error)) => {
                    tracing::error!(%error, "an answer with elements was aborted");
                    let _ = sender.send(Err(error)).await;
                    return;
                }
                Err(_) => return,
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

    /// Appends the next chunk to `text` on a thread that may block on the disk; returns the page too
    /// while there is more.
    async fn chunk(
        mut self,
        mut text: String,
    ) -> Result<Result<(String, Option<Self>), StoreError>, Problem> {
        let work = tokio::task::spawn_blocking(move || {
            while text.len() < CHUNK_BYTES {
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
            Form::Elements(units) => {
                units.apply(schema, &mut piece);
                None
            }
            Form::Gsn {
                schema: announced, ..
            } => Some(Columns::new(announced, schema)),
        };
        for element in &piece {
            text.push_str(if self.last.is_some() { "," } else { "" });
            match &columns {
                Some(columns) => columns.write(element, text),
                None => {
                    let view = ElementView {
                        stream: None,
                        element,
                        schema,
                    };
                    let json = serde_json::to_string(&view);
                    let malformed = |error: serde_json::Error| {
                        StoreError::Codec(chappe_stream::CodecError::Malformed(error.to_string()))
                    };
                    text.push_str(&json.map_err(malformed)?);
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
        text.push_str("],");
        text.push_str(&end.to_string()[1..]);
    }
}
