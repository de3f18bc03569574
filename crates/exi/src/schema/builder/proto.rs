//! Proto-grammars (8.5.4.1): [`Node`]s with productions and, where the specification writes
//! `LeftHandSide : RightHandSide`, links without a terminal.

use alloc::string::String;
use alloc::vec::Vec;

use crate::schema::Shape;

/// An expanded name while a schema is built.
pub(crate) type Expanded = (String, String);

/// A non-terminal of a proto-grammar.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// Terminals, each with its successor node and its position in schema order.
    pub(crate) productions: Vec<(Symbol, u32, Order)>,
    /// Nodes whose productions this node shares.
    pub(crate) links: Vec<u32>,
    /// EE.
    pub(crate) accepts: bool,
    /// The counted region that contains the node.
    pub(crate) region: Option<u32>,
    /// A copy may end at this node and the next one start.
    pub(crate) may_repeat: bool,
}

/// A copy of a particle that stands for many consecutive copies. The copy after it is the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) start: u32,
    /// Distance from each of its nodes to the same node of the last copy.
    pub(crate) to_last: u32,
    /// Number of copies that it stands for.
    pub(crate) times: u32,
    /// The particle may end after any of the copies.
    pub(crate) optional: bool,
}

/// Position of a leaf particle in schema order, and of a terminal among those that the leaf expands
/// to.
pub(crate) type Order = (u32, u32);

/// A terminal while a schema is built.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Symbol {
    /// AT(qname). The local name comes first because it is the first sort key.
    Attribute {
        local: String,
        uri: String,
        datatype: u32,
    },
    AttributeIn(String),
    AttributeAny,
    Element {
        name: Expanded,
        element: u32,
    },
    ElementIn(String),
    ElementAny,
    Characters(u32),
    Untyped,
}

/// A normalized non-terminal: its terminals with their successors, its shape, and the state after
/// undeclared content.
pub(super) type Normalized = (Vec<(Symbol, u32)>, Shape, u32);

/// Reasons why a grammar cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrammarError {
    /// The grammar has too many states.
    TooLarge,
    /// The copy that a child belongs to is ambiguous.
    Ambiguous,
}

/// The order of terminals (8.5.4.3). EE is not a symbol; it comes before CH.
pub(super) fn terminal_rank(symbol: &Symbol) -> u8 {
    match symbol {
        Symbol::Attribute { .. } => 0,
        Symbol::AttributeIn(_) => 1,
        Symbol::AttributeAny => 2,
        Symbol::Element { .. } => 3,
        Symbol::ElementIn(_) => 4,
        Symbol::ElementAny => 5,
        Symbol::Characters(_) | Symbol::Untyped => 7,
    }
}
