use chappe_identity::Principal;
use oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode, Term, Triple};
use proptest::prelude::*;

use super::*;

/// An entity that may bring triples about itself, about others and about its blank nodes, which others bring too.
fn entity() -> impl Strategy<Value = Entity> {
    let node = |name: u8| NamedNode::new_unchecked(format!("urn:e:{name}"));
    let triple = (0..5_u8, 0..3_u8, 0..6_u8).prop_map(move |(subject, predicate, object)| {
        let subject: NamedOrBlankNode = match subject {
            4 => BlankNode::new_unchecked("b").into(),
            name => node(name).into(),
        };
        let object: Term = match object {
            4 => BlankNode::new_unchecked("b").into(),
            5 => Literal::from(7).into(),
            name => node(name).into(),
        };
        Triple::new(subject, node(10 + predicate), object)
    });
    let access = prop_oneof![
        Just(Access::Public),
        Just(Access::Owner),
        Just(Access::Readers(vec!["ada".into(), "bob".into()])),
    ];
    let triples = prop::collection::vec(triple, 0..6);
    (0..4_u8, 0..2_u8, access, triples).prop_map(|(key, owner, access, triples)| {
        let kind = EntityKind::ALL[usize::from(key) % EntityKind::ALL.len()];
        let mut entity = Entity::new(format!("urn:e:{key}"), kind, format!("Name {owner}"));
        entity.owner = ["ada", "eve"][usize::from(owner)].to_owned();
        entity.types = vec!["{urn:t}T".to_owned()];
        entity.scopes = vec!["urn:scope/a".to_owned()];
        (entity.access, entity.triples) = (access, triples);
        entity
    })
}

fn indexes(state: &State) -> Vec<String> {
    let named = |name: &str| Principal::Named(name.to_owned());
    let readers = [
        Principal::Operator,
        named("ada"),
        named("bob"),
        named("eve"),
    ];
    let visible = readers.iter().flat_map(|reader| state.visible(reader));
    visible.map(|partition| partition.dump()).collect()
}

proptest! {
    /// Indexes that are built at once hold what they hold when each entity is indexed on its own, and so they do
    /// after further changes.
    #[test]
    fn indexes_built_at_once_are_those_of_one_by_one(
        changes in prop::collection::vec((any::<bool>(), entity()), 0..30),
        later in prop::collection::vec((any::<bool>(), entity()), 0..10),
    ) {
        let (mut single, mut bulk) = (State::default(), State::loading());
        let apply = |state: &mut State, changes: &[(bool, Entity)]| {
            for (keeps, entity) in changes {
                match keeps {
                    true => state.insert(entity),
                    false => state.remove(&entity.key),
                }
            }
        };
        apply(&mut single, &changes);
        apply(&mut bulk, &changes);
        bulk.finish_loading();
        prop_assert_eq!(indexes(&bulk), indexes(&single));
        apply(&mut single, &later);
        apply(&mut bulk, &later);
        prop_assert_eq!(indexes(&bulk), indexes(&single));
        prop_assert_eq!(bulk.dictionary.len(), single.dictionary.len());
    }
}
