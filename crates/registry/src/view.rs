//! The triples that one principal may see, as the dataset of a SPARQL query.
//!
//! It contains only indexes of what the principal may see, so hidden triples cannot be counted,
//! ordered or found by accident. Everything visible is one default graph, unless the query names
//! others; each visible entity is a named graph, see [`crate::graphs`].
//!
//! The view also holds the query's budget: each entry visited, each row counted and each term read
//! is a step.

use std::cell::RefCell;
use std::cmp::Ordering as Compared;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use chappe_identity::Principal;
use oxrdf::{BlankNode, Term};
use spareval::{CancellationToken, InternalQuad, QueryableDataset};

use crate::dictionary::{Id, LOCAL};
use crate::entity::{MAX_TERM_BYTES, term_bytes};
use crate::graphs::{Dataset, Every, Graph, Listed, Owned, Owners, Quads, Tested};
use crate::limits::{Interrupt, SparqlError, SparqlLimits};
use crate::partition::{Partition, Range, Triples};
use crate::state::State;

/// Number of steps between two evaluations of the interrupt.
const INTERRUPT_EVERY: u64 = 256;
/// Estimated size of a row held for a join, a sort or a group in bytes, without its terms.
const ROW_BYTES: u64 = 64;
/// Estimated size of a term made by the query in bytes, without its text.
const TERM_BYTES: u64 = 96;

/// The budget of one query, shared with the functions that count rows.
pub(crate) struct Budget {
    steps: AtomicU64,
    entries: AtomicU64,
    memory: AtomicU64,
    limits: SparqlLimits,
    interrupt: Interrupt,
    pub(crate) token: CancellationToken,
    /// Reading a term may be slow (regular expressions): the interrupt is evaluated each time.
    slow: bool,
    /// Reading a term may append its text to a growing one: it counts as memory.
    texts: bool,
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

    fn end(&self, error: SparqlError) -> BudgetSpent {
        let _ = self.over.set(error);
        self.token.cancel();
        BudgetSpent
    }

    /// Charges one step.
    pub(crate) fn step(&self) -> Result<(), BudgetSpent> {
        self.charge_steps(1, false)
    }

    /// Charges the reading of a term.
    fn charge_term(&self) -> Result<(), BudgetSpent> {
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
        self.row(0)
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
        self.step()
    }

    fn charge_memory(&self, bytes: u64) -> Result<(), BudgetSpent> {
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
        self.step().is_ok() && self.charge_memory(ROW_BYTES.saturating_add(extra)).is_ok()
    }
}

/// Terms that the query makes itself, and its names for blank nodes.
#[derive(Default)]
struct Local {
    terms: Vec<Term>,
    ids: HashMap<Term, Id>,
    /// Blank nodes in the order in which they were first read: their labels reveal nothing else.
    blanks: Vec<Id>,
    labels: HashMap<Id, usize>,
}

impl Local {
    fn label(&mut self, id: Id) -> String {
        let blanks = &mut self.blanks;
        let label = *self.labels.entry(id).or_insert_with(|| {
            blanks.push(id);
            blanks.len() - 1
        });
        format!("b{label}")
    }

    fn labelled(&self, label: &str) -> Option<Id> {
        let label: usize = label.strip_prefix('b')?.parse().ok()?;
        self.blanks.get(label).copied()
    }
}

/// The dataset of one query.
pub(crate) struct View {
    state: Arc<State>,
    partitions: Arc<[Arc<Partition>]>,
    /// The graphs of the default graph, unless it is everything.
    default: Option<Arc<[Graph]>>,
    /// The named graphs, unless these are all entities.
    named: Option<Arc<[Graph]>>,
    /// The owners whose entities bring triples, unless these are all.
    owners: Option<Owners>,
    budget: Arc<Budget>,
    local: RefCell<Local>,
}

