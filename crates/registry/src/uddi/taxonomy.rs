//! Checked value sets: the values that references may have, from texts.
//!
//! A text has one value in each line. A tab and what follows it are for people, and so are lines
//! that start with `#`. A line `@categoryBag` or `@identifierBag` allows the values in such bags
//! only. A line `@checker URL` names the service that checks values as well, or alone if the text has no
//! values. White space around a value is not part of it.
//!
//! Source: UDDI 2.04 API specification, save calls (checked taxonomies) and validate_values. The
//! form of the text is ours.

use std::collections::{HashMap, HashSet};

use super::error::{Error, ErrorCode, KeyType};
use super::key::TModelKey;
use super::limits::MAX_TEXT_CHARACTERS;
use super::value::{BusinessEntity, BusinessService, KeyedReference, TModel};

/// Maximum number of values of one set; reason: twenty times those of the largest known one, the
/// products of UNSPSC.
pub const MAX_TAXONOMY_VALUES: usize = 1_000_000;

/// The bag of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BagOf {
    Identifiers,
    Categories,
}

impl BagOf {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Identifiers => "identifierBag",
            Self::Categories => "categoryBag",
        }
    }
}

/// The values of one namespace.
#[derive(Debug, Default)]
struct Taxonomy {
    /// The bags that are allowed; empty: all.
    bags: Vec<BagOf>,
    values: HashSet<Box<str>>,
    /// The address of the service that checks values.
    checker: Option<String>,
}

/// The entities whose references validate_values checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Businesses.
    pub businesses: Vec<BusinessEntity>,
    /// Services.
    pub services: Vec<BusinessService>,
    /// tModels.
    pub tmodels: Vec<TModel>,
}

/// A text is not a value set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TaxonomyError {
    /// The line, from 1.
    pub line: usize,
    /// The reason.
    pub reason: String,
}

/// The checked value sets of a registry, by tModel. References to other tModels are not checked.
#[derive(Debug, Default)]
pub struct Taxonomies {
    by_tmodel: HashMap<TModelKey, Taxonomy>,
}

impl Taxonomies {
    /// Adds the value set of a tModel, which replaces an earlier one.
    ///
    /// # Errors
    /// A value is too long, an `@` is followed by something else than the name of a bag, or there
    /// are more than [`MAX_TAXONOMY_VALUES`] values.
    pub fn add(&mut self, tmodel: TModelKey, text: &str) -> Result<(), TaxonomyError> {
        let mut taxonomy = Taxonomy::default();
        for (at, line) in text.lines().enumerate() {
            let fail = |reason: String| TaxonomyError {
                line: at + 1,
                reason,
            };
            let value = line.split('\t').next().unwrap_or_default().trim();
            if value.is_empty() || value.starts_with('#') {
                continue;
            }
            if let Some(url) = value.strip_prefix("@checker ") {
                let url = url.trim().to_owned();
                if taxonomy.checker.replace(url).is_some() {
                    return Err(fail("a second checker".to_owned()));
                }
                continue;
            }
            if let Some(word) = value.strip_prefix('@') {
                let all = [BagOf::Identifiers, BagOf::Categories];
                let bag = all.into_iter().find(|bag| bag.as_str() == word);
                let shown: String = word.chars().take(80).collect();
                taxonomy
                    .bags
                    .push(bag.ok_or_else(|| fail(format!("there is no bag {shown:?}")))?);
                continue;
            }
            if value.chars().count() > MAX_TEXT_CHARACTERS {
                let limit = MAX_TEXT_CHARACTERS;
                return Err(fail(format!("a value has more than {limit} characters")));
            }
            if taxonomy.values.len() >= MAX_TAXONOMY_VALUES {
                return Err(fail(format!("more than {MAX_TAXONOMY_VALUES} values")));
            }
            taxonomy.values.insert(value.into());
        }
        self.by_tmodel.insert(tmodel, taxonomy);
        Ok(())
    }

