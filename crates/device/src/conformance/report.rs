//! What was found: for each clause whether it was kept, violated, or not seen.

use std::collections::BTreeMap;

use super::clause::{CLAUSES, Clause, Severity};

/// Findings of one clause that are reported with their messages; further ones are counted. Reason: a defect of
/// every answer would fill the report with its repeats.
const FINDINGS_MAX: usize = 4;
/// Bytes of one message in a report. Reason: a reader sees the headers and the begin of the body, and a report
/// with some findings fits a screen or two.
const EXCERPT_BYTES: usize = 2_048;

/// A violated clause, with the messages that show it.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The clause.
    pub clause: &'static Clause,
    /// What was asked, in words.
    pub sent: String,
    /// What came, in words.
    pub came: String,
    /// Why this violates the clause.
    pub problem: String,
    /// The start of the message that was sent.
    pub request: String,
    /// The start of the message that came.
    pub response: String,
}

/// The state of one clause.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// How often it was seen kept.
    pub kept: u32,
    /// How often it was seen violated.
    pub violated: u32,
    /// The first violations.
    pub findings: Vec<Finding>,
}

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub struct Report {
    states: BTreeMap<&'static str, State>,
    /// Parts that could not be checked, each with the reason.
    pub notes: Vec<String>,
    /// Questions sent.
    pub questions: u32,
}

impl Report {
    /// Each clause with its state; `None` if the device gave no occasion to see it.
    pub fn clauses(&self) -> impl Iterator<Item = (&'static Clause, Option<&State>)> {
        CLAUSES
            .iter()
            .map(|clause| (*clause, self.states.get(clause.id)))
    }

    /// Whether a clause was seen kept or violated.
    pub(super) fn has_seen(&self) -> bool {
        !self.states.is_empty()
    }

    /// All findings.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.clauses()
            .filter_map(|(_, state)| state)
            .flat_map(|state| &state.findings)
    }

    /// Whether no "must" was seen violated.
    #[must_use]
    pub fn is_conformant(&self) -> bool {
        let mut findings = self.findings();
        findings.all(|finding| finding.clause.severity != Severity::Must)
    }

    /// Records that a clause was kept, or violated for the reason given.
    pub(super) fn judge(
        &mut self,
        clause: &'static Clause,
        seen: &Seen<'_>,
        verdict: Result<(), String>,
    ) {
        let state = self.states.entry(clause.id).or_default();
        let Err(problem) = verdict else {
            state.kept += 1;
            return;
        };
        state.violated += 1;
        if state.findings.len() < FINDINGS_MAX {
            state.findings.push(Finding {
                clause,
                sent: seen.sent.to_owned(),
                came: seen.came.to_owned(),
                problem,
                request: excerpt(seen.request),
                response: excerpt(seen.response),
            });
        }
    }
}

/// The messages on which a clause is judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) sent: &'a str,
    pub(super) came: &'a str,
    pub(super) request: &'a str,
    pub(super) response: &'a str,
}

/// The start of a message, for people.
fn excerpt(text: &str) -> String {
    let mut end = text.len().min(EXCERPT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    match end == text.len() {
        true => text.to_owned(),
        false => format!("{} … ({} bytes)", &text[..end], text.len()),
    }
}
