//! Publisher assertions, and the businesses that they relate.
//!
//! Source: UDDI 2.04 API specification, find_relatedBusinesses, add_, delete_, get_ and
//! set_publisherAssertions, get_assertionStatusReport. A relationship is complete when the
//! publishers of both businesses have asserted the same, or one publisher who owns both.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::draft::Draft;
use super::error::{Error, ErrorCode, KeyType};
use super::find::{List, MAX_ROWS};
use super::graph::Graph;
use super::key::BusinessKey;
use super::qualifier::FindQualifiers;
use super::save::Random;
use super::select::{Order, names_of, sorted};
use super::value::{KeyedReference, PublisherAssertion, Text};
use super::{decode, limits};
use crate::dictionary::Id;
use crate::uddi_keys::UddiClass;
use crate::vocabulary::uddi;

/// Who has made an assertion (completionStatus).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionStatus {
    /// Both sides.
    Complete,
    /// Not the publisher of the second business.
    ToKeyIncomplete,
    /// Not the publisher of the first business.
    FromKeyIncomplete,
}

impl CompletionStatus {
    /// The text of the attribute.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "status:complete",
            Self::ToKeyIncomplete => "status:toKey_incomplete",
            Self::FromKeyIncomplete => "status:fromKey_incomplete",
        }
    }

    /// Reads the text of the element `completionStatus`.
    ///
    /// # Errors
    /// `E_invalidCompletionStatus`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let all = [
            Self::Complete,
            Self::ToKeyIncomplete,
            Self::FromKeyIncomplete,
        ];
        let found = all.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| {
            let detail = format!("the completion status {text:?} is not known");
            Error::new(ErrorCode::InvalidCompletionStatus, detail)
        })
    }
}

/// An assertion with its status (assertionStatusItem).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertionStatus {
    /// The assertion.
    pub assertion: PublisherAssertion,
    /// Who has made it.
    pub status: CompletionStatus,
    /// Whether the asking publisher owns the first business.
    pub owns_from: bool,
    /// Whether the asking publisher owns the second business.
    pub owns_to: bool,
}

/// find_relatedBusinesses.
#[derive(Clone, Debug)]
pub struct FindRelatedBusinesses {
    /// Maximum number of rows.
    pub max_rows: Option<usize>,
    /// How to sort.
    pub qualifiers: FindQualifiers,
    /// The business whose relatives are asked for.
    pub business_key: BusinessKey,
    /// Only businesses related in this way; all their relationships are returned.
    pub reference: Option<KeyedReference>,
}

/// A related business (relatedBusinessInfo).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedBusiness {
    /// Its key.
    pub business_key: BusinessKey,
    /// Its names.
    pub names: Vec<Text>,
    /// Its descriptions.
    pub descriptions: Vec<Text>,
    /// Relationships from the business asked about to this one (direction `fromKey`).
    pub from_key: Vec<KeyedReference>,
    /// Relationships from this business to the one asked about (direction `toKey`).
    pub to_key: Vec<KeyedReference>,
}

/// An assertion with everybody who made it.
struct Asserted {
    assertion: PublisherAssertion,
    publishers: BTreeSet<String>,
    from_owner: String,
    to_owner: String,
}

impl Asserted {
    fn status(&self) -> Option<CompletionStatus> {
        let from = self.publishers.contains(&self.from_owner);
        let to = self.publishers.contains(&self.to_owner);
        match (from, to) {
            (true, true) => Some(CompletionStatus::Complete),
            (true, false) => Some(CompletionStatus::ToKeyIncomplete),
            (false, true) => Some(CompletionStatus::FromKeyIncomplete),
            // By neither owner: made before a business had another owner.
            (false, false) => None,
        }
    }
}

/// The assertions about a business, equal ones together, in the order in which they were made.
fn about(graph: &Graph<'_>, business: Id) -> Vec<Asserted> {
    let mut ids = graph.subjects(uddi::FROM_KEY, business);
    ids.extend(graph.subjects(uddi::TO_KEY, business));
    let mut found: Vec<Asserted> = Vec::new();
    let mut known: HashMap<PublisherAssertion, usize> = HashMap::new();
    for id in graph.by_time(ids) {
        let Some(entity) = graph.entity(id) else {
            continue;
        };
        let Some(assertion) = decode::assertion(&entity) else {
            continue;
        };
        let owner = |key| {
            let id = graph.find(key, UddiClass::Business)?;
            graph
                .state
                .fields(id)
                .map(|fields| fields.owner().to_owned())
        };
        let owners = (owner(assertion.from_key), owner(assertion.to_key));
        let (Some(from_owner), Some(to_owner)) = owners else {
            continue;
        };
        let at = *known.entry(assertion.clone()).or_insert_with(|| {
            found.push(Asserted {
                assertion,
                publishers: BTreeSet::new(),
                from_owner,
                to_owner,
            });
            found.len() - 1
        });
        if let Some(asserted) = found.get_mut(at) {
            asserted.publishers.insert(entity.owner);
        }
    }
    found
}