    /// The number of value sets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_tmodel.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_tmodel.is_empty()
    }

    /// The services that check values: the tModels of their sets with their addresses.
    pub fn checkers(&self) -> impl Iterator<Item = (TModelKey, &str)> {
        let sets = self.by_tmodel.iter();
        sets.filter_map(|(key, set)| Some((*key, set.checker.as_deref()?)))
    }

    /// Checks the references of a bag.
    pub(crate) fn check(&self, bag: &[KeyedReference], kind: BagOf) -> Result<(), Error> {
        for reference in bag {
            let Some(tmodel) = reference.tmodel_key else {
                continue;
            };
            let Some(taxonomy) = self.by_tmodel.get(&tmodel) else {
                continue;
            };
            let value = &reference.key_value;
            // Without values, the checker alone decides.
            let is_listed = taxonomy.checker.is_some() && taxonomy.values.is_empty()
                || taxonomy.values.contains(value.trim());
            let (code, reason) = if !is_listed {
                (ErrorCode::InvalidValue, "is not a value of")
            } else if !taxonomy.bags.is_empty() && !taxonomy.bags.contains(&kind) {
                (
                    ErrorCode::ValueNotAllowed,
                    "must not be used here; it is of",
                )
            } else {
                continue;
            };
            let shown: String = value.chars().take(MAX_TEXT_CHARACTERS).collect();
            let kind = kind.as_str();
            let detail = format!("{shown:?} in a {kind} {reason} tModelKey {tmodel}");
            return Err(Error::of_key(code, KeyType::TModel, detail));
        }
        Ok(())
    }

    /// validate_values: checks all references.
    ///
    /// # Errors
    /// `E_invalidValue`, `E_valueNotAllowed`.
    pub fn validate(&self, values: &Values) -> Result<(), Error> {
        let services = |services: &[BusinessService]| {
            let mut bags = services.iter().map(|service| &service.category_bag);
            bags.try_for_each(|bag| self.check(bag, BagOf::Categories))
        };
        for business in &values.businesses {
            self.check(&business.identifier_bag, BagOf::Identifiers)?;
            self.check(&business.category_bag, BagOf::Categories)?;
            services(&business.services)?;
        }
        services(&values.services)?;
        for tmodel in &values.tmodels {
            self.check(&tmodel.identifier_bag, BagOf::Identifiers)?;
            self.check(&tmodel.category_bag, BagOf::Categories)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOURS: TModelKey = TModelKey::new(7);

    fn check(text: &str, value: &str, kind: BagOf) -> Option<ErrorCode> {
        let mut taxonomies = Taxonomies::default();
        taxonomies.add(COLOURS, text).unwrap();
        let reference = KeyedReference {
            tmodel_key: Some(COLOURS),
            key_name: None,
            key_value: value.to_owned(),
        };
        let checked = taxonomies.check(&[reference], kind);
        checked.err().map(|error| error.code)
    }

    #[test]
    fn values_are_those_of_the_text() {
        let text = "# Colours\n@categoryBag\n\nred\tRouge\n light blue \r\n";
        assert_eq!(check(text, "red", BagOf::Categories), None);
        assert_eq!(check(text, "light blue", BagOf::Categories), None);
        assert_eq!(
            check(text, "Rouge", BagOf::Categories),
            Some(ErrorCode::InvalidValue)
        );
        assert_eq!(
            check(text, "red", BagOf::Identifiers),
            Some(ErrorCode::ValueNotAllowed)
        );
        assert_eq!(check("red", "red", BagOf::Identifiers), None);
        // The service decides, besides the values that the text has.
        let checked = "@checker http://192.0.2.1/check\n";
        assert_eq!(check(checked, "mauve", BagOf::Categories), None);
        let both = format!("{checked}red");
        assert_eq!(
            check(&both, "mauve", BagOf::Categories),
            Some(ErrorCode::InvalidValue)
        );
        let mut taxonomies = Taxonomies::default();
        taxonomies.add(COLOURS, checked).unwrap();
        let found: Vec<_> = taxonomies.checkers().collect();
        assert_eq!(found, [(COLOURS, "http://192.0.2.1/check")]);
        assert_eq!(
            taxonomies
                .add(COLOURS, &checked.repeat(2))
                .unwrap_err()
                .line,
            2
        );
    }

    #[test]
    fn a_faulty_text_is_refused_with_its_line() {
        let mut taxonomies = Taxonomies::default();
        let error = taxonomies.add(COLOURS, "red\n@bag").unwrap_err();
        assert_eq!(error.to_string(), "line 2: there is no bag \"bag\"");
        let long = "x".repeat(256);
        assert_eq!(taxonomies.add(COLOURS, &long).unwrap_err().line, 1);
        assert!(taxonomies.is_empty());
    }
}
