//! The registry in its simplest form, for comparison: a map of entities, scanned completely, and
//! the standard dataset with the standard evaluator.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;

use chappe_identity::Role;
use chappe_registry::oxrdf::{
    BlankNode, Dataset, GraphName, Literal, NamedNode, NamedOrBlankNode, Quad, Term, Triple,
};
use chappe_registry::{
    Access, DEFAULT_SEARCH_LIMIT, Entity, EntityKind, Holder, Principal, Right, Rights, Search,
    SearchResult, vocabulary,
};
use proptest::prelude::*;

/// Entities by key.
#[derive(Clone, Default)]
pub(crate) struct Model {
    pub(crate) entities: BTreeMap<String, Entity>,
}

impl Model {
    pub(crate) fn visible(&self, principal: &Principal) -> impl Iterator<Item = &Entity> {
        self.entities
            .values()
            .filter(move |entity| entity.permits(principal, Right::Read))
    }

    /// Everything that is not forbidden, as the default graph and as the graph of each entity.
    pub(crate) fn dataset(&self, principal: &Principal) -> Dataset {
        let mut dataset = Dataset::new();
        for entity in self.visible(principal) {
            let key = NamedNode::new(entity.key.as_str()).unwrap();
            let graphs = [GraphName::DefaultGraph, key.clone().into()];
            let mut say = |predicate: chappe_registry::oxrdf::NamedNodeRef<'_>, object: Term| {
                let predicate = predicate.into_owned();
                for graph in &graphs {
                    let (subject, graph) = (key.clone(), graph.clone());
                    dataset.insert(&Quad::new(
                        subject,
                        predicate.clone(),
                        object.clone(),
                        graph,
                    ));
                }
            };
            let literal = |text: &str| Term::from(Literal::new_simple_literal(text));
            say(
                vocabulary::RDF_TYPE,
                vocabulary::class(entity.kind).into_owned().into(),
            );
            say(vocabulary::RDFS_LABEL, literal(&entity.name));
            say(vocabulary::OWNER, literal(&entity.owner));
            for name in &entity.types {
                say(vocabulary::TYPE, literal(name));
                let iri = name.trim_start_matches('{').replace("#}", "#");
                let iri = iri.replace('}', "/");
                say(vocabulary::RDF_TYPE, NamedNode::new(iri).unwrap().into());
            }
            for scope in &entity.scopes {
                say(vocabulary::SCOPE, literal(scope));
            }
            for (right, holder) in entity.rights.iter() {
                if entity.permits(principal, Right::Administer) {
                    say(vocabulary::right(right), literal(&holder.to_string()));
                }
            }
            for triple in &entity.triples {
                let own = |node: &BlankNode| {
                    let key: String = entity.key.bytes().map(|b| format!("{b:02x}")).collect();
                    BlankNode::new(format!("x{key}x{}", node.as_str())).unwrap()
                };
                let subject = match &triple.subject {
                    NamedOrBlankNode::BlankNode(node) => own(node).into(),
                    other => other.clone(),
                };
                let object = match &triple.object {
                    Term::BlankNode(node) => own(node).into(),
                    other => other.clone(),
                };
                let triple = Triple::new(subject, triple.predicate.clone(), object);
                for graph in [GraphName::DefaultGraph, key.clone().into()] {
                    dataset.insert(&triple.clone().in_graph(graph));
                }
            }
        }
        dataset
    }

    pub(crate) fn search(&self, search: &Search, principal: &Principal) -> SearchResult {
        let limit = search.limit.unwrap_or(DEFAULT_SEARCH_LIMIT);
        let mut entities: Vec<Entity> = self
            .visible(principal)
            .filter(|entity| matches(entity, search))
            .cloned()
            .collect();
        entities.sort_by_key(|entity| (entity.name.to_lowercase(), entity.key.clone()));
        let truncated = entities.len() > limit;
        entities.truncate(limit);
        SearchResult {
            entities,
            truncated,
        }
    }
}

fn matches(entity: &Entity, search: &Search) -> bool {
    let folded = entity.name.to_lowercase();
    let prefix = |prefix: &String| folded.starts_with(&prefix.to_lowercase());
    let observing = [vocabulary::OBSERVES, vocabulary::OBSERVED_PROPERTY];
    let observed = |property: &String| {
        entity.triples.iter().any(|triple| {
            observing.contains(&triple.predicate.as_ref())
                && matches!(&triple.object, Term::NamedNode(node) if node.as_str() == property)
        })
    };
    let about = |about: &String| {
        entity.key != *about
            && entity.triples.iter().any(|triple| {
                let subject = &triple.subject;
                matches!(subject, NamedOrBlankNode::NamedNode(node) if node.as_str() == about)
            })
    };
    // The scopes of these tests have no dot segments, queries or trailing slashes.
    let scope = |asked: &String| {
        let under = format!("{asked}/");
        entity
            .scopes
            .iter()
            .any(|scope| scope == asked || scope.starts_with(&under))
    };
    search.name_prefix.as_ref().is_none_or(prefix)
        && search.kind.is_none_or(|kind| kind == entity.kind)
        && search
            .entity_type
            .as_ref()
            .is_none_or(|name| entity.types.contains(name))
        && search.local_type.as_ref().is_none_or(|wanted| {
            let local = |name: &String| name.rsplit('}').next() == Some(wanted);
            entity.types.iter().any(local)
        })
        && search.scope.as_ref().is_none_or(scope)
        && search.observed_property.as_ref().is_none_or(observed)
        && search.about.as_ref().is_none_or(about)
        && search
            .owner
            .as_ref()
            .is_none_or(|owner| entity.owner == *owner)
}

