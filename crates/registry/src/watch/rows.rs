//! The rows of an answer, compared as a set with counts.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use oxrdf::{Term, Variable};

use super::WatchEvent;
use crate::limits::SparqlError;
use crate::results::SparqlAnswer;

/// The rows of an answer.
#[derive(Debug, Default)]
pub(super) struct Rows {
    variables: Vec<Variable>,
    /// By their text without the labels of blank nodes, with their number.
    rows: BTreeMap<String, (Vec<Option<Term>>, usize)>,
    answer: Option<bool>,
    hash: Option<u64>,
}

impl Rows {
    /// # Errors
    /// The answer has neither rows nor a truth value.
    pub(super) fn of(answer: SparqlAnswer) -> Result<Self, SparqlError> {
        let mut all = Self::default();
        match answer {
            SparqlAnswer::Boolean(value) => all.answer = Some(value),
            SparqlAnswer::Solutions { variables, rows } => {
                for row in rows {
                    let known = all.rows.entry(text(&row)).or_insert((row, 0));
                    known.1 += 1;
                }
                all.variables = variables;
            }
            SparqlAnswer::Graph(_) => {
                return Err(SparqlError::Unsupported("a subscription to a graph"));
            }
        }
        let mut hasher = DefaultHasher::new();
        all.answer.hash(&mut hasher);
        for (text, (_, count)) in &all.rows {
            (text, count).hash(&mut hasher);
        }
        all.hash = Some(hasher.finish());
        Ok(all)
    }

    /// Whether no answer was computed yet.
    pub(super) fn is_new(&self) -> bool {
        self.hash.is_none()
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.unwrap_or_default()
    }

    /// What changed since an earlier answer: first the rows that are gone.
    pub(super) fn events_since(&self, before: &Self) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        let more = |rows: &Self, than: &Self, events: &mut Vec<WatchEvent>, event: fn(_) -> _| {
            for (text, (row, count)) in &rows.rows {
                let others = than.rows.get(text).map_or(0, |(_, count)| *count);
                for _ in others..*count {
                    let (variables, rows) = (rows.variables.clone(), vec![row.clone()]);
                    events.push(event(SparqlAnswer::Solutions { variables, rows }));
                }
            }
        };
        more(before, self, &mut events, WatchEvent::RowRemoved);
        more(self, before, &mut events, WatchEvent::RowAdded);
        if let Some(answer) = self.answer
            && self.answer != before.answer
        {
            events.push(WatchEvent::Answer(answer));
        }
        events
    }
}

fn text(row: &[Option<Term>]) -> String {
    let terms = row.iter().map(|term| match term {
        None => "-".to_owned(),
        Some(Term::BlankNode(_)) => "_:".to_owned(),
        Some(term) => term.to_string(),
    });
    terms.collect::<Vec<_>>().join(" ")
}
