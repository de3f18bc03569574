//! Building the tables from names, types and content models. Content models arrive as proto-grammars and are
//! normalized.

mod built_in;
mod finish;
mod normalize;
mod proto;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

pub(crate) use proto::{Expanded, GrammarError, Node, Order, Region, Symbol};

use super::{
    NONE, Repeat, Representation, Type, WhiteSpace, XML_NAMESPACE, XSD_NAMESPACE, XSI_NAMESPACE,
};
use crate::limits::Limits;
use built_in::{BUILT_IN, built_in_representation};
use proto::Normalized;

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
}
