//! Building the tables from names, types and content models.
//!
//! Content models arrive as proto-grammars (8.5.4.1): [`Node`]s with productions and, where the
//! specification writes `LeftHandSide : RightHandSide`, links without a terminal. Normalization
//! (8.5.4.2) is the subset construction: a state is a set of nodes.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{
    COUNTED, Datatype, Element, NONE, Named, Production, Repeat, Representation, Schema, Shape,
    Span, State, Terminal, Type, URI_EMPTY, URI_XML, URI_XSD, URI_XSI, Uri, WhiteSpace,
    XML_NAMESPACE, XSD_NAMESPACE, XSI_NAMESPACE,
};
use crate::limits::Limits;
use crate::value::DateTimeKind;

/// An expanded name while a schema is built.
pub(crate) type Expanded = (String, String);

/// Built-in types of XML Schema in the order of table D-5, with their base types.
const BUILT_IN: &[(&str, &str)] = &[
    ("ENTITIES", "list ENTITY"),
    ("ENTITY", "NCName"),
    ("ID", "NCName"),
    ("IDREF", "NCName"),
    ("IDREFS", "list IDREF"),
    ("NCName", "Name"),
    ("NMTOKEN", "token"),
    ("NMTOKENS", "list NMTOKEN"),
    ("NOTATION", "anySimpleType"),
    ("Name", "token"),
    ("QName", "anySimpleType"),
    ("anySimpleType", ""),
    ("anyType", ""),
    ("anyURI", "anySimpleType"),
    ("base64Binary", "anySimpleType"),
    ("boolean", "anySimpleType"),
    ("byte", "short"),
    ("date", "anySimpleType"),
    ("dateTime", "anySimpleType"),
    ("decimal", "anySimpleType"),
    ("double", "anySimpleType"),
    ("duration", "anySimpleType"),
    ("float", "anySimpleType"),
    ("gDay", "anySimpleType"),
    ("gMonth", "anySimpleType"),
    ("gMonthDay", "anySimpleType"),
    ("gYear", "anySimpleType"),
    ("gYearMonth", "anySimpleType"),
    ("hexBinary", "anySimpleType"),
    ("int", "long"),
    ("integer", "decimal"),
    ("language", "token"),
    ("long", "integer"),
    ("negativeInteger", "nonPositiveInteger"),
    ("nonNegativeInteger", "integer"),
    ("nonPositiveInteger", "integer"),
    ("normalizedString", "string"),
    ("positiveInteger", "nonNegativeInteger"),
    ("short", "int"),
    ("string", "anySimpleType"),
    ("time", "anySimpleType"),
    ("token", "normalizedString"),
    ("unsignedByte", "unsignedShort"),
    ("unsignedInt", "unsignedLong"),
    ("unsignedLong", "nonNegativeInteger"),
    ("unsignedShort", "unsignedInt"),
];

/// The representation of a built-in type (table 7-1).
fn built_in_representation(name: &str) -> Representation {
    use DateTimeKind as Kind;
    match name {
        "base64Binary" => Representation::Base64,
        "hexBinary" => Representation::Hex,
        "boolean" => Representation::Boolean,
        "dateTime" => Representation::DateTime(Kind::DateTime),
        "time" => Representation::DateTime(Kind::Time),
        "date" => Representation::DateTime(Kind::Date),
        "gYearMonth" => Representation::DateTime(Kind::GYearMonth),
        "gYear" => Representation::DateTime(Kind::GYear),
        "gMonthDay" => Representation::DateTime(Kind::GMonthDay),
        "gDay" => Representation::DateTime(Kind::GDay),
        "gMonth" => Representation::DateTime(Kind::GMonth),
        "decimal" => Representation::Decimal,
        "float" | "double" => Representation::Float,
        "integer" | "long" | "int" | "short" | "nonPositiveInteger" | "negativeInteger" => {
            Representation::Integer
        }
        "byte" => Representation::Bounded {
            least: -128,
            count: 256,
        },
        "nonNegativeInteger" | "positiveInteger" | "unsignedLong" | "unsignedInt"
        | "unsignedShort" => Representation::Unsigned,
        "unsignedByte" => Representation::Bounded {
            least: 0,
            count: 256,
        },
        _ => Representation::String,
    }
}

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

/// Reasons why a grammar cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrammarError {
    /// The grammar has too many states.
    TooLarge,
    /// The copy that a child belongs to is ambiguous.
    Ambiguous,
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
type Normalized = (Vec<(Symbol, u32)>, Shape, u32);

