//! Content models and attribute uses as proto-grammars (8.5.4.1).

use alloc::string::String;
use alloc::vec::Vec;

use super::builder::{Builder, Expanded, Node, Order, Symbol};

/// Most nodes of one proto-grammar; reason: `maxOccurs` takes one copy of its term each.
const NODES_MAX: usize = 100_000;

/// A content model that needs too many grammar states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl TooLarge {
    pub(crate) const LIMIT: usize = NODES_MAX;
}

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
) -> Result<(), TooLarge> {
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
    match content {
        Content::Empty => nodes.push(Node {
            accepts: true,
            ..Node::default()
        }),
        Content::Simple(datatype) => {
            let next = nodes.len() as u32 + 1;
            nodes.push(Node {
                productions: [(Symbol::Characters(*datatype), next, (0, 0))].into(),
                ..Node::default()
            });
            nodes.push(Node {
                accepts: true,
                ..Node::default()
            });
        }
        Content::Model { particle, mixed } => {
            // Its entry must be the first node of the content.
            let entry = node(&mut nodes)?;
            let piece = match particle {
                Some(particle) => build(&mut nodes, particle, &mut 0)?,
                None => Piece {
                    start: entry,
                    ends: [entry].into(),
                },
            };
            if piece.start != entry {
                nodes[entry as usize].links.push(piece.start);
            }
            for end in piece.ends {
                nodes[end as usize].accepts = true;
            }
            if *mixed {
                for at in content_start..nodes.len() as u32 {
                    nodes[at as usize]
                        .productions
                        .push((Symbol::Untyped, at, (u32::MAX, 0)));
                }
            }
        }
    }
    builder.set_type(type_, &nodes, content_start, &empty);
    Ok(())
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

fn node(nodes: &mut Vec<Node>) -> Result<u32, TooLarge> {
    if nodes.len() >= NODES_MAX {
        return Err(TooLarge);
    }
    nodes.push(Node::default());
    Ok(nodes.len() as u32 - 1)
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

/// A particle: copies of its term, of which some may be left out (8.5.4.1.5). `place` is that of its
/// first leaf, and afterwards that behind its last.
fn build(nodes: &mut Vec<Node>, particle: &Particle, place: &mut u32) -> Result<Piece, TooLarge> {
    let first = *place;
    *place += leaves(particle);
    let copy = |nodes: &mut Vec<Node>| term(nodes, &particle.term, first);
    let mut whole: Option<Piece> = None;
    let append = |nodes: &mut Vec<Node>, whole: &mut Option<Piece>, next: Piece| {
        *whole = Some(match whole.take() {
            None => next,
            Some(before) => {
                link(nodes, &before.ends, next.start);
                Piece {
                    start: before.start,
                    ends: next.ends,
                }
            }
        });
    };
    for _ in 0..particle.min {
        let piece = copy(nodes)?;
        append(nodes, &mut whole, piece);
    }
    match particle.max {
        Some(max) => {
            for _ in particle.min..max {
                let mut piece = copy(nodes)?;
                if !piece.ends.contains(&piece.start) {
                    piece.ends.push(piece.start);
                }
                append(nodes, &mut whole, piece);
            }
        }
        None => {
            let piece = copy(nodes)?;
            link(nodes, &piece.ends, piece.start);
            let ends = [piece.start].into();
            let start = piece.start;
            append(nodes, &mut whole, Piece { start, ends });
        }
    }
    match whole {
        Some(whole) => Ok(whole),
        None => {
            let start = node(nodes)?;
            let ends = [start].into();
            Ok(Piece { start, ends })
        }
    }
}

fn term(nodes: &mut Vec<Node>, term: &Term, place: u32) -> Result<Piece, TooLarge> {
    let leaf = |nodes: &mut Vec<Node>, symbols: Vec<Symbol>| {
        let (start, end) = (node(nodes)?, node(nodes)?);
        let symbols = symbols.into_iter().enumerate();
        nodes[start as usize].productions = symbols
            .map(|(at, symbol)| (symbol, end, (place, at as u32)))
            .collect();
        let ends = [end].into();
        Ok(Piece { start, ends })
    };
    let mut place = place;
    match term {
        Term::Element(names) => {
            let symbol = |(name, element): &(Expanded, u32)| Symbol::Element {
                name: name.clone(),
                element: *element,
            };
            leaf(nodes, names.iter().map(symbol).collect())
        }
        Term::Wildcard(namespaces) => leaf(
            nodes,
            namespaces.symbols(Symbol::ElementIn, Symbol::ElementAny),
        ),
        Term::Sequence(particles) => {
            let start = node(nodes)?;
            let mut ends: Vec<u32> = [start].into();
            for particle in particles {
                let piece = build(nodes, particle, &mut place)?;
                link(nodes, &ends, piece.start);
                ends = piece.ends;
            }
            Ok(Piece { start, ends })
        }
        Term::Choice(particles) => {
            let start = node(nodes)?;
            let mut ends: Vec<u32> = Vec::new();
            for particle in particles {
                let piece = build(nodes, particle, &mut place)?;
                nodes[start as usize].links.push(piece.start);
                ends.extend(piece.ends);
            }
            if particles.is_empty() {
                ends.push(start);
            }
            Ok(Piece { start, ends })
        }
        Term::All(particles) => {
            let start = node(nodes)?;
            for particle in particles {
                let piece = build(nodes, particle, &mut place)?;
                nodes[start as usize].links.push(piece.start);
                link(nodes, &piece.ends, start);
            }
            let ends = [start].into();
            Ok(Piece { start, ends })
        }
    }
}
