//! What became of each part of a descriptor.

use std::fmt;

use serde::Serialize;

use super::model::Place;

/// What became of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It means the same as before.
    Taken,
    /// It is there in another form.
    Changed,
    /// It is not there.
    Ignored,
}

/// One part: an element or an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportLine {
    /// Its line in the file, from 1; 0 if there is no file.
    pub line: usize,
    /// The part as a path: `streams/stream[0]/source[0]@slide`.
    pub item: String,
    /// What became of it.
    pub outcome: Outcome,
    /// The reason, or what it became; empty if it was taken as it is.
    pub reason: String,
}

/// The parts in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Report {
    /// The lines.
    pub lines: Vec<ReportLine>,
}

impl Outcome {
    /// The word in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Changed => "changed",
            Self::Ignored => "ignored",
        }
    }
}

impl fmt::Display for ReportLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (item, outcome) = (&self.item, self.outcome.word());
        if self.line > 0 {
            write!(f, "{}: ", self.line)?;
        }
        write!(f, "{item}: {outcome}")?;
        match self.reason.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.reason),
        }
    }
}

impl Report {
    /// The number of parts with this outcome.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        let lines = self.lines.iter();
        lines.filter(|line| line.outcome == outcome).count()
    }

    pub(super) fn taken(&mut self, place: Place, item: impl Into<String>) {
        self.add(place, item, Outcome::Taken, "");
    }

    pub(super) fn changed(
        &mut self,
        place: Place,
        item: impl Into<String>,
        reason: impl Into<String>,
    ) {
        self.add(place, item, Outcome::Changed, reason);
    }

    pub(super) fn ignored(
        &mut self,
        place: Place,
        item: impl Into<String>,
        reason: impl Into<String>,
    ) {
        self.add(place, item, Outcome::Ignored, reason);
    }

    fn add(
        &mut self,
        place: Place,
        item: impl Into<String>,
        outcome: Outcome,
        reason: impl Into<String>,
    ) {
        self.lines.push(ReportLine {
            line: place.line,
            item: item.into(),
            outcome,
            // A statement may have several lines.
            reason: reason
                .into()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
        });
    }
}
