//! Whether tables that were not built here agree with each other: each index is one, each chain ends.
//!
//! What is checked is what the coding relies on so that it neither panics nor goes on for ever. Grammars
//! that pass may still be those of no schema.

use super::{
    COUNTED, NONE, Repeat, Representation, Schema, State, Terminal, Type, URI_XSI, XML_NAMESPACE,
    XSD_NAMESPACE, XSI_NAMESPACE,
};
use crate::representation::lexical_sets;

/// Datatypes behind each other, at most.
const CHAIN_MAX: usize = 256;
/// Values of an n-bit integer (7.1.9), at most.
const BOUNDED_MAX: u32 = 4096;

type Checked = Result<(), &'static str>;

fn all(good: bool, what: &'static str) -> Checked {
    match good {
        true => Ok(()),
        false => Err(what),
    }
}

/// What is wrong with the tables, if something is.
pub(super) fn check(schema: &Schema) -> Checked {
    let good = |index: u32, length: usize| (index as usize) < length;
    let maybe = |index: u32, length: usize| index == NONE || good(index, length);
    names(schema)?;
    let Schema {
        names,
        elements,
        types,
        states,
        datatypes,
        ..
    } = schema;
    let type_ = |type_: &Type| good(type_.start, states.len()) && maybe(type_.empty, states.len());
    if !schema.informed {
        let empty = types.is_empty() && elements.is_empty() && states.is_empty();
        let empty = empty && schema.fragment_elements.is_empty() && datatypes.is_empty();
        all(empty, "grammars without a schema")?;
    } else {
        all(type_(&schema.element_fragment), "a type's grammar")?;
        all(
            good(schema.boolean, datatypes.len()),
            "the datatype of xsi:nil",
        )?;
    }
    all(types.iter().all(type_), "a type's grammar")?;
    let element = elements
        .iter()
        .all(|one| good(one.name, names.len()) && type_(&one.type_));
    all(element, "an element declaration")?;
    let mut globals = schema.global_elements.iter();
    all(
        globals.all(|at| good(*at, elements.len())),
        "a global element",
    )?;
    let mut fragments = schema.fragment_elements.iter();
    let fragment = fragments
        .all(|(name, element)| good(*name, names.len()) && maybe(*element, elements.len()));
    all(fragment, "an element of fragments")?;
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
            && maybe(named.attribute, datatypes.len())
            && maybe(named.type_, types.len())
    });
    all(named, "a declaration of a name")?;
    states_and_productions(schema)?;
    datatypes_and_sets(schema)
}

/// The names that the coding knows by their place (D.1 to D.3).
fn names(schema: &Schema) -> Checked {
    let known = ["", XML_NAMESPACE, XSI_NAMESPACE, XSD_NAMESPACE];
    let known = &known[..if schema.informed { 4 } else { 3 }];
    let uris = schema.uris.len() >= known.len()
        && (0..).zip(known).all(|(at, known)| schema.uri(at) == *known);
    all(uris, "the first namespaces")?;
    let xsi = &schema.uris[URI_XSI as usize];
    let xsi = xsi.names >= 2
        && schema.local(schema.xsi_nil()) == "nil"
        && schema.local(schema.xsi_type()) == "type";
    all(xsi, "the names of xsi:nil and xsi:type")
}

fn states_and_productions(schema: &Schema) -> Checked {
    let good = |index: u32, length: usize| (index as usize) < length;
    let maybe = |index: u32, length: usize| index == NONE || good(index, length);
    for (at, state) in (0..).zip(&schema.states) {
        let State {
            content,
            attributes,
            ..
        } = *state;
        all(good(content, schema.states.len()), "a state's content")?;
        let productions = schema.productions(at);
        let by_name = productions.iter().take(attributes as usize);
        let by_name = by_name.filter(|one| matches!(one.terminal, Terminal::Attribute { .. }));
        all(
            by_name.count() == attributes as usize,
            "a state's attributes",
        )?;
        for production in productions {
            let parameters = match production.terminal {
                Terminal::Attribute { name, datatype } => {
                    good(name, schema.names.len()) && maybe(datatype, schema.datatypes.len())
                }
                Terminal::Element { name, element } => {
                    good(name, schema.names.len()) && maybe(element, schema.elements.len())
                }
                Terminal::AttributeIn(uri) | Terminal::ElementIn(uri) => {
                    good(uri, schema.uris.len())
                }
                Terminal::Characters(datatype) => good(datatype, schema.datatypes.len()),
                _ => true,
            };
            let next = match production.next & COUNTED {
                _ if production.terminal == Terminal::End => true,
                0 => good(production.next, schema.states.len()),
                _ => good(production.next & !COUNTED, schema.repeats.len()),
            };
            all(parameters && next, "a production")?;
        }
    }
    let known = |repeat: &Repeat| {
        good(repeat.again, schema.states.len()) && good(repeat.after, schema.states.len())
    };
    all(schema.repeats.iter().all(known), "a repeated state")
}

fn datatypes_and_sets(schema: &Schema) -> Checked {
    let datatypes = &schema.datatypes;
    let good = |index: u32| (index as usize) < datatypes.len();
    for datatype in datatypes {
        let named = datatype.name == NONE || (datatype.name as usize) < schema.names.len();
        let base = datatype.base == NONE || good(datatype.base);
        let own = match &datatype.representation {
            Representation::Restricted(set) => (*set as usize) < schema.character_sets.len(),
            Representation::Bounded { least, count } => {
                (1..=BOUNDED_MAX).contains(count) && least.checked_add(i128::from(*count)).is_some()
            }
            Representation::List(item) => good(*item),
            Representation::Enumeration { values, base } => good(*base) && !values.is_empty(),
            _ => true,
        };
        all(named && base && own, "a datatype")?;
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
        all(end, "a datatype that is of itself")?;
    }
    // Those of lexical values stand in front, known by their place.
    let sets = schema.character_sets.len() >= lexical_sets().len();
    let sorted = |set: &[char]| set.is_sorted_by(|a, b| a < b);
    let sorted = schema.character_sets.iter().all(|set| sorted(set));
    all(sets && sorted, "a set of characters")
}
