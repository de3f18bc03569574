//! Normalization of proto-grammars (8.5.4.2), a subset construction: a state is a set of nodes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Builder;
use super::proto::{GrammarError, Node, Normalized, Order, Region, Symbol, terminal_rank};
use crate::schema::{COUNTED, NONE, Repeat, Shape};

/// Position of a node relative to the counted copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CopyPosition {
    /// In the counted copy.
    Current,
    /// In the following copy.
    Next,
    /// Outside, or before, any counted copy.
    Outside,
}

/// A set of nodes and the region that is being counted.
type NodeSet = (Option<u32>, BTreeMap<u32, CopyPosition>);

/// Nodes in the sets of all states for each permitted state. Reason: states of the usual content models have few; those of
/// many optional elements or attributes as many as there are left, and with a type for each step of a derivation their sum
/// grows with the cube of its length.
const SET_NODES_PER_STATE: usize = 16;

impl Builder {
    /// Adds all nodes that a set reaches through links.
    fn closure(
        (nodes, regions): (&[Node], &[Region]),
        core: &BTreeSet<u32>,
    ) -> Result<NodeSet, GrammarError> {
        let mut of = core.iter().map(|node| nodes[*node as usize].region);
        let active = of.next().flatten();
        if of.any(|other| other != active) {
            return Err(GrammarError::Ambiguous);
        }
        let region = active.map(|active| regions[active as usize]);
        let optional = region.is_some_and(|region| region.optional);
        let first = match active {
            Some(_) => CopyPosition::Current,
            None => CopyPosition::Outside,
        };
        let mut closed: BTreeMap<u32, CopyPosition> = BTreeMap::new();
        let mut waiting: Vec<(u32, CopyPosition)> =
            core.iter().map(|node| (*node, first)).collect();
        while let Some((at, position)) = waiting.pop() {
            match closed.get(&at) {
                Some(known) if *known == position => continue,
                // A region that may end at any time loses nothing if the count stays as low as
                // possible.
                Some(CopyPosition::Current) if position == CopyPosition::Next && optional => {
                    continue;
                }
                Some(CopyPosition::Next) if position == CopyPosition::Current && optional => {}
                Some(_) => return Err(GrammarError::Ambiguous),
                None => {}
            }
            closed.insert(at, position);
            let node = &nodes[at as usize];
            for link in &node.links {
                let same =
                    position != CopyPosition::Outside && nodes[*link as usize].region == active;
                waiting.push((
                    *link,
                    if same {
                        position
                    } else {
                        CopyPosition::Outside
                    },
                ));
            }
            if let (true, CopyPosition::Current, Some(region)) = (node.may_repeat, position, region)
                && node.region == active
            {
                waiting.push((region.start, CopyPosition::Next));
            }
        }
        Ok((active, closed))
    }

