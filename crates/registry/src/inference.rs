//! Subclasses and subproperties, followed on request.
//!
//! Such a query answers as if each graph also held what follows by the rules rdfs5, rdfs7, rdfs9
//! and rdfs11 of RDF 1.1 Semantics (section 9.2): with `s p o` also `s q o` for each superproperty
//! `q` of `p`, and with `s rdf:type c` also `s rdf:type d` for each superclass `d` of `c`. The
//! statements of hierarchies themselves are not multiplied; a path such as `rdfs:subClassOf*`
//! follows them.
//!
//! Hierarchies are read from entities of the type `{http://www.w3.org/2002/07/owl#}Ontology` whose
//! owner is one of the authors that the request names: what others state changes no answer.
//! Nothing is stored; the hierarchy of a term is followed when a pattern needs it.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use chappe_identity::Principal;
use spareval::InternalQuad;

use crate::budget::{Budget, BudgetSpent, QueryTraits};
use crate::dictionary::Id;
use crate::graphs::{Dataset, Graph, Quads};
use crate::limits::{Interrupt, SparqlError, SparqlLimits};
use crate::partition::Partition;
use crate::source::{Choice, Pattern, Source};
use crate::state::State;
use crate::vocabulary;

/// Maximum number of terms above or below one; reason: more than the classes of one ontology.
pub(crate) const MAX_HIERARCHY: usize = 10_000;
/// Estimated size of a quad in the set of those returned in bytes.
const SEEN_BYTES: u64 = 40;

/// A kind of hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relation {
    /// `rdfs:subClassOf`.
    SubClass,
    /// `rdfs:subPropertyOf`.
    SubProperty,
}

/// A direction in a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    /// To what is wider.
    Up,
    /// To what is narrower.
    Down,
}

type Question = (Relation, Direction, Id);

/// The ontologies of one query.
pub(crate) struct Hierarchy {
    ontologies: Arc<[Graph]>,
    sub_class: Option<Id>,
    sub_property: Option<Id>,
    rdf_type: Option<Id>,
    known: RefCell<HashMap<Question, Rc<[Id]>>>,
}

/// The stated triples that a pattern needs, and what is said of each.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) pattern: Pattern,
    makes: Makes,
}

#[derive(Clone, Copy, Debug)]
enum Makes {
    /// The same subject with this predicate and, if given, this object.
    Stated(Id, Option<Id>),
    /// The same subject with this predicate and each superclass of the object.
    Classes(Id),
    /// The same triple with each superproperty other than `rdf:type`.
    Properties,
}

impl Hierarchy {
    pub(crate) fn new(
        state: &State,
        visible: &[Arc<Partition>],
        authors: &[String],
        principal: &Principal,
    ) -> Self {
        let iri = |term: oxrdf::NamedNodeRef<'_>| state.dictionary.iri(term.as_str());
        let ontology = state.dictionary.text(vocabulary::ONTOLOGY_TYPE);
        let ontologies = visible.iter().flat_map(|partition| {
            let ids = ontology.map(|first| {
                let keys = partition.types.iter_from(|key| *key < [first, 0]);
                keys.take_while(move |key| key[0] == first)
            });
            ids.into_iter().flatten().map(|[_, entity]| entity)
        });
        let counts = |id: &Id| {
            let fields = state.fields(*id);
            let is_author = |owner: &str| authors.iter().any(|author| covers(author, owner));
            fields.is_some_and(|fields| is_author(fields.owner()))
        };
        // Several sets of indexes may hold one.
        let ontologies: BTreeSet<Id> = ontologies.filter(counts).collect();
        Self {
            ontologies: ontologies
                .into_iter()
                .filter_map(|id| Graph::find(state, id, visible, principal))
                .collect(),
            sub_class: iri(vocabulary::SUB_CLASS_OF),
            sub_property: iri(vocabulary::SUB_PROPERTY_OF),
            rdf_type: iri(vocabulary::RDF_TYPE),
            known: RefCell::default(),
        }
    }