/// An element declaration while a schema is built.
pub(crate) struct ElementDeclaration {
    pub(crate) name: Expanded,
    pub(crate) type_: u32,
    pub(crate) nillable: bool,
    pub(crate) global: bool,
}

/// Collects the contents of the tables.
pub(crate) struct Builder {
    informed: bool,
    /// Namespaces, with their names.
    names: BTreeMap<String, BTreeSet<String>>,
    pub(crate) elements: Vec<ElementDeclaration>,
    types: Vec<Type>,
    type_names: BTreeMap<Expanded, u32>,
    attributes: BTreeMap<Expanded, u32>,
    /// Datatypes of attributes of any scope, by name; xs:string if their declarations differ.
    all_attributes: BTreeMap<Expanded, u32>,
    states: Vec<Normalized>,
    repeats: Vec<Repeat>,
    /// Maximum number of states.
    pub(crate) states_max: usize,
    /// The sizes of all sets of nodes that became states.
    set_nodes: usize,
    pub(crate) datatypes: Vec<(Representation, Option<Expanded>, u32)>,
    /// The white space facet of each datatype.
    white_space: Vec<WhiteSpace>,
    character_sets: Vec<Box<[char]>>,
    /// Datatypes of the built-in simple types by name.
    simple: BTreeMap<&'static str, u32>,
}

impl Builder {
    pub(crate) fn new(informed: bool) -> Self {
        let mut builder = Self {
            informed,
            names: BTreeMap::new(),
            elements: Vec::new(),
            types: Vec::new(),
            type_names: BTreeMap::new(),
            attributes: BTreeMap::new(),
            all_attributes: BTreeMap::new(),
            states: Vec::new(),
            repeats: Vec::new(),
            states_max: Limits::default().grammar_states,
            set_nodes: 0,
            datatypes: Vec::new(),
            white_space: Vec::new(),
            character_sets: crate::representation::lexical_sets(),
            simple: BTreeMap::new(),
        };
        for local in ["base", "id", "lang", "space"] {
            builder.add_name(XML_NAMESPACE, local);
        }
        for local in ["nil", "type"] {
            builder.add_name(XSI_NAMESPACE, local);
        }
        if informed {
            builder.add_built_in_types();
        }
        builder
    }

    fn add_built_in_types(&mut self) {
        for (name, _) in BUILT_IN {
            self.add_name(XSD_NAMESPACE, name);
            if *name != "anyType" {
                let representation = built_in_representation(name);
                let expanded = (XSD_NAMESPACE.into(), (*name).into());
                let datatype = self.add_datatype(representation, Some(expanded), NONE);
                self.set_white_space(
                    datatype,
                    match *name {
                        "string" | "anySimpleType" => WhiteSpace::Preserve,
                        "normalizedString" => WhiteSpace::Replace,
                        _ => WhiteSpace::Collapse,
                    },
                );
                self.simple.insert(name, datatype);
            }
        }
        for (name, base) in BUILT_IN {
            let Some(datatype) = self.simple.get(name).copied() else {
                continue;
            };
            if let Some(item) = base.strip_prefix("list ") {
                let item = self.simple[item];
                self.datatypes[datatype as usize].0 = Representation::List(item);
                self.datatypes[datatype as usize].2 = self.simple["anySimpleType"];
            } else if let Some(base) = self.simple.get(base) {
                self.datatypes[datatype as usize].2 = *base;
            }
        }
        for (name, _) in BUILT_IN {
            let type_ = match self.simple.get(name).copied() {
                Some(datatype) => self.add_simple_type(datatype),
                None => self.add_any_type(),
            };
            let subtypes = BUILT_IN.iter().any(|(_, base)| base == name);
            self.types[type_ as usize].castable =
                subtypes || matches!(*name, "anyType" | "anySimpleType");
            self.type_names
                .insert((XSD_NAMESPACE.into(), (*name).into()), type_);
        }
    }

    /// The complex ur-type: any attributes and mixed content.
    fn add_any_type(&mut self) -> u32 {
        let nodes = vec![
            Node {
                productions: vec![(Symbol::AttributeAny, 0, (0, 0))],
                links: vec![1],
                ..Node::default()
            },
            Node {
                productions: vec![
                    (Symbol::ElementAny, 1, (0, 0)),
                    (Symbol::Untyped, 1, (0, 0)),
                ],
                accepts: true,
                ..Node::default()
            },
        ];
        let empty = vec![
            nodes[0].clone(),
            Node {
                accepts: true,
                ..Node::default()
            },
        ];
        self.add_type(&nodes, 1, &empty)
    }

