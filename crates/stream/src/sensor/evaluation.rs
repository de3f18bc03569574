//! Evaluations of a statement: over the windows of which key, by which plan, and what becomes of the results.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Due, SourceState, StatementMachine};
use crate::window::Part;
use crate::{
    PlannedQuery, Position, Quality, Query, QueryError, QueryPlan, Row, SensorEvent, StreamElement,
    Timestamp,
};

/// Capacity for this many changes of a window is kept between evaluations.
const CHANGES_KEPT: usize = 64;

impl StatementMachine {
    /// Evaluates the statement for the turn of a source that has ended.
    pub(super) fn evaluate_turn(&mut self, index: usize, key: &Arc<str>) {
        let mut due = Due::default();
        due.add(self.is_keyed, &self.sources[index], key);
        self.evaluate_due(&due);
    }

    /// Evaluates the statement for the keys that are due.
    pub(super) fn evaluate_due(&mut self, due: &Due) {
        match due.all {
            true => self.evaluate_all(),
            false => due.keys.iter().for_each(|key| self.evaluate(key)),
        }
    }

    /// Evaluates the statement for each key.
    pub(super) fn evaluate_all(&mut self) {
        if !self.is_keyed {
            return self.evaluate(&self.no_key.clone());
        }
        let keyed = self.sources.iter().filter(|source| source.parts.is_keyed());
        let keys: BTreeSet<Arc<str>> = keyed.flat_map(|source| source.parts.keys()).collect();
        keys.iter().for_each(|key| self.evaluate(key));
    }

    /// Evaluates the statement over the windows of a key.
    fn evaluate(&mut self, key: &Arc<str>) {
        let Some(mut query) = self.query.take() else {
            return;
        };
        self.counters.evaluations += 1;
        for source in &mut self.sources {
            for bound in source.bound.values_mut() {
                bound.evaluated = bound.came;
            }
        }
        let result = match self.is_keyed {
            false => {
                for (source, change) in self.sources.iter_mut().zip(&mut self.changes) {
                    if let Some(part) = source.parts.get_mut(key) {
                        part.window.take_change_into(change);
                    }
                }
                query.evaluate(&self.changes)
            }
            true if *query.plan() == QueryPlan::Compiled => self.evaluate_compiled(&query, key),
            true => {
                self.load(key);
                query.evaluate(&self.changes)
            }
        };
        self.query = Some(query);
        match result {
            Ok(rows) => {
                self.last_failure = None;
                let results = rows.into_iter().map(|row| self.element(row, key));
                self.say_results(results.collect());
            }
            Err(error) => self.failed(&error),
        }
        for change in &mut self.changes {
            change.removed.clear();
            change.added.clear();
            change.added.shrink_to(CHANGES_KEPT);
            change.removed.shrink_to(CHANGES_KEPT);
        }
    }

    /// Passes the results of one evaluation on, unless they come too soon.
    fn say_results(&mut self, results: Vec<StreamElement>) {
        let times = results.iter().map(|result| result.source_time);
        let Some(newest) = times.max() else {
            return;
        };
        let rate = self.descriptor.statements.first().and_then(|it| it.rate);
        if is_too_soon(rate, self.last_results, newest) {
            self.counters.too_soon += results.len() as u64;
            return;
        }
        self.last_results = Some(newest);
        self.counters.outputs += results.len() as u64;
        let events = results.into_iter().map(SensorEvent::Output);
        self.outputs.extend(events);
    }

    /// Evaluates a compiled statement, which has one source, over the window of a key.
    fn evaluate_compiled(
        &mut self,
        query: &PlannedQuery,
        key: &Arc<str>,
    ) -> Result<Vec<Row>, QueryError> {
        let part = self
            .sources
            .first_mut()
            .and_then(|source| source.parts.get_mut(key));
        let (Some(part), Some(change)) = (part, self.changes.first_mut()) else {
            return Ok(Vec::new());
        };
        if part.query.is_none() {
            part.window.report_all();
            part.query = query.fresh().map(Box::new);
        }
        let Some(of_key) = &mut part.query else {
            return Ok(Vec::new());
        };
        part.window.take_change_into(change);
        let result = of_key.evaluate(&self.changes);
        self.was_short = of_key.is_short();
        result
    }

    /// Makes the changes that fill SQLite's tables with the windows of a key.
    fn load(&mut self, key: &Arc<str>) {
        let sources = self.sources.iter_mut().zip(&mut self.changes);
        for ((source, change), loaded) in sources.zip(&mut self.loaded) {
            let is_keyed = source.parts.is_keyed();
            let part = source.parts.get_mut(key);
            let numbered_from = part.as_ref().map(|part| part.numbered_from);
            let is_loaded = !is_keyed || loaded.numbered_from == numbered_from;
            if let Some(part) = part {
                if !is_loaded {
                    part.window.report_all();
                }
                part.window.take_change_into(change);
            }
            if is_keyed {
                if !is_loaded {
                    change.removed = std::mem::take(&mut loaded.rows).into_iter().collect();
                }
                for number in &change.removed {
                    loaded.rows.remove(number);
                }
                loaded
                    .rows
                    .extend(change.added.iter().map(|arrival| arrival.number));
                loaded.numbered_from = numbered_from;
            }
        }
    }

    fn failed(&mut self, error: &QueryError) {
        self.counters.failures += 1;
        let reason = error.to_string();
        if self.last_failure.as_ref() != Some(&reason) {
            self.last_failure = Some(reason.clone());
            self.say(SensorEvent::EvaluationFailed { reason });
        }
        if matches!(error, QueryError::Engine(_) | QueryError::Element { .. }) {
            // The tables may be out of step with the windows.
            self.rebuild();
        }
    }

    fn element(&self, row: Row, key: &Arc<str>) -> StreamElement {
        let parts = || {
            self.sources
                .iter()
                .filter_map(|source| source.parts.get(key))
        };
        let newest = parts().filter_map(Part::time).max();
        let worst = parts()
            .map(|part| part.window.quality())
            .fold(Quality::Good, Quality::worse);
        // A turn that ended in silence ended after the newest receipt.
        let has_turns = |source: &SourceState| source.parts.shape().has_turns();
        let receive_time = match self.sources.iter().any(has_turns) {
            true => self.received.max(newest.unwrap_or(self.received)),
            false => self.received,
        };
        let of_key = || Some(key.to_string()).filter(|key| !key.is_empty());
        StreamElement {
            position: Position::default(),
            source_time: row.source_time.or(newest).unwrap_or_default(),
            receive_time,
            key: row.key.or_else(of_key),
            values: row.values,
            quality: row.quality.unwrap_or(worst),
            origin: self.newest.filter(|_| self.has_single_stream),
        }
    }
}

/// Whether results at `time` come sooner after `last` than `rate` allows.
pub(crate) fn is_too_soon(
    rate: Option<Duration>,
    last: Option<Timestamp>,
    time: Timestamp,
) -> bool {
    let (Some(rate), Some(last)) = (rate, last) else {
        return false;
    };
    let rate = i64::try_from(rate.as_nanos()).unwrap_or(i64::MAX);
    (0..rate).contains(&time.0.saturating_sub(last.0))
}