/// The businesses of a publisher.
pub(crate) fn businesses_of(graph: &Graph<'_>, publisher: &str) -> Vec<Id> {
    owned(graph, publisher, UddiClass::Business)
}

/// The entities of `class` of a publisher.
pub(crate) fn owned(graph: &Graph<'_>, publisher: &str, class: UddiClass) -> Vec<Id> {
    let Some(owner) = graph.state.dictionary.text(publisher) else {
        return Vec::new();
    };
    let keys = graph.partitions.iter().flat_map(|partition| {
        let keys = partition.owners.iter_from(|key| *key < [owner, 0]);
        keys.take_while(|key| key[0] == owner)
    });
    let ids = keys.map(|[_, id]| id);
    // Several sets of indexes may hold one entity.
    let ids: BTreeSet<Id> = ids
        .filter(|id| graph.fields(*id, class).is_some())
        .collect();
    graph.by_time(ids)
}

/// The key and value of each assertion that a publisher made.
fn made_by(graph: &Graph<'_>, publisher: &str) -> Vec<(String, PublisherAssertion)> {
    let ids = owned(graph, publisher, UddiClass::Assertion).into_iter();
    let assertions = ids.filter_map(|id| {
        let entity = graph.entity(id)?;
        let assertion = decode::assertion(&entity)?;
        Some((entity.key, assertion))
    });
    assertions.collect()
}

/// get_publisherAssertions.
pub(crate) fn of_publisher(graph: &Graph<'_>, publisher: &str) -> Vec<PublisherAssertion> {
    let made = made_by(graph, publisher).into_iter();
    made.map(|(_, assertion)| assertion).collect()
}

/// get_assertionStatusReport.
pub(crate) fn status_report(
    graph: &Graph<'_>,
    publisher: &str,
    asked: Option<CompletionStatus>,
) -> Vec<AssertionStatus> {
    let mut known = std::collections::HashSet::new();
    let mut report = Vec::new();
    for business in businesses_of(graph, publisher) {
        for asserted in about(graph, business) {
            let Some(status) = asserted.status() else {
                continue;
            };
            let is_asked = asked.is_none_or(|asked| asked == status);
            if is_asked && known.insert(asserted.assertion.clone()) {
                report.push(AssertionStatus {
                    status,
                    owns_from: asserted.from_owner == publisher,
                    owns_to: asserted.to_owner == publisher,
                    assertion: asserted.assertion,
                });
            }
        }
    }
    report
}

/// Checks an assertion, and adds it unless the publisher has already made it.
fn add_one(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    known: &mut Vec<PublisherAssertion>,
    assertion: &PublisherAssertion,
) -> Result<(), Error> {
    check(draft, assertion)?;
    if !known.contains(assertion) {
        known.push(assertion.clone());
        let key = <BusinessKey as super::key::Key>::random(random());
        draft.put_assertion(super::key::Key::iri(key), assertion)?;
    }
    Ok(())
}

fn check(draft: &Draft<'_>, assertion: &PublisherAssertion) -> Result<(), Error> {
    let from = draft.business_owner(assertion.from_key)?;
    let to = draft.business_owner(assertion.to_key)?;
    let Some(tmodel) = assertion.reference.tmodel_key else {
        let detail = "the keyedReference of an assertion has no tModelKey";
        let code = ErrorCode::InvalidKeyPassed;
        return Err(Error::of_key(code, KeyType::TModel, detail));
    };
    draft.check_tmodel(tmodel)?;
    limits::reference(&assertion.reference)?;
    if from != draft.stamp.owner && to != draft.stamp.owner {
        let detail = format!(
            "neither businessKey {} nor {} is of this publisher",
            assertion.from_key, assertion.to_key
        );
        return Err(Error::of_key(
            ErrorCode::UserMismatch,
            KeyType::Business,
            detail,
        ));
    }
    Ok(())
}

/// add_publisherAssertions.
pub(crate) fn add(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    assertions: &[PublisherAssertion],
) -> Result<(), Error> {
    let mut known = of_publisher(&draft.graph, &draft.stamp.owner);
    for assertion in assertions {
        add_one(draft, random, &mut known, assertion)?;
    }
    Ok(())
}

