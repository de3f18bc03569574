//! Building the tables from what was declared.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::Builder;
use super::proto::{Expanded, Node, Symbol, terminal_rank};
use crate::schema::{
    Datatype, Element, NONE, Named, Production, Schema, Span, State, Terminal, Type, URI_EMPTY,
    URI_XML, URI_XSD, URI_XSI, Uri, XML_NAMESPACE, XSD_NAMESPACE, XSI_NAMESPACE,
};

const END: Production = Production {
    terminal: Terminal::End,
    next: NONE,
};

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

fn add_text(text: &mut String, piece: &str) -> Span {
    let start = text.len() as u32;
    text.push_str(piece);
    let length = piece.len() as u32;
    Span { start, length }
}
