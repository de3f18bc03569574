//! UDDI data from a file: values keep their keys and owners.
//!
//! References to tModels, businesses and bindings are not checked, because they may come later in the
//! file. Everything else is checked as a save checks it.

use chappe_identity::Principal;

use super::assertion;
use super::draft::Draft;
use super::encode::Stamp;
use super::error::{Error, ErrorCode, KeyType};
use super::graph::Graph;
use super::key::{BusinessKey, Key};
use super::value::{BusinessEntity, PublisherAssertion, TModel};
use super::{limits, save};
use crate::access::Access;
use crate::record::Step;
use crate::rights::Right;
use crate::state::State;
use crate::time::timestamp;
use crate::uddi_keys::UddiClass;

/// A value of a file.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Business(Box<BusinessEntity>),
    TModel(Box<TModel>),
    /// Made by the owners of both businesses.
    Assertion(PublisherAssertion),
}

/// Checks a value as far as it can be checked alone.
pub(crate) fn check(value: &Value) -> Result<(), Error> {
    let no_key = |kind: KeyType| {
        let detail = format!(
            "the {} is missing: a file has the keys of all its entities",
            kind.as_str()
        );
        Error::of_key(ErrorCode::InvalidKeyPassed, kind, detail)
    };
    match value {
        Value::TModel(tmodel) if tmodel.key.is_none() => return Err(no_key(KeyType::TModel)),
        Value::Business(business) => {
            if business.key.is_none() {
                return Err(no_key(KeyType::Business));
            }
            if business
                .services
                .iter()
                .any(|service| service.key.is_none())
            {
                return Err(no_key(KeyType::Service));
            }
            let mut bindings = business
                .services
                .iter()
                .flat_map(|service| &service.bindings);
            if bindings.any(|binding| binding.key.is_none()) {
                return Err(no_key(KeyType::Binding));
            }
        }
        Value::TModel(_) => {}
        Value::Assertion(assertion) => return limits::reference(&assertion.reference),
    }
    // The rest is what a registry without entities would refuse.
    let state = State::default();
    steps(&state, value, &Stamp::default(), &mut || 0).map(|_| ())
}

/// The changes that put a value into `state`.
pub(crate) fn steps(
    state: &State,
    value: &Value,
    stamp: &Stamp,
    random: &mut save::Random<'_>,
) -> Result<Vec<Step>, Error> {
    let operator = Principal::Operator;
    let owner = Principal::Named(stamp.owner.clone());
    // An assertion names businesses of two owners.
    let principal = match value {
        Value::Assertion(_) => &operator,
        Value::Business(_) | Value::TModel(_) => &owner,
    };
    let mut draft = Draft::restoring(state, principal, stamp.clone());
    match value {
        Value::Business(business) => {
            save::business(&mut draft, random, business)?;
        }
        Value::TModel(tmodel) => {
            save::tmodel(&mut draft, random, tmodel)?;
        }
        Value::Assertion(assertion) => {
            let from = draft.business_owner(assertion.from_key)?;
            let to = draft.business_owner(assertion.to_key)?;
            let mut owners = vec![from];
            if !owners.contains(&to) {
                owners.push(to);
            }
            for owner in owners {
                let graph = Graph::new(state, &operator);
                if !assertion::of_publisher(&graph, &owner).contains(assertion) {
                    draft.stamp.owner = owner;
                    let key = <BusinessKey as Key>::random(random());
                    draft.put_assertion(key.iri(), assertion)?;
                }
            }
        }
    }
    Ok(draft.into_steps())
}

/// The stamp of the values that `owner` has after an import at `unix_ms`.
pub(crate) fn stamp(owner: &str, unix_ms: i64) -> Stamp {
    Stamp {
        owner: owner.to_owned(),
        access: Access::Public,
        modified: timestamp(unix_ms),
    }
}

/// Calls `each` with the elements of a file: tModels that are not hidden, businesses, and the assertions
/// that both sides have made.
pub(crate) fn elements<E>(
    state: &State,
    principal: &Principal,
    mut each: impl FnMut(chappe_xml::Element) -> Result<(), E>,
) -> Result<(), E> {
    use super::decode;
    use super::message::write;
    let graph = Graph::new(state, principal);
    let visible = |class: UddiClass| {
        let entities = state.entities();
        entities.filter(move |entity| {
            entity.types.iter().any(|name| name == class.type_name())
                && entity.permits(principal, Right::Read)
        })
    };
    for entity in visible(UddiClass::TModel) {
        if let Some((tmodel, false)) = decode::tmodel(&entity) {
            each(write::tmodel_alone(&tmodel, &entity.owner))?;
        }
    }
    for entity in visible(UddiClass::Business) {
        let id = state.dictionary.iri(&entity.key);
        if let Some((business, _)) = id.and_then(|id| graph.business(id)) {
            each(write::business_alone(&business, &entity.owner))?;
        }
    }
    let mut written = std::collections::HashSet::new();
    for entity in visible(UddiClass::Assertion) {
        if let Some(assertion) = decode::assertion(&entity)
            && assertion::is_complete(&graph, &assertion)
            && written.insert(assertion.clone())
        {
            each(write::assertion_alone(&assertion))?;
        }
    }
    Ok(())
}