pub(crate) fn node(number: u8) -> NamedNode {
    NamedNode::new(format!("http://example.com/n{number}")).unwrap()
}

pub(crate) fn key(number: u8) -> String {
    node(number).into_string()
}

fn subject() -> impl Strategy<Value = NamedOrBlankNode> {
    prop_oneof![
        (0_u8..8).prop_map(|number| node(number).into()),
        (0_u8..2).prop_map(|number| BlankNode::new(format!("f{number}")).unwrap().into()),
    ]
}

fn object() -> impl Strategy<Value = Term> {
    prop_oneof![
        subject().prop_map(Term::from),
        (0_u8..5).prop_map(|number| Literal::from(i64::from(number)).into()),
        (0_u8..3).prop_map(|number| Literal::new_simple_literal(format!("t{number}")).into()),
        Just(
            Literal::new_language_tagged_literal("t1", "en")
                .unwrap()
                .into()
        ),
    ]
}

pub(crate) fn predicate() -> impl Strategy<Value = NamedNode> {
    prop_oneof![
        (0_u8..3)
            .prop_map(|number| NamedNode::new(format!("http://example.com/p{number}")).unwrap()),
        Just(vocabulary::OBSERVED_PROPERTY.into_owned()),
        Just(vocabulary::OBSERVES.into_owned()),
        Just(vocabulary::RDFS_LABEL.into_owned()),
    ]
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![
        Just(Access::Public),
        Just(Access::Owner),
        proptest::sample::subsequence(["ada", "bob", "dora"].map(str::to_owned).to_vec(), 0..=3)
            .prop_map(Access::Readers),
    ]
}

/// Rights that mostly state nothing; holders repeat often.
pub(crate) fn rights() -> impl Strategy<Value = Rights> {
    let holder = || {
        proptest::sample::select(vec![
            Holder::Everybody,
            Holder::AnyAccount,
            Holder::Account("bob".to_owned()),
            Holder::Account("ada".to_owned()),
            Holder::Group("lab".to_owned()),
            Holder::Group("ward".to_owned()),
            Holder::Role(Role::Read),
            Holder::Role(Role::Write),
        ])
    };
    let list = move || {
        prop_oneof![
            3 => Just(Vec::new()),
            2 => proptest::collection::vec(holder(), 1..3),
        ]
    };
    let annotate = prop_oneof![3 => Just(None), 1 => list().prop_map(Some)];
    (list(), annotate, list(), list()).prop_map(|(read, annotate, write, administer)| {
        Rights {
            read,
            annotate,
            write,
            administer,
        }
        .normalized()
    })
}

/// A small entity; keys, names and terms repeat often.
pub(crate) fn entity() -> impl Strategy<Value = Entity> {
    let triples = proptest::collection::vec((subject(), predicate(), object()), 0..8);
    let types = proptest::sample::subsequence(
        vec![
            "{http://example.com/t}Pump".to_owned(),
            "{http://example.com/t}Scale".to_owned(),
        ],
        0..=2,
    );
    let scopes = proptest::sample::subsequence(
        ["http://h/a", "http://h/a/b", "http://h/ab", "urn:x:y"]
            .map(str::to_owned)
            .to_vec(),
        0..=2,
    );
    let name = proptest::sample::select(vec!["Alpha", "alpha", "ALPine", "beta", "Äther", ""]);
    let kind = proptest::sample::select(EntityKind::ALL.to_vec());
    let rule = (access(), rights());
    (0_u8..8, kind, name, types, scopes, rule, triples).prop_map(
        |(number, kind, name, types, scopes, (access, rights), triples)| {
            let mut brought: Vec<Triple> = Vec::new();
            for (subject, predicate, object) in triples {
                let triple = Triple::new(subject, predicate, object);
                if !brought.contains(&triple) {
                    brought.push(triple);
                }
            }
            Entity {
                key: key(number),
                kind,
                name: name.to_owned(),
                types,
                scopes,
                // The owner belongs to the key, which a change must not take over.
                owner: if number % 2 == 0 { "ada" } else { "cleo" }.to_owned(),
                access,
                rights,
                lease_s: None,
                triples: brought,
            }
        },
    )
}

/// A change of the registry.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most steps publish")]
pub(crate) enum Step {
    Publish(Entity),
    Remove(String),
}

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => entity().prop_map(Step::Publish),
        1 => (0_u8..8).prop_map(|number| Step::Remove(key(number))),
    ];
    proptest::collection::vec(step, 0..most)
}

pub(crate) fn principals() -> Vec<Principal> {
    let named = ["ada", "bob", "cleo", "dora"].map(|name| Principal::Named(name.to_owned()));
    let groups = |groups: &[&str]| groups.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let members = [
        Principal::account("bob", groups(&["lab", "ward", "none"]), []),
        Principal::account("eve", groups(&["ward"]), [Role::Write]),
        Principal::account("dora", groups(&[]), [Role::Operate]),
        Principal::account("ada", groups(&["lab"]), Role::ALL),
    ];
    named
        .into_iter()
        .chain(members)
        .chain([Principal::Anonymous, Principal::Operator])
        .collect()
}

/// Applies the steps to a registry and a model alike.
pub(crate) fn apply(registry: &chappe_registry::Registry, model: &mut Model, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Publish(entity) => {
                model.entities.insert(entity.key.clone(), entity.clone());
                registry.publish(entity).unwrap().wait().unwrap();
            }
            Step::Remove(key) => {
                let there = model.entities.remove(&key).is_some();
                match registry.remove(&key) {
                    Ok(removal) => {
                        assert!(there);
                        removal.wait().unwrap();
                    }
                    Err(error) => {
                        assert!(!there, "{error}");
                    }
                }
            }
        }
    }
}