/// delete_publisherAssertions.
pub(crate) fn delete(
    draft: &mut Draft<'_>,
    assertions: &[PublisherAssertion],
) -> Result<(), Error> {
    let mut made = made_by(&draft.graph, &draft.stamp.owner);
    for assertion in assertions {
        // One that occurs twice is not found the second time.
        let Some(at) = made.iter().position(|(_, known)| known == assertion) else {
            let detail = format!(
                "no such assertion from {} to {} was made by this publisher",
                assertion.from_key, assertion.to_key
            );
            return Err(Error::new(ErrorCode::AssertionNotFound, detail));
        };
        draft.remove_assertion(made.swap_remove(at).0);
    }
    Ok(())
}

/// set_publisherAssertions: the publisher's assertions are these and no others.
pub(crate) fn set(
    draft: &mut Draft<'_>,
    random: &mut Random<'_>,
    assertions: &[PublisherAssertion],
) -> Result<(), Error> {
    let made = made_by(&draft.graph, &draft.stamp.owner);
    let mut known = Vec::new();
    for (key, assertion) in made {
        if assertions.contains(&assertion) {
            known.push(assertion);
        } else {
            draft.remove_assertion(key);
        }
    }
    for assertion in assertions {
        add_one(draft, random, &mut known, assertion)?;
    }
    Ok(())
}

/// Whether both sides have made an assertion.
pub(crate) fn is_complete(graph: &Graph<'_>, assertion: &PublisherAssertion) -> bool {
    let business = graph.find(assertion.from_key, UddiClass::Business);
    let mut asserted = business
        .map(|id| about(graph, id))
        .unwrap_or_default()
        .into_iter();
    let found = asserted.find(|one| one.assertion == *assertion);
    found.is_some_and(|one| one.status() == Some(CompletionStatus::Complete))
}

/// Whether a relationship is of the kind asked for: all three parts are equal; a name that is left out is empty.
fn is_of_kind(reference: &KeyedReference, asked: Option<&KeyedReference>) -> bool {
    let name = |of: &KeyedReference| of.key_name.clone().unwrap_or_default();
    asked.is_none_or(|asked| {
        reference.tmodel_key == asked.tmodel_key
            && reference.key_value == asked.key_value
            && name(reference) == name(asked)
    })
}

/// find_relatedBusinesses.
pub(crate) fn related(
    graph: &Graph<'_>,
    ask: &FindRelatedBusinesses,
) -> Result<List<RelatedBusiness>, Error> {
    let key = ask.business_key;
    let focus = graph.find(key, UddiClass::Business);
    let focus = focus.ok_or_else(|| Error::unknown_key(KeyType::Business, key))?;
    let tmodel = ask.reference.as_ref().and_then(|asked| asked.tmodel_key);
    if let Some(tmodel) = tmodel.filter(|key| graph.find(*key, UddiClass::TModel).is_none()) {
        return Err(Error::unknown_key(KeyType::TModel, tmodel));
    }
    let mut by_relative: BTreeMap<BusinessKey, [Vec<KeyedReference>; 2]> = BTreeMap::new();
    for asserted in about(graph, focus) {
        if asserted.status() != Some(CompletionStatus::Complete) {
            continue;
        }
        let PublisherAssertion {
            from_key,
            to_key,
            reference,
        } = asserted.assertion;
        let is_from = from_key == key;
        let relative = if is_from { to_key } else { from_key };
        let [from, to] = by_relative.entry(relative).or_default();
        if is_from {
            from.push(reference)
        } else {
            to.push(reference)
        }
    }
    by_relative.retain(|_, lists| {
        let mut references = lists.iter().flatten();
        references.any(|reference| is_of_kind(reference, ask.reference.as_ref()))
    });
    let ids = by_relative
        .keys()
        .filter_map(|key| graph.find(*key, UddiClass::Business));
    let ids = sorted(graph, ids, Order::of_names(&ask.qualifiers));
    let max_rows = ask.max_rows.unwrap_or(MAX_ROWS).min(MAX_ROWS);
    let is_truncated = ids.len() > max_rows;
    let items = ids.into_iter().take(max_rows).filter_map(|id| {
        let business_key = graph.business_key(id)?;
        let [from_key, to_key] = by_relative.remove(&business_key)?;
        Some(RelatedBusiness {
            business_key,
            names: names_of(graph, id, uddi::NAME),
            descriptions: names_of(graph, id, uddi::DESCRIPTION),
            from_key,
            to_key,
        })
    });
    Ok(List {
        items: items.collect(),
        is_truncated,
    })
}