impl View {
    pub(crate) fn new(
        state: &Arc<State>,
        principal: &Principal,
        dataset: &Dataset,
        budget: Arc<Budget>,
    ) -> Self {
        let partitions: Arc<[_]> = state.visible(principal).into();
        let owners = dataset.owners.as_ref();
        let owners = owners.map(|names| Owners::new(state, names));
        let is_owned = |id: &Id| owners.as_ref().is_none_or(|owners| owners.own(state, *id));
        let graphs = |names: &Vec<String>| {
            let ids: BTreeSet<Id> = names
                .iter()
                .filter_map(|name| state.dictionary.iri(name))
                .filter(is_owned)
                .collect();
            let graphs = ids.into_iter();
            graphs
                .filter_map(|id| Graph::find(state, id, &partitions))
                .collect()
        };
        Self {
            state: Arc::clone(state),
            default: dataset.default.as_ref().map(graphs),
            named: dataset.named.as_ref().map(graphs),
            owners,
            partitions,
            budget,
            local: RefCell::default(),
        }
    }

    /// The number of triples that match, each counted once for each set of indexes that holds it:
    /// exact, or at least as many as there are if the query chooses its default graph.
    pub(crate) fn count(&self, pattern: [Option<Id>; 3]) -> usize {
        let [subject, predicate, object] = pattern;
        let range = Range::of(subject, predicate, object);
        let counts = self.partitions.iter();
        let counts = counts.map(|partition| partition.count(range));
        let all = counts.sum::<usize>();
        self.default
            .as_ref()
            .map_or(all, |graphs| all.min(graphs.iter().map(Graph::len).sum()))
    }

    /// How often entities bring a matching triple about something else, if the subject is known.
    pub(crate) fn foreign(&self, pattern: [Option<Id>; 3]) -> usize {
        let counts = self.partitions.iter();
        counts.map(|it| it.count_foreign(pattern)).sum()
    }

    /// The number of triples of a graph; 0 if there is none of this name.
    pub(crate) fn graph_len(&self, name: &Term) -> usize {
        let id = self.known(name);
        let graph = id.and_then(|id| self.graph(id));
        graph.map_or(0, |graph| graph.len())
    }

    /// The average number of triples of a graph.
    pub(crate) fn average_graph(&self) -> u64 {
        let all = self.count([None, None, None]) as u64;
        all / self.entities().max(1)
    }

    /// The named graph `id` of the query.
    fn graph(&self, id: Id) -> Option<Graph> {
        match &self.named {
            None => {
                let owners = self.owners.as_ref();
                let is_owned = owners.is_none_or(|owners| owners.own(&self.state, id));
                is_owned.then(|| Graph::find(&self.state, id, &self.partitions))?
            }
            Some(named) => named.iter().find(|graph| graph.name == id).cloned(),
        }
    }

    /// The number of visible entities.
    pub(crate) fn entities(&self) -> u64 {
        self.partitions
            .iter()
            .map(|partition| partition.names.len() as u64)
            .sum()
    }

    /// The number of `term`, if it occurs in any visible triple.
    pub(crate) fn known(&self, term: &Term) -> Option<Id> {
        if let Term::BlankNode(node) = term {
            return self.local.borrow().labelled(node.as_str());
        }
        let id = self.state.dictionary.id(term.into(), 0)?;
        self.partitions
            .iter()
            .any(|partition| partition.mentions(id))
            .then_some(id)
    }

    /// Each triple of the pattern in all that is visible.
    fn merged(&self, range: Range) -> Merged {
        Merged {
            range,
            partitions: Arc::clone(&self.partitions),
            lists: Lists::None,
            last: None,
            budget: Arc::clone(&self.budget),
            opened: false,
        }
    }

    /// Each triple of the pattern in the default graph of all entities that count.
    fn all(&self, range: Range) -> Quads {
        let merged = self.merged(range);
        match &self.owners {
            None => Quads::Merged(merged),
            Some(owners) => Quads::Owned(Owned {
                merged,
                partitions: Arc::clone(&self.partitions),
                owners: owners.clone(),
                state: Arc::clone(&self.state),
                budget: Arc::clone(&self.budget),
            }),
        }
    }