    /// Adds a name to the initial string tables.
    pub(crate) fn add_name(&mut self, uri: &str, local: &str) {
        let names = self.names.entry(uri.into()).or_default();
        names.insert(local.into());
    }

    /// Adds a namespace to the initial string table.
    pub(crate) fn add_namespace(&mut self, uri: &str) {
        self.names.entry(uri.into()).or_default();
    }

    /// Adds a datatype.
    pub(crate) fn add_datatype(
        &mut self,
        representation: Representation,
        name: Option<Expanded>,
        base: u32,
    ) -> u32 {
        let inherited = self.white_space.get(base as usize).copied();
        self.white_space.push(inherited.unwrap_or_default());
        self.datatypes.push((representation, name, base));
        self.datatypes.len() as u32 - 1
    }

    /// Sets the white space facet of a datatype.
    pub(crate) fn set_white_space(&mut self, datatype: u32, white_space: WhiteSpace) {
        self.white_space[datatype as usize] = white_space;
    }

    /// The datatype of a built-in simple type.
    pub(crate) fn built_in_datatype(&self, name: &str) -> Option<u32> {
        self.simple.get(name).copied()
    }

    /// Adds a restricted character set, sorted.
    pub(crate) fn add_character_set(&mut self, set: Vec<char>) -> u32 {
        let known = self.character_sets.iter().position(|other| **other == *set);
        let at = known.unwrap_or_else(|| {
            self.character_sets.push(set.into());
            self.character_sets.len() - 1
        });
        at as u32
    }

    /// Looks up a named type.
    pub(crate) fn find_type(&self, name: &Expanded) -> Option<u32> {
        self.type_names.get(name).copied()
    }

    /// Names a type.
    pub(crate) fn name_type(&mut self, name: Expanded, type_: u32) {
        self.add_name(&name.0, &name.1);
        self.type_names.insert(name, type_);
    }

    /// Marks a type that has named subtypes or is a union.
    pub(crate) fn mark_castable(&mut self, type_: u32) {
        self.types[type_ as usize].castable = true;
    }

    /// Adds a type whose grammars are set later, so that types can refer to themselves.
    pub(crate) fn reserve_type(&mut self) -> u32 {
        self.types.push(Type {
            start: NONE,
            empty: NONE,
            castable: false,
        });
        self.types.len() as u32 - 1
    }

    /// Adds a global attribute declaration.
    pub(crate) fn declare_global_attribute(&mut self, name: Expanded, datatype: u32) {
        self.declare_attribute(&name, datatype);
        self.attributes.insert(name, datatype);
    }

    /// Adds an attribute declaration of any scope.
    pub(crate) fn declare_attribute(&mut self, name: &Expanded, datatype: u32) {
        self.add_name(&name.0, &name.1);
        let string = self.simple["string"];
        let known = self.all_attributes.entry(name.clone()).or_insert(datatype);
        if *known != datatype {
            *known = string;
        }
    }

    /// Adds an element declaration, unless there is an equal one.
    pub(crate) fn declare_element(&mut self, declared: ElementDeclaration) -> u32 {
        self.add_name(&declared.name.0, &declared.name.1);
        let same = |other: &ElementDeclaration| {
            other.type_ == declared.type_
                && other.nillable == declared.nillable
                && other.name == declared.name
        };
        if let Some(at) = self.elements.iter().position(same) {
            self.elements[at].global |= declared.global;
            return at as u32;
        }
        self.elements.push(declared);
        self.elements.len() as u32 - 1
    }

    /// A type of simple content without attributes (8.5.4.1.3.1).
    pub(crate) fn add_simple_type(&mut self, datatype: u32) -> u32 {
        let type_ = self.reserve_type();
        self.set_simple_type(type_, datatype);
        type_
    }

    pub(crate) fn set_simple_type(&mut self, type_: u32, datatype: u32) {
        let end = Node {
            accepts: true,
            ..Node::default()
        };
        let nodes = [
            Node {
                productions: vec![(Symbol::Characters(datatype), 1, (0, 0))],
                ..Node::default()
            },
            end.clone(),
        ];
        // Two states never exceed the limit, and nothing is counted.
        let _ = self.set_type(type_, (&nodes, &[]), 0, &[end]);
    }

    fn add_type(&mut self, nodes: &[Node], content: u32, empty: &[Node]) -> u32 {
        let type_ = self.reserve_type();
        // The states are few, and nothing is counted.
        let _ = self.set_type(type_, (nodes, &[]), content, empty);
        type_
    }

