//! Content models and attribute uses as proto-grammars (8.5.4.1).

use alloc::string::String;
use alloc::vec::Vec;

use super::builder::{Builder, Expanded, Node, Order, Region, Symbol, Unmade};

/// From so many occurrences on they are counted rather than copied.
const COUNTED_MIN: u32 = 8;

/// A term and how often it occurs.
#[derive(Clone, Debug)]
pub(crate) struct Particle {
    pub(crate) min: u32,
    /// None: unbounded.
    pub(crate) max: Option<u32>,
    pub(crate) term: Term,
}

/// What occurs.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    /// An element, or any of its substitution group: names with their declarations, sorted.
    Element(Vec<(Expanded, u32)>),
    Wildcard(Namespaces),
    Sequence(Vec<Particle>),
    Choice(Vec<Particle>),
    All(Vec<Particle>),
}

/// What a wildcard takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Namespaces {
    /// Any, or any but one.
    Any,
    /// These; the empty one is no namespace.
    These(Vec<String>),
}

impl Namespaces {
    fn symbols(&self, one: fn(String) -> Symbol, any: Symbol) -> Vec<Symbol> {
        match self {
            Self::Any => [any].into(),
            Self::These(these) => these.iter().cloned().map(one).collect(),
        }
    }
}

/// An attribute use.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    pub(crate) name: Expanded,
    pub(crate) required: bool,
    pub(crate) datatype: u32,
}

/// What an element of a complex type contains.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Empty,
    /// A value of this datatype.
    Simple(u32),
    /// Children; mixed with text or not.
    Model {
        particle: Option<Particle>,
        mixed: bool,
    },
}

/// A piece of a proto-grammar: its entry, and where it may end.
struct Piece {
    start: u32,
    ends: Vec<u32>,
}

/// Sets the grammars of a complex type (8.5.4.1.3.2).
pub(crate) fn complex_type(
    builder: &mut Builder,
    type_: u32,
    attributes: Vec<Attribute>,
    wildcard: Option<&Namespaces>,
    content: &Content,
) -> Result<(), Unmade> {
    let all = [Counts::Outermost, Counts::Innermost, Counts::Nothing];
    complex_type_with(builder, type_, attributes, wildcard, content, &all)
}

/// The same with the first of these ways to count that can be told.
fn complex_type_with(
    builder: &mut Builder,
    type_: u32,
    mut attributes: Vec<Attribute>,
    wildcard: Option<&Namespaces>,
    content: &Content,
    all: &[Counts],
) -> Result<(), Unmade> {
    attributes.sort_by(|a, b| (&a.name.1, &a.name.0).cmp(&(&b.name.1, &b.name.0)));
    let mut nodes = Vec::new();
    let behind = attribute_uses(&mut nodes, &attributes, wildcard);
    let mut empty = nodes.clone();
    let content_start = nodes.len() as u32;
    link(&mut nodes, &behind, content_start);
    let end = empty.len() as u32;
    link(&mut empty, &behind, end);
    empty.push(Node {
        accepts: true,
        ..Node::default()
    });
    let mut made = Ok(());
    for counts in all {
        let mut proto = Proto {
            nodes: nodes.clone(),
            nodes_max: builder.states_max,
            regions: Vec::new(),
            counts: *counts,
        };
        let built = proto.content(content);
        let nodes = (&*proto.nodes, &*proto.regions);
        made = built.and_then(|()| builder.set_type(type_, nodes, content_start, &empty));
        if made.is_ok() || proto.regions.is_empty() {
            break;
        }
    }
    made
}

/// Which of many occurrences are counted: an element has one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// Of particles within each other the outer one.
    Outermost,
    /// The inner one.
    Innermost,
    Nothing,
}

/// A proto-grammar that is being built.
struct Proto {
    nodes: Vec<Node>,
    nodes_max: usize,
    regions: Vec<Region>,
    counts: Counts,
}

impl Proto {
    fn content(&mut self, content: &Content) -> Result<(), Unmade> {
        let content_start = self.nodes.len() as u32;
        match content {
            Content::Empty => self.nodes.push(Node {
                accepts: true,
                ..Node::default()
            }),
            Content::Simple(datatype) => {
                let next = content_start + 1;
                self.nodes.push(Node {
                    productions: [(Symbol::Characters(*datatype), next, (0, 0))].into(),
                    ..Node::default()
                });
                self.nodes.push(Node {
                    accepts: true,
                    ..Node::default()
                });
            }
            Content::Model { particle, mixed } => {
                // Its entry must be the first node of the content.
                let entry = self.node()?;
                let piece = match particle {
                    Some(particle) => self.build(particle, &mut 0)?,
                    None => Piece {
                        start: entry,
                        ends: [entry].into(),
                    },
                };
                if piece.start != entry {
                    self.nodes[entry as usize].links.push(piece.start);
                }
                for end in piece.ends {
                    self.nodes[end as usize].accepts = true;
                }
                if *mixed {
                    for at in content_start..self.nodes.len() as u32 {
                        let text = (Symbol::Untyped, at, (u32::MAX, 0));
                        self.nodes[at as usize].productions.push(text);
                    }
                }
            }
        }
        Ok(())
    }