    /// The term itself, and all above or below it. A cycle ends where it started.
    pub(crate) fn closure(
        &self,
        source: &Source,
        relation: Relation,
        direction: Direction,
        term: Id,
    ) -> Result<Rc<[Id]>, BudgetSpent> {
        let key = (relation, direction, term);
        if let Some(known) = self.known.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let predicate = match relation {
            Relation::SubClass => self.sub_class,
            Relation::SubProperty => self.sub_property,
        };
        let (mut found, mut waiting) = (vec![term], VecDeque::from([term]));
        let mut seen = HashSet::from([term]);
        while let (Some(next), Some(_)) = (waiting.pop_front(), predicate) {
            let pattern = match direction {
                Direction::Up => [Some(next), predicate, None],
                Direction::Down => [None, predicate, Some(next)],
            };
            for quad in source.within(Arc::clone(&self.ontologies), pattern, None) {
                let quad = quad?;
                let other = match direction {
                    Direction::Up => quad.object,
                    Direction::Down => quad.subject,
                };
                if !seen.insert(other) {
                    continue;
                }
                if found.len() == MAX_HIERARCHY {
                    return Err(source.budget.end(SparqlError::Limit {
                        limit: "terms of a hierarchy",
                        value: MAX_HIERARCHY as u64,
                    }));
                }
                found.push(other);
                waiting.push_back(other);
            }
        }
        source.budget.charge_memory(8 * found.len() as u64)?;
        let found: Rc<[Id]> = found.into();
        self.known.borrow_mut().insert(key, Rc::clone(&found));
        Ok(found)
    }

    /// The stated triples that a pattern needs.
    pub(crate) fn jobs(&self, source: &Source, pattern: Pattern) -> Result<Vec<Job>, BudgetSpent> {
        let [subject, predicate, object] = pattern;
        let Some(predicate) = predicate else {
            let mut jobs = vec![Job {
                pattern,
                makes: Makes::Properties,
            }];
            if let Some(rdf_type) = self.rdf_type {
                // What follows from classes has `rdf:type`, and the superproperties that it may have.
                let wider = self.closure(source, Relation::SubProperty, Direction::Up, rdf_type)?;
                for predicate in wider.iter() {
                    jobs.extend(self.jobs(source, [subject, Some(*predicate), object])?);
                }
            }
            return Ok(jobs);
        };
        let down = |relation, term| self.closure(source, relation, Direction::Down, term);
        let properties = down(Relation::SubProperty, predicate)?;
        let mut jobs = Vec::new();
        let mut add = |properties: &[Id], objects: &[Option<Id>], makes: Makes| {
            let count = properties.len().saturating_mul(objects.len());
            source.budget.charge_steps(count as u64, false)?;
            jobs.extend(properties.iter().flat_map(|property| {
                objects.iter().map(|object| Job {
                    pattern: [subject, Some(*property), *object],
                    makes,
                })
            }));
            Ok(())
        };
        if Some(predicate) != self.rdf_type {
            add(&properties, &[object], Makes::Stated(predicate, None))?;
        }
        if let Some(rdf_type) = self.rdf_type.filter(|it| properties.contains(it)) {
            let types = down(Relation::SubProperty, rdf_type)?;
            match object {
                None => add(&types, &[None], Makes::Classes(predicate))?,
                Some(class) => {
                    let classes = down(Relation::SubClass, class)?;
                    let classes: Vec<_> = classes.iter().copied().map(Some).collect();
                    add(&types, &classes, Makes::Stated(predicate, object))?;
                }
            }
        }
        Ok(jobs)
    }
}

/// Whether an author of a request is this owner, or a prefix of it that ends in `*`.
fn covers(author: &str, owner: &str) -> bool {
    match author.strip_suffix('*') {
        Some(prefix) => owner.starts_with(prefix),
        None => author == owner,
    }
}

/// The IRI and those of its subclasses and subproperties.
pub(crate) fn narrower(
    state: &Arc<State>,
    iri: &str,
    authors: &[String],
    principal: &Principal,
    (limits, interrupt): (&SparqlLimits, &Interrupt),
) -> Result<Vec<String>, SparqlError> {
    let budget = Budget::new(limits, interrupt, QueryTraits::default());
    let dataset = Dataset {
        inferred_by: Some(authors.to_vec()),
        ..Dataset::default()
    };
    let source = Source::new(state, principal, &dataset, Arc::clone(&budget));
    let mut all = BTreeSet::from([iri.to_owned()]);
    let (Some(term), Some(hierarchy)) = (state.dictionary.iri(iri), &source.hierarchy) else {
        return Ok(all.into_iter().collect());
    };
    for relation in [Relation::SubClass, Relation::SubProperty] {
        let found = hierarchy.closure(&source, relation, Direction::Down, term);
        budget.verdict()?;
        let found = found.unwrap_or_else(|BudgetSpent| Rc::new([]));
        all.extend(
            found
                .iter()
                .map(|id| state.dictionary.value(*id).to_owned()),
        );
    }
    Ok(all.into_iter().collect())
}

