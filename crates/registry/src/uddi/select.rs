//! Selects, sorts and cuts the results of an inquiry.
//!
//! With a criterion other than names, the cheapest supplies candidates. Otherwise the index of
//! names is walked, or the index of times if the oldest come first; both end early once there are
//! enough rows.

use std::cmp::Ordering;
use std::collections::HashSet;

use oxrdf::NamedNodeRef;

use super::filter::Filter;
use super::graph::Graph;
use super::name::NamePattern;
use super::qualifier::{FindQualifiers, SortOrder};
use super::value::{Language, Text};
use crate::dictionary::Id;
use crate::partition::{Partition, fold};
use crate::uddi_keys::{UddiClass, is_saved_class};
use crate::vocabulary::uddi;

/// The order of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// `None`: the results have no names.
    name: Option<SortOrder>,
    date: SortOrder,
    /// By date, and equal dates by name; otherwise by name, and equal names by date.
    is_date_first: bool,
    is_case_sensitive: bool,
}

impl Order {
    /// For results with names: by name, then by date; by date first if only that was asked for (appendix E, 1.2).
    pub(crate) fn of_names(qualifiers: &FindQualifiers) -> Self {
        let (name, date) = (qualifiers.name_order, qualifiers.date_order);
        Self {
            name: Some(name.unwrap_or(SortOrder::Ascending)),
            is_date_first: name.is_none() && date.is_some(),
            ..Self::of_dates(qualifiers)
        }
    }

    /// For results without names.
    pub(crate) fn of_dates(qualifiers: &FindQualifiers) -> Self {
        Self {
            name: None,
            date: qualifiers.date_order.unwrap_or(SortOrder::Ascending),
            is_date_first: true,
            is_case_sensitive: qualifiers.case_sensitive_match,
        }
    }

    /// Whether the index of folded names has this order.
    fn is_of_names_index(self) -> bool {
        !self.is_date_first && !self.is_case_sensitive && self.name == Some(SortOrder::Ascending)
    }

    fn compare(self, left: &Row<'_>, right: &Row<'_>) -> Ordering {
        let turned = |order: SortOrder, ordering: Ordering| match order {
            SortOrder::Ascending => ordering,
            SortOrder::Descending => ordering.reverse(),
        };
        let names = match self.is_case_sensitive {
            true => left.name.cmp(right.name),
            false => left.folded.cmp(&right.folded),
        };
        let by_name = self
            .name
            .map_or(Ordering::Equal, |order| turned(order, names));
        let by_date = turned(self.date, left.saved.cmp(right.saved));
        let by_both = match self.is_date_first {
            true => by_date.then(by_name),
            false => by_name.then(by_date),
        };
        by_both.then_with(|| left.key.cmp(right.key))
    }
}

/// An inquiry.
pub(crate) struct Selection {
    pub(crate) class: UddiClass,
    /// One of these names matches; none: any name or none.
    pub(crate) names: Vec<NamePattern>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) order: Order,
    pub(crate) max_rows: usize,
}

/// What a result is sorted by.
struct Row<'a> {
    folded: String,
    name: &'a str,
    saved: &'a str,
    key: &'a str,
    id: Id,
}

/// The names or descriptions of an entity.
pub(crate) fn names_of(graph: &Graph<'_>, id: Id, predicate: NamedNodeRef<'_>) -> Vec<Text> {
    let dictionary = &graph.state.dictionary;
    let fields = graph.state.fields(id);
    let objects = fields.iter().flat_map(|fields| fields.objects(predicate));
    let texts = objects.map(|object| Text {
        language: dictionary.language(object).and_then(Language::parse),
        text: dictionary.value(object).to_owned(),
    });
    let texts: Vec<Text> = texts.collect();
    // With the keys of what has these names.
    let bytes: usize = texts.iter().map(|text| text.text.len() + 100).sum();
    if graph.charge(bytes + 100) {
        texts
    } else {
        Vec::new()
    }
}

impl Selection {
    /// The first results, and whether there are more.
    pub(crate) fn run(&self, graph: &Graph<'_>) -> (Vec<Id>, bool) {
        let found = match self.cheapest(graph) {
            Some(at) => self.filtered(graph, at),
            None if self.order.is_date_first => self.walk_times(graph),
            None => self.walk_names(graph),
        };
        let mut rows = sorted(graph, found, self.order);
        let is_truncated = rows.len() > self.max_rows;
        rows.truncate(self.max_rows);
        (rows, is_truncated)
    }

    /// The criterion that reads least.
    fn cheapest(&self, graph: &Graph<'_>) -> Option<usize> {
        let costs = self.filters.iter().map(|filter| filter.cost(graph));
        let cheapest = costs.enumerate().min_by_key(|(_, cost)| *cost);
        cheapest.map(|(at, _)| at)
    }

    fn filtered(&self, graph: &Graph<'_>, at: usize) -> HashSet<Id> {
        let first = self.filters.get(at);
        let mut found = first
            .map(|filter| filter.selected(graph, self.class))
            .unwrap_or_default();
        for (other, filter) in self.filters.iter().enumerate() {
            if other != at {
                found.retain(|id| graph.step() && filter.accepts(graph, self.class, *id));
            }
        }
        found.retain(|id| graph.step() && self.is_shown(graph, *id) && self.has_name(graph, *id));
        found
    }

    /// Whether it may be found at all: a hidden tModel may not.
    fn is_shown(&self, graph: &Graph<'_>, id: Id) -> bool {
        let fields = graph.state.fields(id);
        self.class != UddiClass::TModel
            || fields.is_some_and(|fields| fields.objects(uddi::HIDDEN).next().is_none())
    }