    fn node(&mut self) -> Result<u32, Unmade> {
        if self.nodes.len() >= self.nodes_max {
            return Err(Unmade::TooLarge);
        }
        self.nodes.push(Node::default());
        Ok(self.nodes.len() as u32 - 1)
    }

    /// A particle: copies of its term, of which some may be left out (8.5.4.1.5). `place` is that of
    /// its first leaf, and afterwards that behind its last.
    fn build(&mut self, particle: &Particle, place: &mut u32) -> Result<Piece, Unmade> {
        let Particle { term, max, .. } = particle;
        let first = *place;
        *place += leaves(particle);
        let counts = match self.counts {
            Counts::Outermost => true,
            Counts::Innermost => !has_many(term),
            Counts::Nothing => false,
        };
        let counts = |copies: u32| counts && copies >= COUNTED_MIN;
        // Copies that may be empty need not be there.
        let many = counts(max.unwrap_or(particle.min));
        let min = if many && may_be_empty(term) {
            0
        } else {
            particle.min
        };
        let start = self.node()?;
        let mut ends = Vec::from([start]);
        if counts(min) {
            ends = self.region(term, first, (min, false), &ends)?;
        } else {
            for _ in 0..min {
                ends = self.copy(term, first, &ends)?.ends;
            }
        }
        let Some(max) = *max else {
            let piece = self.copy(term, first, &ends)?;
            link(&mut self.nodes, &piece.ends, piece.start);
            let ends = [piece.start].into();
            return Ok(Piece { start, ends });
        };
        let optional = max.saturating_sub(min);
        if counts(optional) {
            let more = self.region(term, first, (optional, true), &ends)?;
            ends.extend(more);
        } else {
            let mut last = ends.clone();
            for _ in 0..optional {
                last = self.copy(term, first, &last)?.ends;
                ends.extend(&last);
            }
        }
        Ok(Piece { start, ends })
    }

    /// A copy of a term behind these ends.
    fn copy(&mut self, term: &Term, place: u32, from: &[u32]) -> Result<Piece, Unmade> {
        let piece = self.term(term, place)?;
        link(&mut self.nodes, from, piece.start);
        Ok(piece)
    }

    /// Many copies of a term: one that stands for all but the last of them, and the last. Gives where
    /// they may end.
    fn region(
        &mut self,
        term: &Term,
        place: u32,
        (copies, optional): (u32, bool),
        from: &[u32],
    ) -> Result<Vec<u32>, Unmade> {
        let counts = core::mem::replace(&mut self.counts, Counts::Nothing);
        let number = self.regions.len() as u32;
        let begin = self.nodes.len();
        let many = self.copy(term, place, from)?;
        let end = self.nodes.len();
        for node in &mut self.nodes[begin..end] {
            node.region = Some(number);
        }
        for end in &many.ends {
            self.nodes[*end as usize].crosses = true;
        }
        let last = self.term(term, place)?;
        self.regions.push(Region {
            start: many.start,
            to_last: (end - begin) as u32,
            times: copies - 1,
            optional,
        });
        self.counts = counts;
        let mut ends = last.ends;
        ends.extend(many.ends.iter().filter(|_| optional));
        Ok(ends)
    }

    fn lead(&mut self, from: u32, symbols: &[(Symbol, Order)], to: u32) {
        let productions = symbols.iter().cloned();
        self.nodes[from as usize].productions = productions
            .map(|(symbol, place)| (symbol, to, place))
            .collect();
    }

    fn term(&mut self, term: &Term, place: u32) -> Result<Piece, Unmade> {
        if let Some(symbols) = term.symbols(place) {
            let (start, end) = (self.node()?, self.node()?);
            self.lead(start, &symbols, end);
            let ends = [end].into();
            return Ok(Piece { start, ends });
        }
        let mut place = place;
        let start = self.node()?;
        let mut ends: Vec<u32> = Vec::new();
        match term {
            Term::Element(_) | Term::Wildcard(_) => {}
            Term::Sequence(particles) => {
                ends.push(start);
                for particle in particles {
                    let piece = self.build(particle, &mut place)?;
                    link(&mut self.nodes, &ends, piece.start);
                    ends = piece.ends;
                }
            }
            Term::Choice(particles) => {
                for particle in particles {
                    let piece = self.build(particle, &mut place)?;
                    self.nodes[start as usize].links.push(piece.start);
                    ends.extend(piece.ends);
                }
                if particles.is_empty() {
                    ends.push(start);
                }
            }
            Term::All(particles) => {
                for particle in particles {
                    let piece = self.build(particle, &mut place)?;
                    self.nodes[start as usize].links.push(piece.start);
                    link(&mut self.nodes, &piece.ends, start);
                }
                ends.push(start);
            }
        }
        Ok(Piece { start, ends })
    }
}

