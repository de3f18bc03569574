//! Content models and attribute uses as proto-grammars (8.5.4.1).

use alloc::string::String;
use alloc::vec::Vec;

use super::builder::{Builder, Expanded, GrammarError, Node, Order, Region, Symbol};

/// Minimum number of occurrences that are counted in place of copied.
const COUNTED_MIN: u32 = 8;

/// A term and its number of occurrences.
#[derive(Clone, Debug)]
pub(crate) struct Particle {
    pub(crate) min: u32,
    /// None means unbounded.
    pub(crate) max: Option<u32>,
    pub(crate) term: Term,
}

/// A term of a content model.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    /// An element or its substitution group: names with their declarations, sorted.
    Element(Vec<(Expanded, u32)>),
    Wildcard(Namespaces),
    Sequence(Vec<Particle>),
    Choice(Vec<Particle>),
    All(Vec<Particle>),
}

/// The namespaces of a wildcard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Namespaces {
    /// Any namespace, or any but one.
    Any,
    /// The listed namespaces; the empty string stands for no namespace.
    Listed(Vec<String>),
}

impl Namespaces {
    fn symbols(&self, one: fn(String) -> Symbol, any: Symbol) -> Vec<Symbol> {
        match self {
            Self::Any => [any].into(),
            Self::Listed(listed) => listed.iter().cloned().map(one).collect(),
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

/// The content of a complex type.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Empty,
    /// A value of this datatype.
    Simple(u32),
    /// Children, possibly mixed with text.
    Model {
        particle: Option<Particle>,
        mixed: bool,
    },
}

/// A part of a proto-grammar: its entry and the nodes at which it may end.
struct Fragment {
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
) -> Result<(), GrammarError> {
    let all = [
        CountedParticles::Outermost,
        CountedParticles::Innermost,
        CountedParticles::Nothing,
    ];
    complex_type_with(builder, type_, attributes, wildcard, content, &all)
}

/// Sets the grammars with the first way of counting that is unambiguous.
fn complex_type_with(
    builder: &mut Builder,
    type_: u32,
    mut attributes: Vec<Attribute>,
    wildcard: Option<&Namespaces>,
    content: &Content,
    all: &[CountedParticles],
) -> Result<(), GrammarError> {
    attributes.sort_by(|a, b| (&a.name.1, &a.name.0).cmp(&(&b.name.1, &b.name.0)));
    let mut nodes = Vec::new();
    let open_ends = attribute_uses(&mut nodes, &attributes, wildcard);
    let mut empty = nodes.clone();
    let content_start = nodes.len() as u32;
    link(&mut nodes, &open_ends, content_start);
    let end = empty.len() as u32;
    link(&mut empty, &open_ends, end);
    empty.push(Node {
        accepts: true,
        ..Node::default()
    });
    let mut made = Ok(());
    for counts in all {
        let mut proto = ProtoGrammar {
            nodes: nodes.clone(),
            nodes_max: builder.states_max,
            regions: Vec::new(),
            counts: *counts,
        };
        let built = proto.add_content(content);
        let nodes = (&*proto.nodes, &*proto.regions);
        made = built.and_then(|()| builder.set_type(type_, nodes, content_start, &empty));
        if made.is_ok() || proto.regions.is_empty() {
            break;
        }
    }
    made
}

/// The particles that are counted. An element has only one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedParticles {
    /// Of nested particles, the outermost one.
    Outermost,
    /// Of nested particles, the innermost one.
    Innermost,
    Nothing,
}

/// A proto-grammar under construction.
struct ProtoGrammar {
    nodes: Vec<Node>,
    nodes_max: usize,
    regions: Vec<Region>,
    counts: CountedParticles,
}

impl ProtoGrammar {
    fn add_content(&mut self, content: &Content) -> Result<(), GrammarError> {
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
                // The entry must be the first node of the content.
                let entry = self.add_node()?;
                let fragment = match particle {
                    Some(particle) => self.add_particle(particle, &mut 0)?,
                    None => Fragment {
                        start: entry,
                        ends: [entry].into(),
                    },
                };
                if fragment.start != entry {
                    self.nodes[entry as usize].links.push(fragment.start);
                }
                for end in fragment.ends {
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

    fn add_node(&mut self) -> Result<u32, GrammarError> {
        if self.nodes.len() >= self.nodes_max {
            return Err(GrammarError::TooLarge);
        }
        self.nodes.push(Node::default());
        Ok(self.nodes.len() as u32 - 1)
    }

    /// Builds a particle from copies of its term, some of them optional (8.5.4.1.5). `place` is the
    /// position of its first leaf, and afterwards the position after its last leaf.
    fn add_particle(
        &mut self,
        particle: &Particle,
        place: &mut u32,
    ) -> Result<Fragment, GrammarError> {
        let Particle { term, max, .. } = particle;
        let first = *place;
        *place += leaf_count(particle);
        let counts = match self.counts {
            CountedParticles::Outermost => true,
            CountedParticles::Innermost => !has_counted_particle(term),
            CountedParticles::Nothing => false,
        };
        let counts = |copies: u32| counts && copies >= COUNTED_MIN;
        // Copies that may be empty are optional.
        let many = counts(max.unwrap_or(particle.min));
        let min = if many && is_emptiable(term) {
            0
        } else {
            particle.min
        };
        let start = self.add_node()?;
        let mut ends = Vec::from([start]);
        if counts(min) {
            ends = self.add_region(term, first, (min, false), &ends)?;
        } else {
            for _ in 0..min {
                ends = self.add_copy(term, first, &ends)?.ends;
            }
        }
        let Some(max) = *max else {
            let fragment = self.add_copy(term, first, &ends)?;
            link(&mut self.nodes, &fragment.ends, fragment.start);
            let ends = [fragment.start].into();
            return Ok(Fragment { start, ends });
        };
        let optional = max.saturating_sub(min);
        if counts(optional) {
            let more = self.add_region(term, first, (optional, true), &ends)?;
            ends.extend(more);
        } else {
            let mut last = ends.clone();
            for _ in 0..optional {
                last = self.add_copy(term, first, &last)?.ends;
                ends.extend(&last);
            }
        }
        Ok(Fragment { start, ends })
    }

    /// Adds a copy of a term after these ends.
    fn add_copy(
        &mut self,
        term: &Term,
        place: u32,
        from: &[u32],
    ) -> Result<Fragment, GrammarError> {
        let fragment = self.add_term(term, place)?;
        link(&mut self.nodes, from, fragment.start);
        Ok(fragment)
    }

    /// Adds many copies of a term: one that stands for all but the last, and the last. Returns the
    /// nodes at which they may end.
    fn add_region(
        &mut self,
        term: &Term,
        place: u32,
        (copies, optional): (u32, bool),
        from: &[u32],
    ) -> Result<Vec<u32>, GrammarError> {
        let counts = core::mem::replace(&mut self.counts, CountedParticles::Nothing);
        let number = self.regions.len() as u32;
        let begin = self.nodes.len();
        let many = self.add_copy(term, place, from)?;
        let end = self.nodes.len();
        for node in &mut self.nodes[begin..end] {
            node.region = Some(number);
        }
        for end in &many.ends {
            self.nodes[*end as usize].may_repeat = true;
        }
        let last = self.add_term(term, place)?;
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

    fn add_productions(&mut self, from: u32, symbols: &[(Symbol, Order)], to: u32) {
        let productions = symbols.iter().cloned();
        self.nodes[from as usize].productions = productions
            .map(|(symbol, place)| (symbol, to, place))
            .collect();
    }

    fn add_term(&mut self, term: &Term, place: u32) -> Result<Fragment, GrammarError> {
        if let Some(symbols) = term.symbols(place) {
            let (start, end) = (self.add_node()?, self.add_node()?);
            self.add_productions(start, &symbols, end);
            let ends = [end].into();
            return Ok(Fragment { start, ends });
        }
        let mut place = place;
        let start = self.add_node()?;
        let mut ends: Vec<u32> = Vec::new();
        match term {
            Term::Element(_) | Term::Wildcard(_) => {}
            Term::Sequence(particles) => {
                ends.push(start);
                for particle in particles {
                    let fragment = self.add_particle(particle, &mut place)?;
                    link(&mut self.nodes, &ends, fragment.start);
                    ends = fragment.ends;
                }
            }
            Term::Choice(particles) => {
                for particle in particles {
                    let fragment = self.add_particle(particle, &mut place)?;
                    self.nodes[start as usize].links.push(fragment.start);
                    ends.extend(fragment.ends);
                }
                if particles.is_empty() {
                    ends.push(start);
                }
            }
            Term::All(particles) => {
                for particle in particles {
                    let fragment = self.add_particle(particle, &mut place)?;
                    self.nodes[start as usize].links.push(fragment.start);
                    link(&mut self.nodes, &fragment.ends, start);
                }
                ends.push(start);
            }
        }
        Ok(Fragment { start, ends })
    }
}

impl Term {
    /// The terminals of a leaf with their positions in schema order; none if the term is a model
    /// group.
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

/// Adds the grammars of the attributes in order; returns the nodes that lead to the content.
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

/// Returns true if a term may occur without any child.
fn is_emptiable(term: &Term) -> bool {
    let may = |particle: &Particle| particle.min == 0 || is_emptiable(&particle.term);
    match term {
        Term::Element(_) | Term::Wildcard(_) => false,
        Term::Sequence(particles) | Term::All(particles) => particles.iter().all(may),
        Term::Choice(particles) => particles.is_empty() || particles.iter().any(may),
    }
}

/// Returns true if a particle within a term occurs often enough to be counted.
fn has_counted_particle(term: &Term) -> bool {
    match term {
        Term::Element(_) | Term::Wildcard(_) => false,
        Term::Sequence(particles) | Term::Choice(particles) | Term::All(particles) => {
            particles.iter().any(|one| {
                one.max.unwrap_or(one.min) >= COUNTED_MIN || has_counted_particle(&one.term)
            })
        }
    }
}

/// Number of leaves of a particle; leaves are numbered depth first (8.5.4.3).
fn leaf_count(particle: &Particle) -> u32 {
    match &particle.term {
        Term::Element(_) | Term::Wildcard(_) => 1,
        Term::Sequence(particles) | Term::Choice(particles) | Term::All(particles) => {
            particles.iter().map(leaf_count).sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{COUNTED, Schema};
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    /// A schema of one type with this content.
    fn schema(particle: &Particle, counts: &[CountedParticles]) -> Result<Schema, GrammarError> {
        let mut builder = Builder::new(true);
        builder.states_max = 2_000;
        let names = ["a", "b", "c", "d"];
        names.iter().for_each(|name| builder.add_name("", name));
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

    /// The successor of a production after `count` copies.
    fn next(schema: &Schema, next: u32, count: u32) -> (u32, u32) {
        if next & COUNTED == 0 {
            return (next, 0);
        }
        let repeat = schema.repeats[(next & !COUNTED) as usize];
        let count = count + repeat.copies.min(1);
        match repeat.copies > 0 && count >= repeat.copies {
            true => (repeat.after_last, 0),
            false => (repeat.next_copy, count),
        }
    }

    /// Walks through both schemas in parallel and compares the terminals of each state.
    fn assert_equal_grammars(one: &Schema, other: &Schema) -> Result<(), TestCaseError> {
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
        fn counted_particles_equal_copied_ones(particle in particle()) {
            // Grammars that are too large or ambiguous are not counted.
            if let Ok(copied) = schema(&particle, &[CountedParticles::Nothing]) {
                for counts in [CountedParticles::Outermost, CountedParticles::Innermost] {
                    if let Ok(counted) = schema(&particle, &[counts]) {
                        assert_equal_grammars(&counted, &copied)?;
                    }
                }
            }
        }
    }

    #[test]
    fn large_groups_are_counted() {
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
                    // The copy is ambiguous.
                    continue;
                }
                let terms = Vec::from([first.clone(), second]);
                for (min, max) in [(0, 1_000_000), (1_000_000, 1_000_001), (9, 4_000_000_000)] {
                    let particle = Particle {
                        min,
                        max: Some(max),
                        term: Term::Sequence(terms.clone()),
                    };
                    let counts = [CountedParticles::Outermost, CountedParticles::Innermost];
                    let made = schema(&particle, &counts).expect("the group can be counted");
                    assert!(made.states.len() < 1_000, "{}", made.states.len());
                }
            }
        }
    }
}
