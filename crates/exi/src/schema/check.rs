//! Validation of loaded tables: every index is valid, every chain ends.
//!
//! The checks cover everything that encoding and decoding rely on to neither panic nor loop. Tables
//! that pass need not describe a real schema.

use super::{
    COUNTED, NONE, Repeat, Representation, Schema, State, Terminal, Type, URI_XSI, XML_NAMESPACE,
    XSD_NAMESPACE, XSI_NAMESPACE,
};
use crate::representation::lexical_sets;

/// Maximum length of a chain of datatypes.
const CHAIN_MAX: usize = 256;
/// Maximum number of values of an n-bit integer (7.1.5).
const BOUNDED_MAX: u32 = 4096;

type Checked = Result<(), &'static str>;

fn ensure(is_index: bool, table: &'static str) -> Checked {
    match is_index {
        true => Ok(()),
        false => Err(table),
    }
}

/// Checks the tables; the error names the faulty one.
pub(super) fn check(schema: &Schema) -> Checked {
    let is_index = |index: u32, length: usize| (index as usize) < length;
    let is_optional_index = |index: u32, length: usize| index == NONE || is_index(index, length);
    names(schema)?;
    let Schema {
        names,
        elements,
        types,
        states,
        datatypes,
        ..
    } = schema;
    let type_ = |type_: &Type| {
        is_index(type_.start, states.len()) && is_optional_index(type_.empty, states.len())
    };
    if !schema.informed {
        let empty = types.is_empty() && elements.is_empty() && states.is_empty();
        let empty = empty && schema.fragment_elements.is_empty() && datatypes.is_empty();
        ensure(empty, "a table that must be empty without a schema")?;
    } else {
        ensure(type_(&schema.element_fragment), "a type's grammar")?;
        ensure(
            is_index(schema.boolean, datatypes.len()),
            "the datatype of xsi:nil",
        )?;
    }
    ensure(types.iter().all(type_), "a type's grammar")?;
    let element = elements
        .iter()
        .all(|one| is_index(one.name, names.len()) && type_(&one.type_));
    ensure(element, "an element declaration")?;
    let mut globals = schema.global_elements.iter();
    ensure(
        globals.all(|at| is_index(*at, elements.len())),
        "a global element",
    )?;
    let mut fragments = schema.fragment_elements.iter();
    let fragment = fragments.all(|(name, element)| {
        is_index(*name, names.len()) && is_optional_index(*element, elements.len())
    });
    ensure(fragment, "an element of fragments")?;
    let mut is_global = alloc::vec![false; elements.len()];
    for at in &schema.global_elements {
        is_global[*at as usize] = true;
    }
    let named = names.iter().enumerate().all(|(at, named)| {
        let element = elements.get(named.element as usize);
        let known = element.is_some_and(|element| {
            element.name as usize == at && is_global[named.element as usize]
        });
        (named.element == NONE || known)
            && is_optional_index(named.attribute, datatypes.len())
            && is_optional_index(named.type_, types.len())
    });
    ensure(named, "a declaration of a name")?;
    states_and_productions(schema)?;
    datatypes_and_sets(schema)
}

/// Checks the names that are known by their index (D.1 to D.3).
fn names(schema: &Schema) -> Checked {
    let known = ["", XML_NAMESPACE, XSI_NAMESPACE, XSD_NAMESPACE];
    let known = &known[..if schema.informed { 4 } else { 3 }];
    let uris = schema.uris.len() >= known.len()
        && (0..).zip(known).all(|(at, known)| schema.uri(at) == *known);
    ensure(uris, "the first namespaces")?;
    let xsi = &schema.uris[URI_XSI as usize];
    let xsi = xsi.names >= 2
        && schema.local(schema.xsi_nil()) == "nil"
        && schema.local(schema.xsi_type()) == "type";
    ensure(xsi, "the names of xsi:nil and xsi:type")
}

fn states_and_productions(schema: &Schema) -> Checked {
    let is_index = |index: u32, length: usize| (index as usize) < length;
    let is_optional_index = |index: u32, length: usize| index == NONE || is_index(index, length);
    for (at, state) in (0..).zip(&schema.states) {
        let State {
            content,
            attributes,
            ..
        } = *state;
        ensure(is_index(content, schema.states.len()), "a state's content")?;
        let productions = schema.productions(at);
        let by_name = productions.iter().take(attributes as usize);
        let by_name = by_name.filter(|one| matches!(one.terminal, Terminal::Attribute { .. }));
        ensure(
            by_name.count() == attributes as usize,
            "a state's attributes",
        )?;
        for production in productions {
            let parameters = match production.terminal {
                Terminal::Attribute { name, datatype } => {
                    is_index(name, schema.names.len())
                        && is_optional_index(datatype, schema.datatypes.len())
                }
                Terminal::Element { name, element } => {
                    is_index(name, schema.names.len())
                        && is_optional_index(element, schema.elements.len())
                }
                Terminal::AttributeIn(uri) | Terminal::ElementIn(uri) => {
                    is_index(uri, schema.uris.len())
                }
                Terminal::Characters(datatype) => is_index(datatype, schema.datatypes.len()),
                _ => true,
            };
            let next = match production.next & COUNTED {
                _ if production.terminal == Terminal::End => true,
                0 => is_index(production.next, schema.states.len()),
                _ => is_index(production.next & !COUNTED, schema.repeats.len()),
            };
            ensure(parameters && next, "a production")?;
        }
    }
    let known = |repeat: &Repeat| {
        is_index(repeat.next_copy, schema.states.len())
            && is_index(repeat.after_last, schema.states.len())
    };
    ensure(schema.repeats.iter().all(known), "a repeated state")
}

fn datatypes_and_sets(schema: &Schema) -> Checked {
    let datatypes = &schema.datatypes;
    let is_index = |index: u32| (index as usize) < datatypes.len();
    for datatype in datatypes {
        let named = datatype.name == NONE || (datatype.name as usize) < schema.names.len();
        let base = datatype.base == NONE || is_index(datatype.base);
        let own = match &datatype.representation {
            Representation::Restricted(set) => (*set as usize) < schema.character_sets.len(),
            Representation::Bounded { least, count } => {
                (1..=BOUNDED_MAX).contains(count) && least.checked_add(i128::from(*count)).is_some()
            }
            Representation::List(item) => is_index(*item),
            Representation::Enumeration { values, base } => is_index(*base) && !values.is_empty(),
            _ => true,
        };
        ensure(named && base && own, "a datatype")?;
    }
    for datatype in datatypes {
        let ancestors = core::iter::successors(datatypes.get(datatype.base as usize), |one| {
            datatypes.get(one.base as usize)
        });
        let parts = core::iter::successors(Some(datatype), |one| match &one.representation {
            Representation::List(part) | Representation::Enumeration { base: part, .. } => {
                datatypes.get(*part as usize)
            }
            _ => None,
        });
        let end = ancestors.take(CHAIN_MAX).count() < CHAIN_MAX
            && parts.take(CHAIN_MAX).count() < CHAIN_MAX;
        ensure(end, "a datatype that derives from or contains itself")?;
    }
    // The sets of lexical values come first and are known by their index.
    let sets = schema.character_sets.len() >= lexical_sets().len();
    let sorted = |set: &[char]| set.is_sorted_by(|a, b| a < b);
    let sorted = schema.character_sets.iter().all(|set| sorted(set));
    ensure(sets && sorted, "a set of characters")
}