    /// The triples of the pattern in some graphs, by the shorter path.
    fn within(&self, graphs: Arc<[Graph]>, pattern: [Option<Id>; 3], name: Option<Id>) -> Quads {
        let [subject, predicate, object] = pattern;
        let range = Range::of(subject, predicate, object);
        let indexed = self.partitions.iter();
        let indexed = indexed.map(|partition| partition.count(range));
        let listed = graphs.iter().map(Graph::len);
        let (state, budget) = (Arc::clone(&self.state), Arc::clone(&self.budget));
        if listed.sum::<usize>() <= indexed.sum() {
            return Quads::Listed(Listed {
                graphs,
                pattern,
                name,
                graph: 0,
                at: 0,
                state,
                budget,
            });
        }
        Quads::Tested(Tested {
            merged: self.merged(range),
            graphs,
            name,
            state,
            budget,
        })
    }

    /// The triples of the pattern with the name of each graph that holds them.
    fn every(&self, pattern: [Option<Id>; 3]) -> Quads {
        if let Some(named) = &self.named {
            let graphs = named.iter().map(|graph| {
                let name = Some(graph.name);
                self.within(Arc::new([graph.clone()]), pattern, name)
            });
            return Quads::Several(graphs.collect::<Vec<_>>().into_iter());
        }
        let [subject, predicate, object] = pattern;
        Quads::Every(Every {
            partitions: Arc::clone(&self.partitions),
            range: Range::of(subject, predicate, object),
            owners: self.owners.clone(),
            state: Arc::clone(&self.state),
            budget: Arc::clone(&self.budget),
            at: 0,
            triples: None,
            bringers: None,
        })
    }
}

impl QueryableDataset<'static> for View {
    type InternalTerm = Id;
    type Error = BudgetSpent;

    fn internal_quads_for_pattern(
        &self,
        subject: Option<&Id>,
        predicate: Option<&Id>,
        object: Option<&Id>,
        graph_name: Option<Option<&Id>>,
    ) -> impl Iterator<Item = Result<InternalQuad<Id>, BudgetSpent>> + use<> {
        let pattern = [subject, predicate, object].map(Option::<&Id>::copied);
        // A term made by the query is in no triple, but looking for it costs a step.
        if pattern.iter().flatten().any(|id| *id >= LOCAL) {
            return self.within(Arc::new([]), pattern, None);
        }
        match graph_name {
            None => self.every(pattern),
            Some(None) => match &self.default {
                None => self.all(Range::of(pattern[0], pattern[1], pattern[2])),
                Some(graphs) => self.within(Arc::clone(graphs), pattern, None),
            },
            Some(Some(name)) => {
                let graph = self.graph(*name);
                self.within(graph.into_iter().collect(), pattern, Some(*name))
            }
        }
    }

    fn internal_named_graphs(&self) -> impl Iterator<Item = Result<Id, BudgetSpent>> + use<> {
        let budget = Arc::clone(&self.budget);
        let chosen = self.named.clone();
        let all = chosen.is_none().then(|| Arc::clone(&self.partitions));
        let all = all.into_iter().flat_map(|partitions| {
            let kinds: Vec<_> = partitions.iter().map(|it| it.kinds.iter()).collect();
            kinds.into_iter().flatten().map(|[_, entity]| entity)
        });
        let chosen = chosen.map(|graphs| graphs.to_vec()).unwrap_or_default();
        let chosen = chosen.into_iter().map(|graph| graph.name);
        let (owners, state) = (self.owners.clone(), Arc::clone(&self.state));
        let is_owned = move |id: &Id| owners.as_ref().is_none_or(|owners| owners.own(&state, *id));
        all.chain(chosen)
            .filter(is_owned)
            .map(move |name| budget.charge_entry().map(|()| name))
    }

    fn contains_internal_graph_name(&self, graph_name: &Id) -> Result<bool, BudgetSpent> {
        self.budget.step()?;
        Ok(self.graph(*graph_name).is_some())
    }

    fn internalize_term(&self, term: Term) -> Result<Id, BudgetSpent> {
        self.budget.step()?;
        if let Some(id) = self.known(&term) {
            return Ok(id);
        }
        let mut local = self.local.borrow_mut();
        if let Some(id) = local.ids.get(&term) {
            return Ok(*id);
        }
        let bytes = term_bytes(&term);
        if bytes > MAX_TERM_BYTES {
            let value = MAX_TERM_BYTES as u64;
            return Err(self.budget.end(SparqlError::Limit {
                limit: "bytes of a term",
                value,
            }));
        }
        self.budget.charge_memory(2 * bytes as u64 + TERM_BYTES)?;
        let id = LOCAL | local.terms.len() as Id;
        local.terms.push(term.clone());
        local.ids.insert(term, id);
        Ok(id)
    }

    fn externalize_term(&self, id: Id) -> Result<Term, BudgetSpent> {
        self.budget.charge_term()?;
        let term = if id >= LOCAL {
            self.local
                .borrow()
                .terms
                .get((id - LOCAL) as usize)
                .cloned()
        } else if self.state.dictionary.blank_scope(id).is_some() {
            Some(BlankNode::new_unchecked(self.local.borrow_mut().label(id)).into())
        } else {
            self.state.dictionary.term(id)
        };
        if self.budget.texts
            && let Some(term) = &term
        {
            self.budget.charge_memory(term_bytes(term) as u64)?;
        }
        term.ok_or_else(|| {
            self.budget
                .end(SparqlError::Evaluation("a term has no number".to_owned()))
        })
    }
}

