//! Find qualifiers: options that change how an inquiry matches and sorts.
//!
//! Source: UDDI 2.04 API specification, appendix E.

use super::error::{Error, ErrorCode};

/// The direction of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// From A to Z, from the oldest to the newest.
    Ascending,
    /// From Z to A, from the newest to the oldest.
    Descending,
}

/// The qualifiers of an inquiry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindQualifiers {
    /// `exactNameMatch`: the whole name matches, and `%` is a character.
    pub exact_name_match: bool,
    /// `caseSensitiveMatch`: the case of names is significant.
    pub case_sensitive_match: bool,
    /// `sortByNameAsc` or `sortByNameDesc`.
    pub name_order: Option<SortOrder>,
    /// `sortByDateAsc` or `sortByDateDesc`.
    pub date_order: Option<SortOrder>,
    /// `orLikeKeys`: references in one namespace are alternatives.
    pub or_like_keys: bool,
    /// `orAllKeys`: references and tModelKeys are alternatives.
    pub or_all_keys: bool,
    /// `andAllKeys`: all identifiers must be present.
    pub and_all_keys: bool,
    /// `combineCategoryBags`: the categories of its services are categories of the business.
    pub combine_category_bags: bool,
    /// `serviceSubset`: only the categories of services count.
    pub service_subset: bool,
}

impl FindQualifiers {
    /// Reads the texts of the `findQualifier` elements.
    ///
    /// # Errors
    /// `E_unsupported` for an unknown qualifier, `E_tooManyOptions` for two that exclude each
    /// other.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut found = Self::default();
        for word in words {
            match word {
                "exactNameMatch" => found.exact_name_match = true,
                "caseSensitiveMatch" => found.case_sensitive_match = true,
                "sortByNameAsc" => sort(&mut found.name_order, SortOrder::Ascending, word)?,
                "sortByNameDesc" => sort(&mut found.name_order, SortOrder::Descending, word)?,
                "sortByDateAsc" => sort(&mut found.date_order, SortOrder::Ascending, word)?,
                "sortByDateDesc" => sort(&mut found.date_order, SortOrder::Descending, word)?,
                "orLikeKeys" => found.or_like_keys = true,
                "orAllKeys" => found.or_all_keys = true,
                "andAllKeys" => found.and_all_keys = true,
                "combineCategoryBags" => found.combine_category_bags = true,
                "serviceSubset" => found.service_subset = true,
                _ => {
                    let detail = format!("the find qualifier {word:?} is not known");
                    return Err(Error::new(ErrorCode::Unsupported, detail));
                }
            }
        }
        if found.combine_category_bags && found.service_subset {
            let detail = "combineCategoryBags and serviceSubset exclude each other";
            return Err(Error::new(ErrorCode::TooManyOptions, detail));
        }
        Ok(found)
    }

    /// Refuses the qualifiers that only `find_business` has.
    pub(crate) fn refuse_business_only(&self) -> Result<(), Error> {
        let only = [
            (self.combine_category_bags, "combineCategoryBags"),
            (self.service_subset, "serviceSubset"),
        ];
        match only.into_iter().find(|(is_set, _)| *is_set) {
            Some((_, word)) => {
                let detail = format!("the find qualifier {word} is only of find_business");
                Err(Error::new(ErrorCode::Unsupported, detail))
            }
            None => Ok(()),
        }
    }
}

fn sort(order: &mut Option<SortOrder>, asked: SortOrder, word: &str) -> Result<(), Error> {
    if order.is_some_and(|order| order != asked) {
        let detail = format!("{word} and its opposite exclude each other");
        return Err(Error::new(ErrorCode::TooManyOptions, detail));
    }
    *order = Some(asked);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[&str]) -> Option<ErrorCode> {
        let parsed = FindQualifiers::parse(words.iter().copied());
        parsed.err().map(|error| error.code)
    }

    #[test]
    fn unknown_and_contrary_qualifiers_are_refused() {
        assert_eq!(code(&["soundex"]), Some(ErrorCode::Unsupported));
        let contrary = [
            ["sortByNameAsc", "sortByNameDesc"],
            ["sortByDateDesc", "sortByDateAsc"],
            ["serviceSubset", "combineCategoryBags"],
        ];
        for pair in contrary {
            assert_eq!(code(&pair), Some(ErrorCode::TooManyOptions), "{pair:?}");
        }
        assert_eq!(
            code(&["sortByNameAsc", "sortByNameAsc", "sortByDateDesc"]),
            None
        );
        assert_eq!(code(&["orLikeKeys", "orAllKeys", "andAllKeys"]), None);
    }
}