impl Term {
    /// The terminals of a leaf with their places in schema order; none: it is a model group.
    fn symbols(&self, place: u32) -> Option<Vec<(Symbol, Order)>> {
        let symbols: Vec<Symbol> = match self {
            Self::Element(names) => {
                let symbol = |(name, element): &(Expanded, u32)| Symbol::Element {
                    name: name.clone(),
                    element: *element,
                };
                names.iter().map(symbol).collect()
            }
            Self::Wildcard(namespaces) => namespaces.symbols(Symbol::ElementIn, Symbol::ElementAny),
            _ => return None,
        };
        let symbols = symbols.into_iter().enumerate();
        let placed = symbols.map(|(at, symbol)| (symbol, (place, at as u32)));
        Some(placed.collect())
    }
}

/// The grammars of the attributes one after another; gives the nodes that lead on.
fn attribute_uses(
    nodes: &mut Vec<Node>,
    attributes: &[Attribute],
    wildcard: Option<&Namespaces>,
) -> Vec<u32> {
    let any = |node: u32| -> Vec<(Symbol, u32, Order)> {
        let symbols = wildcard.map_or(Vec::new(), |wildcard| {
            wildcard.symbols(Symbol::AttributeIn, Symbol::AttributeAny)
        });
        symbols
            .into_iter()
            .map(|symbol| (symbol, node, (0, 0)))
            .collect()
    };
    let mut open: Vec<u32> = Vec::new();
    for attribute in attributes {
        let start = nodes.len() as u32;
        link(nodes, &open, start);
        let (uri, local) = attribute.name.clone();
        let datatype = attribute.datatype;
        let mut productions = any(start);
        productions.push((
            Symbol::Attribute {
                local,
                uri,
                datatype,
            },
            start + 1,
            (0, 0),
        ));
        nodes.push(Node {
            productions,
            ..Node::default()
        });
        nodes.push(Node::default());
        open = [start + 1].into();
        if !attribute.required {
            open.push(start);
        }
    }
    if wildcard.is_some() || attributes.is_empty() {
        let start = nodes.len() as u32;
        link(nodes, &open, start);
        nodes.push(Node {
            productions: any(start),
            ..Node::default()
        });
        open = [start].into();
    }
    open
}

fn link(nodes: &mut [Node], from: &[u32], to: u32) {
    for node in from {
        if *node != to {
            nodes[*node as usize].links.push(to);
        }
    }
}

/// Whether a term may be without any child.
fn may_be_empty(term: &Term) -> bool {
    let may = |particle: &Particle| particle.min == 0 || may_be_empty(&particle.term);
    match term {
        Term::Element(_) | Term::Wildcard(_) => false,
        Term::Sequence(particles) | Term::All(particles) => particles.iter().all(may),
        Term::Choice(particles) => particles.is_empty() || particles.iter().any(may),
    }
}

/// Whether something in a term occurs many times.
fn has_many(term: &Term) -> bool {
    match term {
        Term::Element(_) | Term::Wildcard(_) => false,
        Term::Sequence(particles) | Term::Choice(particles) | Term::All(particles) => particles
            .iter()
            .any(|one| one.max.unwrap_or(one.min) >= COUNTED_MIN || has_many(&one.term)),
    }
}