    fn has_name(&self, graph: &Graph<'_>, id: Id) -> bool {
        let dictionary = &graph.state.dictionary;
        let matches = |object: Id| {
            let (text, language) = (dictionary.value(object), dictionary.language(object));
            let mut patterns = self.names.iter();
            patterns.any(|pattern| pattern.matches(text, language))
        };
        let fields = graph.state.fields(id);
        let mut objects = fields.iter().flat_map(|fields| fields.objects(uddi::NAME));
        self.names.is_empty() || objects.any(matches)
    }

    /// Walks the times, the oldest first.
    fn walk_times(&self, graph: &Graph<'_>) -> HashSet<Id> {
        let mut found = HashSet::new();
        let enough = match self.order.date {
            SortOrder::Ascending => self.max_rows,
            SortOrder::Descending => usize::MAX,
        };
        for partition in &graph.partitions {
            let (mut count, mut last) = (0, None);
            let class = self.class as u32;
            let keys = partition.saved.iter_from(|key| *key < [class << 28, 0, 0]);
            for [day, time, id] in keys.take_while(|key| is_saved_class(self.class, key[0])) {
                // Equal times are ordered by key: all of them are read.
                if !graph.step() || count > enough && last != Some([day, time]) {
                    break;
                }
                if self.is_shown(graph, id) && self.has_name(graph, id) && found.insert(id) {
                    count += 1;
                    last = Some([day, time]);
                }
            }
        }
        found
    }

    /// Walks the names: first names, by which results are sorted, in order; then all others.
    fn walk_names(&self, graph: &Graph<'_>) -> HashSet<Id> {
        let (mut found, mut rejected) = (HashSet::new(), HashSet::new());
        for partition in &graph.partitions {
            let patterns: Vec<Option<&NamePattern>> = if self.names.is_empty() {
                vec![None]
            } else {
                self.names.iter().map(Some).collect()
            };
            for pattern in patterns {
                self.walk(graph, partition, pattern, true, (&mut found, &mut rejected));
                if pattern.is_some() {
                    self.walk(
                        graph,
                        partition,
                        pattern,
                        false,
                        (&mut found, &mut rejected),
                    );
                }
            }
            // Without a name it has no key there.
            if self.names.is_empty() {
                self.unnamed(graph, partition, &mut found);
            }
        }
        found
    }

    /// Walks the names that one pattern may match. An entity has a key for each of its names, and
    /// all its names decide at the first, so `rejected` spares the others.
    fn walk(
        &self,
        graph: &Graph<'_>,
        partition: &Partition,
        pattern: Option<&NamePattern>,
        is_first: bool,
        (found, rejected): (&mut HashSet<Id>, &mut HashSet<Id>),
    ) {
        let class = self.class.name_prefix(is_first);
        let prefix = pattern.map(NamePattern::folded_prefix).unwrap_or_default();
        let start = format!("{class}{prefix}");
        let ends_early = is_first && self.order.is_of_names_index();
        let enough = if ends_early {
            self.max_rows
        } else {
            usize::MAX
        };
        let (mut count, mut last) = (0, None);
        let keys = partition.uddi_names.iter_from(|key| *key.text < *start);
        for key in keys.take_while(|key| key.text.starts_with(&start)) {
            let is_after = pattern.is_some_and(NamePattern::is_exact) && *key.text != *start;
            let is_enough = count > enough && last.as_ref() != Some(&key.text);
            if is_after || is_enough || !graph.step() {
                break;
            }
            let folded = key.text.get(class.len()..).unwrap_or_default();
            if rejected.contains(&key.entity)
                || pattern.is_some_and(|pattern| !pattern.admits(folded))
            {
                continue;
            }
            let is_decided = pattern.is_none_or(NamePattern::is_decided_by_text);
            let fits = found.contains(&key.entity)
                || (is_decided || self.has_name(graph, key.entity))
                    && self.is_shown(graph, key.entity);
            if fits {
                found.insert(key.entity);
                count += 1;
                last = Some(key.text);
            } else {
                rejected.insert(key.entity);
            }
        }
    }

    /// Adds the entities without a name: the first in any order by name.
    fn unnamed(&self, graph: &Graph<'_>, partition: &Partition, found: &mut HashSet<Id>) {
        if self.class != UddiClass::Service {
            return;
        }
        let empty = String::new();
        let names = partition.names.iter_from(|key| *key.text < *empty);
        for key in names.take_while(|key| key.text.is_empty() && graph.step()) {
            if graph.fields(key.entity, self.class).is_some() {
                found.insert(key.entity);
            }
        }
    }
}

/// The entities in order.
pub(crate) fn sorted(
    graph: &Graph<'_>,
    ids: impl IntoIterator<Item = Id>,
    order: Order,
) -> Vec<Id> {
    let mut rows: Vec<Row<'_>> = ids.into_iter().filter_map(|id| row(graph, id)).collect();
    rows.sort_by(|left, right| order.compare(left, right));
    rows.into_iter().map(|row| row.id).collect()
}

fn row<'a>(graph: &Graph<'a>, id: Id) -> Option<Row<'a>> {
    let state = graph.state;
    let fields = state.fields(id).filter(|_| graph.step())?;
    let first = |predicate| {
        let object = fields.objects(predicate).next();
        object.map_or("", |id| state.dictionary.value(id))
    };
    let name = first(uddi::NAME);
    Some(Row {
        folded: fold(name),
        name,
        saved: first(uddi::MODIFIED),
        key: state.dictionary.value(id),
        id,
    })
}