    /// Normalizes the grammars of a type. Node 0 is the entry of each. `content` is the node after
    /// the attributes; in `empty` it is the last node.
    pub(crate) fn set_type(
        &mut self,
        type_: u32,
        nodes: (&[Node], &[Region]),
        content: u32,
        empty: &[Node],
    ) -> Result<(), GrammarError> {
        let start = self.normalize(nodes, content)?;
        let empty = self.normalize((empty, &[]), empty.len() as u32 - 1)?;
        let type_ = &mut self.types[type_ as usize];
        type_.start = start;
        type_.empty = empty;
        Ok(())
    }

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
    fn normalize(
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

impl Builder {
    /// All element names, sorted by local name, then namespace, each with its declaration if there
    /// is only one (8.5.2).
    fn fragment_elements(&self) -> Vec<(Expanded, u32)> {
        let mut found: BTreeMap<(String, String), u32> = BTreeMap::new();
        for (at, element) in self.elements.iter().enumerate() {
            let (uri, local) = element.name.clone();
            let known = found.entry((local, uri)).or_insert(at as u32);
            if *known != at as u32 {
                *known = NONE;
            }
        }
        let swapped = found
            .into_iter()
            .map(|((local, uri), at)| ((uri, local), at));
        swapped.collect()
    }

    /// The relaxed grammar of elements with several different declarations (8.5.3).
    fn add_element_fragment(&mut self, elements: &[(Expanded, u32)]) -> u32 {
        let attribute = |((uri, local), datatype): (&Expanded, &u32)| {
            let (uri, local) = (uri.clone(), local.clone());
            let datatype = *datatype;
            (
                Symbol::Attribute {
                    local,
                    uri,
                    datatype,
                },
                0,
                (0, 0),
            )
        };
        let mut attributes: Vec<_> = self.all_attributes.iter().map(attribute).collect();
        attributes.push((Symbol::AttributeAny, 0, (0, 0)));
        let mut children = Vec::new();
        for (place, (name, element)) in elements.iter().enumerate() {
            let (name, element) = (name.clone(), *element);
            children.push((Symbol::Element { name, element }, 2, (place as u32, 0)));
        }
        children.push((Symbol::ElementAny, 2, (0, 0)));
        children.push((Symbol::Untyped, 2, (0, 0)));
        let start = Node {
            productions: attributes,
            links: vec![1],
            ..Node::default()
        };
        let content = Node {
            productions: children,
            accepts: true,
            ..Node::default()
        };
        let end = Node {
            accepts: true,
            ..Node::default()
        };
        let nodes = [start.clone(), content.clone(), content];
        self.add_type(&nodes, 1, &[start, end])
    }

    /// Builds the tables.
    pub(crate) fn finish(mut self, id: &str) -> Schema {
        let fragment_elements = self.fragment_elements();
        let element_fragment = if self.informed {
            let type_ = self.add_element_fragment(&fragment_elements);
            let mut type_ = self.types[type_ as usize];
            type_.castable = true;
            type_
        } else {
            Type {
                start: NONE,
                empty: NONE,
                castable: false,
            }
        };
        let mut schema = Schema {
            id: id.into(),
            informed: self.informed,
            text: String::new(),
            uris: Vec::new(),
            names: Vec::new(),
            index: Vec::new(),
            elements: Vec::new(),
            global_elements: Vec::new(),
            global_codes: vec![NONE; self.elements.len()],
            fragment_elements: Vec::new(),
            types: core::mem::take(&mut self.types),
            element_fragment,
            states: Vec::new(),
            repeats: core::mem::take(&mut self.repeats),
            productions: Vec::new(),
            datatypes: Vec::new(),
            character_sets: core::mem::take(&mut self.character_sets),
            boolean: self.built_in_datatype("boolean").unwrap_or(NONE),
        };
        self.finish_names(&mut schema);
        let name_of = |schema: &Schema, (uri, local): &Expanded| {
            let uri = schema.uris.iter().position(|u| schema.span(u.text) == uri);
            uri.and_then(|uri| schema.find(uri as u32, local))
                .unwrap_or(NONE)
        };
        for declared in &self.elements {
            schema.elements.push(Element {
                name: name_of(&schema, &declared.name),
                nillable: declared.nillable,
                type_: schema.types[declared.type_ as usize],
            });
        }
        let mut global: Vec<usize> = (0..self.elements.len()).collect();
        global.retain(|at| self.elements[*at].global);
        global.sort_by_key(|at| {
            let (uri, local) = &self.elements[*at].name;
            (local, uri)
        });
        for at in global {
            let name = schema.elements[at].name;
            schema.names[name as usize].element = at as u32;
            schema.global_codes[at] = schema.global_elements.len() as u32;
            schema.global_elements.push(at as u32);
        }
        for (name, element) in &fragment_elements {
            let name = name_of(&schema, name);
            schema.fragment_elements.push((name, *element));
        }
        for (name, datatype) in &self.attributes {
            let name = name_of(&schema, name);
            schema.names[name as usize].attribute = *datatype;
        }
        for (name, type_) in &self.type_names {
            let name = name_of(&schema, name);
            schema.names[name as usize].type_ = *type_;
        }
        let datatypes = core::mem::take(&mut self.datatypes);
        for ((representation, name, base), white_space) in
            datatypes.into_iter().zip(&self.white_space)
        {
            schema.datatypes.push(Datatype {
                representation,
                name: name.map_or(NONE, |name| name_of(&schema, &name)),
                base,
                white_space: *white_space,
            });
        }
        self.finish_states(&mut schema);
        schema
    }

    fn finish_names(&self, schema: &mut Schema) {
        let known = ["", XML_NAMESPACE, XSI_NAMESPACE, XSD_NAMESPACE];
        let known = &known[..if self.informed { 4 } else { 3 }];
        debug_assert_eq!((URI_EMPTY, URI_XML, URI_XSI, URI_XSD), (0, 1, 2, 3));
        let more = self.names.keys().map(String::as_str);
        let more: Vec<&str> = more.filter(|uri| !known.contains(uri)).collect();
        let uris: Vec<&str> = known.iter().copied().chain(more).collect();
        for uri in &uris {
            let text = add_text(&mut schema.text, uri);
            let names = self.names.get(*uri).map_or(0, BTreeSet::len) as u32;
            let before = schema.uris.last();
            let first_name = before.map_or(0, |before| before.first_name + before.names);
            schema.uris.push(Uri {
                text,
                first_name,
                names,
            });
        }
        for (at, uri) in uris.iter().enumerate() {
            for local in self.names.get(*uri).into_iter().flatten() {
                let local = add_text(&mut schema.text, local);
                schema.names.push(Named {
                    uri: at as u32,
                    local,
                    element: NONE,
                    attribute: NONE,
                    type_: NONE,
                });
            }
        }
        schema.index_names();
    }

    fn finish_states(&self, schema: &mut Schema) {
        let uri_of = |schema: &Schema, uri: &str| {
            let found = schema.uris.iter().position(|u| schema.span(u.text) == uri);
            found.map_or(NONE, |at| at as u32)
        };
        let name_of = |schema: &Schema, uri: &str, local: &str| {
            schema.find(uri_of(schema, uri), local).unwrap_or(NONE)
        };
        for (list, shape, content) in &self.states {
            let first = schema.productions.len() as u32;
            let mut attributes = 0;
            let mut end = shape.end;
            for (symbol, next) in list {
                let terminal = match symbol {
                    Symbol::Attribute {
                        local,
                        uri,
                        datatype,
                    } => {
                        attributes += 1;
                        let name = name_of(schema, uri, local);
                        let datatype = *datatype;
                        Terminal::Attribute { name, datatype }
                    }
                    Symbol::AttributeIn(uri) => Terminal::AttributeIn(uri_of(schema, uri)),
                    Symbol::AttributeAny => Terminal::AttributeAny,
                    Symbol::Element { name, element } => Terminal::Element {
                        name: name_of(schema, &name.0, &name.1),
                        element: *element,
                    },
                    Symbol::ElementIn(uri) => Terminal::ElementIn(uri_of(schema, uri)),
                    Symbol::ElementAny => Terminal::ElementAny,
                    Symbol::Characters(datatype) => Terminal::Characters(*datatype),
                    Symbol::Untyped => Terminal::Untyped,
                };
                if terminal_rank(symbol) > 6 && core::mem::take(&mut end) {
                    schema.productions.push(END);
                }
                let next = *next;
                schema.productions.push(Production { terminal, next });
            }
            if end {
                schema.productions.push(END);
            }
            let count = schema.productions.len() as u32 - first;
            schema.states.push(State {
                first,
                count,
                widths: State::widths(count),
                attributes,
                shape: *shape,
                content: *content,
            });
        }
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

const END: Production = Production {
    terminal: Terminal::End,
    next: NONE,
};

fn add_text(text: &mut String, piece: &str) -> Span {
    let start = text.len() as u32;
    text.push_str(piece);
    let length = piece.len() as u32;
    Span { start, length }
}

/// The order of terminals (8.5.4.3). EE is not a symbol; it comes before CH.
fn terminal_rank(symbol: &Symbol) -> u8 {
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