/// How many leaves a term has; they are numbered depth first (8.5.4.3).
fn leaves(particle: &Particle) -> u32 {
    match &particle.term {
        Term::Element(_) | Term::Wildcard(_) => 1,
        Term::Sequence(particles) | Term::Choice(particles) | Term::All(particles) => {
            particles.iter().map(leaves).sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{COUNTED, Schema};
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    /// The schema of one element with such content.
    fn schema(particle: &Particle, counts: &[Counts]) -> Result<Schema, Unmade> {
        let mut builder = Builder::new(true);
        builder.states_max = 2_000;
        let names = ["a", "b", "c", "d"];
        names.iter().for_each(|name| builder.name("", name));
        let type_ = builder.reserve_type();
        let content = Content::Model {
            particle: Some(particle.clone()),
            mixed: false,
        };
        complex_type_with(&mut builder, type_, Vec::new(), None, &content, counts)?;
        builder.name_type(("u".into(), "t".into()), type_);
        Ok(builder.finish(""))
    }

    fn entry(schema: &Schema) -> u32 {
        let uri = schema
            .uris
            .iter()
            .position(|uri| schema.span(uri.text) == "u");
        let name = uri.and_then(|uri| schema.find(uri as u32, "t"));
        let type_ = name.map(|name| schema.names[name as usize].type_);
        schema.types[type_.expect("it is declared") as usize].start
    }

    /// What follows a production when so many copies are behind.
    fn next(schema: &Schema, next: u32, count: u32) -> (u32, u32) {
        if next & COUNTED == 0 {
            return (next, 0);
        }
        let repeat = schema.repeats[(next & !COUNTED) as usize];
        let count = count + repeat.times.min(1);
        match repeat.times > 0 && count >= repeat.times {
            true => (repeat.after, 0),
            false => (repeat.again, count),
        }
    }

    /// Walks through both at once: the same terminals in the same order, wherever they lead.
    fn same(one: &Schema, other: &Schema) -> Result<(), TestCaseError> {
        let mut seen = BTreeSet::new();
        let mut waiting = Vec::from([((entry(one), 0), (entry(other), 0))]);
        while let Some((a, b)) = waiting.pop() {
            if !seen.insert((a, b)) || seen.len() > 2_000 {
                continue;
            }
            let (left, right) = (one.productions(a.0), other.productions(b.0));
            let terminals = |all: &[crate::schema::Production]| {
                all.iter().map(|one| one.terminal).collect::<Vec<_>>()
            };
            prop_assert_eq!(terminals(left), terminals(right));
            for (left, right) in left.iter().zip(right) {
                if left.terminal != crate::schema::Terminal::End {
                    let pair = (next(one, left.next, a.1), next(other, right.next, b.1));
                    waiting.push(pair);
                }
            }
        }
        Ok(())
    }

    fn occurs() -> impl Strategy<Value = (u32, Option<u32>)> {
        prop_oneof![
            4 => (0..2u32, 1..3u32).prop_map(|(min, more)| (min, Some(min.max(1) + more - 1))),
            1 => (0..2u32).prop_map(|min| (min, None)),
            2 => (0..14u32, 0..14u32).prop_map(|(min, more)| (min, Some(min.max(1) + more))),
            1 => (8..12u32).prop_map(|min| (min, None)),
        ]
    }

    fn particle() -> impl Strategy<Value = Particle> {
        let leaf = (0..4usize).prop_map(|at| {
            let name = ["a", "b", "c", "d"][at];
            Term::Element([((String::new(), name.into()), at as u32)].into())
        });
        let make = |(term, (min, max)): (Term, (u32, Option<u32>))| Particle { min, max, term };
        let leaf = (leaf, occurs()).prop_map(make);
        leaf.prop_recursive(3, 8, 3, move |inner| {
            let inner = proptest::collection::vec(inner, 1..4);
            let term = (inner, any::<bool>()).prop_map(|(particles, choice)| match choice {
                true => Term::Choice(particles),
                false => Term::Sequence(particles),
            });
            (term, occurs()).prop_map(make)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn what_is_counted_is_as_copied(particle in particle()) {
            // Too large, or it cannot be told: nothing is counted then.
            if let Ok(copied) = schema(&particle, &[Counts::Nothing]) {
                for counts in [Counts::Outermost, Counts::Innermost] {
                    if let Ok(counted) = schema(&particle, &[counts]) {
                        same(&counted, &copied)?;
                    }
                }
            }
        }
    }

    #[test]
    fn groups_are_counted() {
        let element = |at: usize, min, max| Particle {
            min,
            max,
            term: Term::Element([((String::new(), ["a", "b"][at].into()), at as u32)].into()),
        };
        for first in [
            element(0, 1, Some(1)),
            element(0, 0, Some(1)),
            element(0, 1, None),
        ] {
            for second in [
                element(1, 0, Some(1)),
                element(1, 1, Some(1)),
                element(1, 1, Some(40)),
            ] {
                let (many, maybe) = (second.max == Some(40), first.min == 0);
                if (first.max.is_none() && second.min == 0) || (maybe && many) {
                    // Which copy it is in cannot be told.
                    continue;
                }
                let terms = Vec::from([first.clone(), second]);
                for (min, max) in [(0, 1_000_000), (1_000_000, 1_000_001), (9, 4_000_000_000)] {
                    let particle = Particle {
                        min,
                        max: Some(max),
                        term: Term::Sequence(terms.clone()),
                    };
                    let counts = [Counts::Outermost, Counts::Innermost];
                    let made = schema(&particle, &counts).expect("it is counted");
                    assert!(made.states.len() < 1_000, "{}", made.states.len());
                }
            }
        }
    }
}