/// The triples of a pattern and what follows from them, each once in each graph.
pub(crate) struct Inferred {
    source: Rc<Source>,
    choice: Choice,
    jobs: std::vec::IntoIter<Job>,
    stated: Option<(Quads, Makes)>,
    /// What follows from the last triple.
    waiting: Vec<InternalQuad<Id>>,
    seen: HashSet<(Pattern, Option<Id>)>,
    /// One pattern makes nothing twice.
    may_repeat: bool,
    is_spent: bool,
}

impl Inferred {
    pub(crate) fn new(
        source: Rc<Source>,
        jobs: Result<Vec<Job>, BudgetSpent>,
        choice: Choice,
    ) -> Self {
        let is_spent = jobs.is_err();
        let jobs = jobs.unwrap_or_default();
        let may_repeat = !matches!(
            jobs.as_slice(),
            [Job {
                makes: Makes::Stated(..),
                ..
            }]
        );
        Self {
            source,
            choice,
            jobs: jobs.into_iter(),
            stated: None,
            waiting: Vec::new(),
            seen: HashSet::new(),
            may_repeat,
            is_spent,
        }
    }

    pub(crate) fn next(&mut self) -> Option<Result<InternalQuad<Id>, BudgetSpent>> {
        let next = self.next_or_spent();
        if let Some(Err(_)) = &next {
            // Ends after the error.
            self.jobs = Vec::new().into_iter();
            (self.stated, self.is_spent) = (None, false);
            self.waiting.clear();
        }
        next
    }

    fn next_or_spent(&mut self) -> Option<Result<InternalQuad<Id>, BudgetSpent>> {
        if self.is_spent {
            return Some(Err(BudgetSpent));
        }
        loop {
            if let Some(quad) = self.waiting.pop() {
                match self.is_new(&quad) {
                    Ok(true) => return Some(Ok(quad)),
                    Ok(false) => continue,
                    Err(spent) => return Some(Err(spent)),
                }
            }
            let Some((quads, makes)) = &mut self.stated else {
                let job = self.jobs.next()?;
                let quads = self.source.stated(job.pattern, self.choice);
                self.stated = Some((quads, job.makes));
                continue;
            };
            let makes = *makes;
            match quads.next() {
                None => self.stated = None,
                Some(Err(spent)) => return Some(Err(spent)),
                Some(Ok(quad)) => {
                    if let Err(spent) = self.follow(quad, makes) {
                        return Some(Err(spent));
                    }
                }
            }
        }
    }

    fn is_new(&mut self, quad: &InternalQuad<Id>) -> Result<bool, BudgetSpent> {
        if !self.may_repeat {
            return Ok(true);
        }
        let triple = [quad.subject, quad.predicate, quad.object].map(Some);
        if !self.seen.insert((triple, quad.graph_name)) {
            self.source.budget.step()?;
            return Ok(false);
        }
        self.source.budget.charge_memory(SEEN_BYTES)?;
        Ok(true)
    }

    /// Adds what follows from a stated triple.
    fn follow(&mut self, quad: InternalQuad<Id>, makes: Makes) -> Result<(), BudgetSpent> {
        let Some(hierarchy) = &self.source.hierarchy else {
            return Ok(());
        };
        let (subject, object, graph_name) = (quad.subject, quad.object, quad.graph_name);
        let made = |predicate, object| InternalQuad {
            subject,
            predicate,
            object,
            graph_name,
        };
        let up = |relation, term| hierarchy.closure(&self.source, relation, Direction::Up, term);
        match makes {
            Makes::Stated(predicate, class) => {
                self.waiting.push(made(predicate, class.unwrap_or(object)));
            }
            Makes::Classes(predicate) => {
                let classes = up(Relation::SubClass, object)?;
                let classes = classes.iter().map(|class| made(predicate, *class));
                self.waiting.extend(classes);
            }
            Makes::Properties => {
                let properties = up(Relation::SubProperty, quad.predicate)?;
                let properties = properties.iter();
                let others = properties.filter(|other| Some(**other) != hierarchy.rdf_type);
                self.waiting
                    .extend(others.map(|other| made(*other, object)));
            }
        }
        Ok(())
    }
}

impl Drop for Inferred {
    fn drop(&mut self) {
        let bytes = SEEN_BYTES * self.seen.len() as u64;
        self.source.budget.release_memory(bytes);
    }
}
