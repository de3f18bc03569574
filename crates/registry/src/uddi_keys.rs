//! The keys under which the entities of UDDI data are indexed, beyond those of all entities.
//!
//! Names in all languages, references as (tModelKey, keyValue), the place of a child in its parent,
//! and the time of the last save. Everything else is a range of the triples: the bindings of a
//! tModel, the assertions about a business.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::dictionary::{Dictionary, Id};
use crate::partition::fold;
use crate::vocabulary::uddi;

/// Stands for the tModel of references that name none. No term has this number.
pub(crate) const NO_TMODEL: Id = Id::MAX;

/// What an entity of UDDI data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum UddiClass {
    Business,
    Service,
    Binding,
    TModel,
    Assertion,
}

impl UddiClass {
    const ALL: [Self; 5] = [
        Self::Business,
        Self::Service,
        Self::Binding,
        Self::TModel,
        Self::Assertion,
    ];

    /// The entity's type.
    pub(crate) const fn type_name(self) -> &'static str {
        match self {
            Self::Business => uddi::BUSINESS_TYPE,
            Self::Service => uddi::SERVICE_TYPE,
            Self::Binding => uddi::BINDING_TYPE,
            Self::TModel => uddi::TMODEL_TYPE,
            Self::Assertion => uddi::ASSERTION_TYPE,
        }
    }

    /// The start of the keys of first names, by which results are sorted, or of further names.
    pub(crate) fn name_prefix(self, is_first: bool) -> String {
        let class = char::from(b'a' + self as u8);
        format!("{class}{}", if is_first { '1' } else { '2' })
    }
}

/// The class of an entity of these types.
pub(crate) fn class_of(
    dictionary: &Dictionary,
    mut types: impl Iterator<Item = Id>,
) -> Option<UddiClass> {
    types.find_map(|id| {
        let name = dictionary.value(id);
        let mut classes = UddiClass::ALL.into_iter();
        classes.find(|class| class.type_name() == name)
    })
}

/// The keys of one entity.
#[derive(Default)]
pub(crate) struct UddiKeys {
    /// Folded names after [`UddiClass::name_prefix`].
    pub(crate) names: BTreeSet<Arc<str>>,
    /// (tModel, value) of the category bag.
    pub(crate) categories: BTreeSet<[Id; 2]>,
    /// (tModel, value) of the identifier bag.
    pub(crate) identifiers: BTreeSet<[Id; 2]>,
    /// Class and day, then the time of the day.
    pub(crate) saved: Option<[u32; 2]>,
    /// The parent of a service or binding, and the position in it.
    pub(crate) place: Option<[u32; 2]>,
}

/// The numbers of the predicates that give keys, as far as any entity has them. They are looked up once for many
/// entities.
pub(crate) struct UddiPredicates {
    name: Option<Id>,
    modified: Option<Id>,
    category: Option<Id>,
    identifier: Option<Id>,
    business_key: Option<Id>,
    service_key: Option<Id>,
    position: Option<Id>,
    tmodel_key: Option<Id>,
    key_value: Option<Id>,
}

impl UddiPredicates {
    pub(crate) fn of(dictionary: &Dictionary) -> Self {
        let id = |predicate: oxrdf::NamedNodeRef<'_>| dictionary.iri(predicate.as_str());
        Self {
            name: id(uddi::NAME),
            modified: id(uddi::MODIFIED),
            category: id(uddi::CATEGORY),
            identifier: id(uddi::IDENTIFIER),
            business_key: id(uddi::BUSINESS_KEY),
            service_key: id(uddi::SERVICE_KEY),
            position: id(uddi::POSITION),
            tmodel_key: id(uddi::TMODEL_KEY),
            key_value: id(uddi::KEY_VALUE),
        }
    }

    /// (tModel, value) of the category bag of `entity`.
    pub(crate) fn categories(
        &self,
        entity: Id,
        triples: &[[Id; 3]],
    ) -> impl Iterator<Item = [Id; 2]> {
        let own = triples.iter().filter(move |[subject, predicate, _]| {
            *subject == entity && Some(*predicate) == self.category
        });
        own.filter_map(|[_, _, node]| self.reference(triples, *node))
    }

    /// The tModel and the value of the reference `node`.
    fn reference(&self, triples: &[[Id; 3]], node: Id) -> Option<[Id; 2]> {
        let object = |predicate: Option<Id>| {
            let mut statements = triples.iter();
            let found = statements
                .find(|[subject, verb, _]| *subject == node && Some(*verb) == predicate)?;
            Some(found[2])
        };
        Some([
            object(self.tmodel_key).unwrap_or(NO_TMODEL),
            object(self.key_value)?,
        ])
    }
}

impl UddiKeys {
    /// The keys of `entity`, of `class`, with these triples.
    pub(crate) fn of(
        dictionary: &Dictionary,
        predicates: &UddiPredicates,
        class: UddiClass,
        entity: Id,
        triples: &[[Id; 3]],
    ) -> Self {
        let parent = match class {
            UddiClass::Service => predicates.business_key,
            UddiClass::Binding => predicates.service_key,
            UddiClass::Business | UddiClass::TModel | UddiClass::Assertion => None,
        };
        let (mut above, mut at) = (None, None);
        let mut keys = Self::default();
        keys.categories
            .extend(predicates.categories(entity, triples));
        let own = triples.iter().filter(|[subject, _, _]| *subject == entity);
        for [_, predicate, object] in own {
            let predicate = Some(*predicate);
            if predicate == parent {
                above = above.or(Some(*object));
            } else if predicate == predicates.position {
                at = at.or_else(|| dictionary.integer(*object));
            }
            if predicate == predicates.name {
                let mut key = class.name_prefix(keys.names.is_empty());
                key.push_str(&fold(dictionary.value(*object)));
                keys.names.insert(key.into());
            } else if predicate == predicates.identifier {
                keys.identifiers
                    .extend(predicates.reference(triples, *object));
            } else if predicate == predicates.modified && keys.saved.is_none() {
                keys.saved = saved(class, dictionary.value(*object));
            }
        }
        keys.place = above.map(|parent| [parent, at.unwrap_or(u32::MAX)]);
        keys
    }
}

/// A time like `2026-03-20T09:48:43.456Z` as two numbers, the first with the class.
fn saved(class: UddiClass, time: &str) -> Option<[u32; 2]> {
    let (day, time) = time.split_once('T')?;
    let digits = |text: &str| -> Option<u32> {
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        digits.get(..9.min(digits.len()))?.parse().ok()
    };
    let day = digits(day).filter(|day| *day < (1 << 28))?;
    Some([(class as u32) << 28 | day, digits(time)?])
}

/// The class of a key of the index of times.
pub(crate) fn is_saved_class(class: UddiClass, first: u32) -> bool {
    first >> 28 == class as u32
}