    /// Normalizes one grammar and returns its entry. Sets that reach the same nodes are one state:
    /// an attribute wildcard at the entry leads back to the entry.
    pub(super) fn normalize(
        &mut self,
        nodes: (&[Node], &[Region]),
        content: u32,
    ) -> Result<u32, GrammarError> {
        let mut states: BTreeMap<NodeSet, u32> = BTreeMap::new();
        let mut order: Vec<NodeSet> = Vec::new();
        let base = self.states.len() as u32;
        let states_max = self.states_max;
        // Many productions lead to the same nodes, whose set takes long to make.
        let mut numbered: BTreeMap<BTreeSet<u32>, u32> = BTreeMap::new();
        // The work and the memory are bounded by the sizes of the sets as well as by their number.
        let set_nodes = &mut self.set_nodes;
        let mut number =
            |core: &BTreeSet<u32>, order: &mut Vec<NodeSet>| -> Result<u32, GrammarError> {
                if let Some(known) = numbered.get(core) {
                    return Ok(*known);
                }
                let set = Self::closure(nodes, core)?;
                *set_nodes += set.1.len();
                if *set_nodes / SET_NODES_PER_STATE > states_max {
                    return Err(GrammarError::TooLarge);
                }
                let state = *states.entry(set.clone()).or_insert_with(|| {
                    order.push(set);
                    base + order.len() as u32 - 1
                });
                numbered.insert(core.clone(), state);
                Ok(state)
            };
        number(&BTreeSet::from([0]), &mut order)?;
        // Without attributes the entry is also the content, and an undeclared child leads to a copy
        // of it.
        let content2 = number(&BTreeSet::from([content]), &mut order)?;
        let content2 = if content == 0 { NONE } else { content2 };
        let mut made: Vec<Normalized> = Vec::new();
        let mut repeats: BTreeMap<Repeat, u32> = BTreeMap::new();
        let first_repeat = self.repeats.len() as u32;
        let mut repeat = |repeat: Repeat| {
            let count = first_repeat + repeats.len() as u32;
            COUNTED | *repeats.entry(repeat).or_insert(count)
        };
        let mut at = 0;
        while at < order.len() {
            let (active, closed) = order[at].clone();
            if self.states.len() + order.len() > states_max {
                return Err(GrammarError::TooLarge);
            }
            let itself = base + at as u32;
            let in_start_tag = closed.keys().any(|node| *node < content);
            let start_tag = in_start_tag || at == 0;
            let accepts = closed.keys().any(|node| nodes.0[*node as usize].accepts);
            let mut list: Vec<(Symbol, u32)> = Vec::new();
            for (_, _, symbol, successor) in transitions(nodes.0, &closed)? {
                let next = match &successor {
                    Successor::Itself if in_start_tag => {
                        number(&BTreeSet::from([content]), &mut order)?
                    }
                    Successor::Itself => itself,
                    Successor::To(_, targets) => number(targets, &mut order)?,
                };
                let counted = active.map(|active| nodes.1[active as usize]);
                let next = match (successor, counted) {
                    (Successor::To(CopyPosition::Next, targets), Some(region)) => {
                        let last = targets.iter().map(|node| node + region.to_last);
                        repeat(Repeat {
                            next_copy: next,
                            copies: region.times,
                            after_last: number(&last.collect(), &mut order)?,
                        })
                    }
                    (Successor::To(CopyPosition::Current, _) | Successor::Itself, Some(_)) => {
                        repeat(Repeat {
                            next_copy: next,
                            copies: 0,
                            after_last: next,
                        })
                    }
                    _ => next,
                };
                list.push((symbol, next));
            }
            let shape = Shape {
                entry: at == 0,
                start_tag,
                end: accepts,
            };
            made.push((list, shape, if start_tag { content2 } else { itself }));
            at += 1;
        }
        // The state after the last attribute still belongs to the start tag; content2 is a copy of
        // it.
        if content2 == NONE {
            let copy = base + made.len() as u32;
            let (list, shape, _) = made[0].clone();
            let shape = Shape {
                entry: false,
                start_tag: false,
                ..shape
            };
            made.push((list, shape, copy));
            made[0].2 = copy;
        }
        self.states.append(&mut made);
        let mut repeats: Vec<(Repeat, u32)> = repeats.into_iter().collect();
        repeats.sort_unstable_by_key(|(_, at)| *at);
        self.repeats
            .extend(repeats.iter().map(|(repeat, _)| *repeat));
        Ok(base)
    }
}

/// The successor of a terminal in a set of nodes.
enum Successor {
    /// Text in mixed content, which leads to the same nodes.
    Itself,
    To(CopyPosition, BTreeSet<u32>),
}

/// The terminals of a set of nodes in the order of their event codes, with their successors.
fn transitions(
    nodes: &[Node],
    closed: &BTreeMap<u32, CopyPosition>,
) -> Result<Vec<(u8, Order, Symbol, Successor)>, GrammarError> {
    let mut found: BTreeMap<Symbol, (Order, Successor)> = BTreeMap::new();
    for (at, position) in closed {
        for (symbol, next, place) in &nodes[*at as usize].productions {
            let is_itself = *symbol == Symbol::Untyped && next == at;
            match found.get_mut(symbol) {
                None => {
                    let successor = match is_itself {
                        true => Successor::Itself,
                        false => Successor::To(*position, BTreeSet::from([*next])),
                    };
                    found.insert(symbol.clone(), (*place, successor));
                }
                Some((_, Successor::Itself)) if is_itself => {}
                Some((known, Successor::To(same, targets))) if same == position && !is_itself => {
                    *known = (*known).min(*place);
                    targets.insert(*next);
                }
                Some(_) => return Err(GrammarError::Ambiguous),
            }
        }
    }
    let mut all: Vec<(u8, Order, Symbol, Successor)> = found
        .into_iter()
        .map(|(symbol, (place, successor))| (terminal_rank(&symbol), place, symbol, successor))
        .collect();
    all.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
    Ok(all)
}
