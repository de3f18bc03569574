//! What became of the elements of a request.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chappe_log::Appended;
use chappe_stream::{Epoch, Position};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::problem::Problem;
use super::super::shapes::Level;

/// Refused lines that an answer lists; the others are counted.
const REFUSALS_MAX: usize = 100;
/// Ranges of positions that an answer lists; reason: a body has at most as many batches, and other
/// writers may come between two.
const POSITIONS_MAX: usize = 4_096;

/// What became of the elements of a request.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Written {
    /// The stream's name.
    stream: String,
    /// The level that the stored elements have reached.
    #[schema(value_type = Level)]
    level: &'static str,
    /// Elements stored by this request.
    stored: u64,
    /// Elements that were already stored.
    duplicates: u64,
    /// Lines that are no elements.
    refused: u64,
    /// The positions of the stored elements, in the order of the body.
    positions: Vec<Range>,
    /// The first 100 refused lines.
    refusals: Vec<Refusal>,
    /// Whether the whole body was read.
    complete: bool,
}

/// Consecutive positions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PositionRange)]
pub(crate) struct Range {
    /// The first, `EPOCH:N`.
    first: String,
    /// The last, `EPOCH:N`.
    last: String,
    #[serde(skip)]
    #[schema(ignore)]
    next: Position,
}

/// A line that was not stored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LineRefusal)]
pub(crate) struct Refusal {
    /// The line of the body, from 1; in a JSON array, the number of the element.
    line: u64,
    /// Why it is no element.
    reason: String,
}

impl Written {
    pub(super) fn new(stream: &str, level: &'static str) -> Self {
        Self {
            stream: stream.to_owned(),
            level,
            ..Self::default()
        }
    }

    pub(super) fn refuse(&mut self, line: u64, reason: String) {
        self.refused += 1;
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(Refusal { line, reason });
        }
    }

    pub(super) fn count_duplicate(&mut self) {
        self.duplicates += 1;
    }

    pub(super) fn complete(&mut self) {
        self.complete = true;
    }

    /// Whether a line was refused, or the body was not read to its end.
    pub(super) fn has_refusals(&self) -> bool {
        self.refused > 0
    }

    pub(super) fn refused(&self) -> (u64, Option<String>) {
        let first = self.refusals.first();
        let first = first.map(|it| format!("line {}: {}", it.line, it.reason));
        (self.refused, first)
    }

    /// Counts an acknowledged batch.
    pub(super) fn store(&mut self, appended: &Appended) {
        self.stored += u64::from(appended.count);
        let position = |at: chappe_log::Position| Position {
            epoch: Epoch(at.epoch),
            sequence: at.sequence,
        };
        let (first, last) = (position(appended.first), position(appended.last()));
        let next = Position {
            sequence: last.sequence + 1,
            ..last
        };
        let is_full = self.positions.len() == POSITIONS_MAX;
        match self.positions.last_mut() {
            Some(range) if range.next == first => {
                (range.last, range.next) = (last.to_string(), next)
            }
            _ if is_full => {}
            _ => self.positions.push(Range {
                first: first.to_string(),
                last: last.to_string(),
                next,
            }),
        }
    }

    /// The answer to a request whose body was read.
    pub(super) fn answer(self) -> Response {
        let status = match (self.refused, self.stored + self.duplicates) {
            (0, _) => StatusCode::OK,
            (_, 0) => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::MULTI_STATUS,
        };
        (status, Json(self)).into_response()
    }

    /// The answer to a request that ended early: a problem, with what was stored before.
    pub(super) fn interrupted(self, problem: Problem) -> Response {
        #[derive(Serialize)]
        struct Interrupted {
            #[serde(flatten)]
            problem: Problem,
            #[serde(flatten)]
            written: Written,
        }
        let mut response = problem.clone().into_response();
        let body = serde_json::to_vec(&Interrupted {
            problem,
            written: self,
        });
        *response.body_mut() = body.unwrap_or_default().into();
        response
            .headers_mut()
            .remove(axum::http::header::CONTENT_LENGTH);
        response
    }
}