/// Sets of indexes that are opened at the price of one step.
const OPENED_FOR_STEP: usize = 8;

/// The triples of a pattern in all visible indexes, each once, in the order of the index.
pub(crate) struct Merged {
    range: Range,
    partitions: Arc<[Arc<Partition>]>,
    lists: Lists,
    /// The triple returned last: another set of indexes may have it as well.
    last: Option<[Id; 3]>,
    budget: Arc<Budget>,
    opened: bool,
}

/// The triples of each set of indexes that has any.
enum Lists {
    None,
    One(Head),
    Many(BinaryHeap<Head>),
}

/// The next triple of a set of indexes, and those after it. The one whose triple comes first is the greatest.
struct Head {
    key: [Id; 3],
    triples: Triples,
}

impl Head {
    fn of(mut triples: Triples) -> Option<Self> {
        let key = triples.next_key()?;
        Some(Self { key, triples })
    }

    /// Moves to the next triple; false at the end.
    fn advance(&mut self) -> bool {
        let next = self.triples.next_key();
        next.inspect(|key| self.key = *key).is_some()
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Compared {
        other.key.cmp(&self.key)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Compared> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Head {}

impl Lists {
    fn add(self, head: Head) -> Self {
        match self {
            Self::None => Self::One(head),
            Self::One(first) => Self::Many(BinaryHeap::from([first, head])),
            Self::Many(mut heads) => {
                heads.push(head);
                Self::Many(heads)
            }
        }
    }

    /// The key of the first triple of all.
    fn next(&mut self) -> Option<[Id; 3]> {
        match self {
            Self::None => None,
            Self::One(head) => {
                let key = head.key;
                if !head.advance() {
                    *self = Self::None;
                }
                Some(key)
            }
            Self::Many(heads) => {
                let mut first = heads.peek_mut()?;
                let key = first.key;
                if !first.advance() {
                    PeekMut::pop(first);
                }
                Some(key)
            }
        }
    }
}

impl Merged {
    fn open(&mut self) -> Result<(), BudgetSpent> {
        // A lookup costs a step even if it finds nothing.
        let steps = 1 + self.partitions.len() / OPENED_FOR_STEP;
        self.budget.charge_steps(steps as u64, false)?;
        for partition in self.partitions.iter() {
            if let Some(head) = Head::of(partition.triples(self.range)) {
                self.lists = std::mem::replace(&mut self.lists, Lists::None).add(head);
            }
        }
        Ok(())
    }
}

impl Iterator for Merged {
    type Item = Result<[Id; 3], BudgetSpent>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.opened {
            self.opened = true;
            if self.open().is_err() {
                return Some(Err(BudgetSpent));
            }
        }
        loop {
            let key = self.lists.next()?;
            if self.budget.charge_entry().is_err() {
                self.lists = Lists::None;
                return Some(Err(BudgetSpent));
            }
            if self.last.replace(key) == Some(key) {
                continue;
            }
            return Some(Ok(self.range.order.triple(key)));
        }
    }
}
