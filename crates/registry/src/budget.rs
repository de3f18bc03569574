//! The budget of one query: each entry visited, each row counted and each term read is a step, and
//! rows and terms that are held count as memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use spareval::CancellationToken;

use crate::limits::{Interrupt, SparqlError, SparqlLimits};

/// Number of steps between two evaluations of the interrupt.
const INTERRUPT_EVERY: u64 = 256;
/// Estimated size of a row held for a sort or a group in bytes, without its values and terms: its
/// allocation, and its place in a list or set that is being doubled.
const ROW_BYTES: u64 = 96;
/// Size of a value of a row in bytes.
const VALUE_BYTES: u64 = 8;
/// Size of a row's place in the table of a join in bytes: each key has its own list.
const JOINED_ROW_BYTES: u64 = 128;
/// Size of a pair of nodes in the set of a path whose ends are both open, in bytes; reason: for each entry visited, 26
/// were measured with a path of one step, and 142 with one of three steps.
const PAIR_BYTES: u64 = 96;

/// The budget of one query, shared with the functions that count rows.
pub(crate) struct Budget {
    steps: AtomicU64,
    entries: AtomicU64,
    memory: AtomicU64,
    limits: SparqlLimits,
    interrupt: Interrupt,
    pub(crate) token: CancellationToken,
    /// Steps may be slow (regular expressions): the interrupt is evaluated at each.
    slow: bool,
    /// Reading a term may append its text to a growing one: it counts as memory.
    pub(crate) texts: bool,
    /// Estimated size of a row held, without its terms.
    row_bytes: u64,
    /// Size of what each entry may add to the set of pairs of a path.
    entry_bytes: AtomicU64,
    /// Rows held by each materialised join, by its number.
    built: Mutex<Vec<u64>>,
    over: OnceLock<SparqlError>,
}

/// Traits of a query that determine its cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueryTraits {
    /// It matches regular expressions.
    pub(crate) slow: bool,
    /// It concatenates texts of many rows.
    pub(crate) texts: bool,
    /// It has few patterns.
    pub(crate) small: bool,
    /// The number of its variables.
    pub(crate) variables: usize,
}

/// The query's budget is spent.
#[derive(Debug, thiserror::Error)]
#[error("the query's budget is spent")]
pub(crate) struct BudgetSpent;

impl Budget {
    pub(crate) fn new(
        limits: &SparqlLimits,
        interrupt: &Interrupt,
        traits: QueryTraits,
    ) -> Arc<Self> {
        Arc::new(Self {
            steps: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            limits: limits.clone(),
            interrupt: interrupt.clone(),
            token: CancellationToken::new(),
            slow: traits.slow,
            texts: traits.texts,
            row_bytes: ROW_BYTES + VALUE_BYTES * traits.variables as u64,
            entry_bytes: AtomicU64::new(0),
            built: Mutex::default(),
            over: OnceLock::new(),
        })
    }

    /// The first limit that was exceeded.
    pub(crate) fn verdict(&self) -> Result<(), SparqlError> {
        self.over.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self, error: SparqlError) -> BudgetSpent {
        let _ = self.over.set(error);
        self.token.cancel();
        BudgetSpent
    }

    /// Charges one step.
    pub(crate) fn step(&self) -> Result<(), BudgetSpent> {
        self.charge_steps(1, self.slow)
    }

    pub(crate) fn charge_steps(&self, count: u64, ask: bool) -> Result<(), BudgetSpent> {
        if self.over.get().is_some() {
            return Err(BudgetSpent);
        }
        let before = self.steps.fetch_add(count, Ordering::Relaxed);
        let steps = before.saturating_add(count);
        if steps > self.limits.steps {
            let value = self.limits.steps;
            return Err(self.end(SparqlError::Limit {
                limit: "steps",
                value,
            }));
        }
        let due = ask || before / INTERRUPT_EVERY != steps / INTERRUPT_EVERY;
        if due && self.interrupt.ended() {
            return Err(self.end(SparqlError::Interrupted));
        }
        Ok(())
    }

    /// Counts a row that the join `number` holds; false if the budget is spent.
    pub(crate) fn build(&self, number: usize) -> bool {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if built.len() <= number {
            built.resize(number + 1, 0);
        }
        if let Some(rows) = built.get_mut(number) {
            *rows += 1;
        }
        drop(built);
        self.row(JOINED_ROW_BYTES)
    }

    /// Counts a row that is compared with all rows that the join `number` holds.
    pub(crate) fn probe(&self, number: usize) -> bool {
        let built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = built.get(number).copied().unwrap_or(0);
        drop(built);
        self.charge_steps(1 + rows, true).is_ok()
    }

    pub(crate) fn charge_entry(&self) -> Result<(), BudgetSpent> {
        self.entries.fetch_add(1, Ordering::Relaxed);
        let bytes = self.entry_bytes.load(Ordering::Relaxed);
        if bytes > 0 {
            self.charge_memory(bytes)?;
        }
        self.step()
    }

    /// The query follows a path of any length between nodes that are both unknown: the evaluator holds all pairs.
    pub(crate) fn hold_pairs(&self) {
        self.entry_bytes.store(PAIR_BYTES, Ordering::Relaxed);
    }

    /// What was charged is held no longer.
    pub(crate) fn release_memory(&self, bytes: u64) {
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn charge_memory(&self, bytes: u64) -> Result<(), BudgetSpent> {
        let held = self
            .memory
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        if held > self.limits.memory_bytes {
            let value = self.limits.memory_bytes;
            return Err(self.end(SparqlError::Limit {
                limit: "memory bytes",
                value,
            }));
        }
        Ok(())
    }

    /// Counts a row held in memory, with `extra` bytes; false if the budget is spent.
    pub(crate) fn row(&self, extra: u64) -> bool {
        self.step().is_ok()
            && self
                .charge_memory(self.row_bytes.saturating_add(extra))
                .is_ok()
    }
}
