//! Content models and attribute uses as proto-grammars (8.5.4.1).

use alloc::string::String;
use alloc::vec::Vec;

use super::builder::{Builder, Expanded, Node, Order, Symbol, Unmade};

/// From so many occurrences of a single element or wildcard on, they are counted rather than copied.
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
    mut attributes: Vec<Attribute>,
    wildcard: Option<&Namespaces>,
    content: &Content,
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
    let nodes_max = builder.states_max;
    let mut set = |counts: bool| {
        let mut proto = Proto {
            nodes: nodes.clone(),
            nodes_max,
            counts,
        };
        proto.content(content)?;
        builder.set_type(type_, &proto.nodes, content_start, &empty)
    };
    match set(true) {
        // What is repeated is within something that repeats itself.
        Err(Unmade::Ambiguous) => set(false),
        made => made,
    }
}

/// A proto-grammar that is being built.
struct Proto {
    nodes: Vec<Node>,
    nodes_max: usize,
    /// Large numbers of occurrences are counted.
    counts: bool,
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
        let first = *place;
        *place += leaves(particle);
        let occurrences = particle.max.unwrap_or(particle.min);
        if self.counts
            && occurrences >= COUNTED_MIN
            && let Some(symbols) = particle.term.symbols(first)
        {
            return self.counted(particle, &symbols);
        }
        let mut start = None;
        // Where the copies so far may end, and where the last of them does.
        let (mut ends, mut last): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        let optional = particle
            .max
            .map_or(0, |max| max.saturating_sub(particle.min));
        for copy in 0..particle.min.saturating_add(optional) {
            let piece = self.term(&particle.term, first)?;
            link(&mut self.nodes, &last, piece.start);
            let begun = *start.get_or_insert(piece.start);
            if copy < particle.min {
                ends.clear();
            } else if copy == 0 {
                ends.push(begun);
            }
            ends.extend(&piece.ends);
            last = piece.ends;
        }
        if particle.max.is_none() {
            let piece = self.term(&particle.term, first)?;
            link(&mut self.nodes, &piece.ends, piece.start);
            link(&mut self.nodes, &last, piece.start);
            start.get_or_insert(piece.start);
            ends = [piece.start].into();
        }
        match start {
            Some(start) => Ok(Piece { start, ends }),
            None => {
                let start = self.node()?;
                let ends = [start].into();
                Ok(Piece { start, ends })
            }
        }
    }

    /// Many occurrences of one leaf: one node for the first, one for all others that must be there, one
    /// for those that may, and what is behind them.
    fn counted(
        &mut self,
        particle: &Particle,
        symbols: &[(Symbol, Order)],
    ) -> Result<Piece, Unmade> {
        let min = particle.min;
        let start = self.node()?;
        let mut ends: Vec<u32> = Vec::new();
        // From the end to the begin: each leads to the one that was made before it.
        let mut next = match particle.max {
            Some(_) => self.node()?,
            None => {
                let every = self.node()?;
                self.lead(every, symbols, every);
                every
            }
        };
        ends.push(next);
        let free = particle.max.map_or(0, |max| max - min.clamp(1, max));
        for (times, may_end) in [(free, true), (min.saturating_sub(1), false)] {
            if times > 0 {
                let repeated = self.node()?;
                self.lead(repeated, symbols, repeated);
                self.nodes[repeated as usize].repeats = Some((times, next));
                ends.extend(may_end.then_some(repeated));
                next = repeated;
            }
        }
        self.lead(start, symbols, next);
        ends.extend((min == 0).then_some(start));
        Ok(Piece { start, ends })
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

/// How many leaves a term has; they are numbered depth first (8.5.4.3).
fn leaves(particle: &Particle) -> u32 {
    match &particle.term {
        Term::Element(_) | Term::Wildcard(_) => 1,
        Term::Sequence(particles) | Term::Choice(particles) | Term::All(particles) => {
            particles.iter().map(leaves).sum()
        }
    }
}
