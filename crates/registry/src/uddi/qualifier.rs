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

/// A find call: what its qualifiers may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindCall {
    /// find_binding.
    Binding,
    /// find_business.
    Business,
    /// find_relatedBusinesses.
    RelatedBusinesses,
    /// find_service.
    Service,
    /// find_tModel.
    TModel,
}

impl FindCall {
    /// Whether a qualifier applies to the call; `None`: there is none of this name.
    fn applies(self, word: &str) -> Option<bool> {
        let has_names = self != Self::Binding;
        let has_patterns = has_names && self != Self::RelatedBusinesses;
        Some(match word {
            "sortByDateAsc" | "sortByDateDesc" => true,
            "sortByNameAsc" | "sortByNameDesc" => has_names,
            "exactNameMatch" | "caseSensitiveMatch" | "orLikeKeys" => has_patterns,
            "orAllKeys" => self != Self::RelatedBusinesses,
            "andAllKeys" => matches!(self, Self::Business | Self::TModel),
            "combineCategoryBags" | "serviceSubset" => self == Self::Business,
            _ => return None,
        })
    }
}

impl FindQualifiers {
    /// Reads the texts of the `findQualifier` elements of a call. Those that do not apply to the call are ignored.
    ///
    /// # Errors
    /// `E_unsupported` for an unknown qualifier, `E_tooManyOptions` for two that exclude each
    /// other.
    pub fn parse<'a>(
        call: FindCall,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Error> {
        let mut found = Self::default();
        for word in words {
            let applies = call.applies(word).ok_or_else(|| {
                let detail = format!("the find qualifier {word:?} is not known");
                Error::new(ErrorCode::Unsupported, detail)
            })?;
            match word {
                _ if !applies => {}
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
                _ => found.service_subset = true,
            }
        }
        let keys = [found.or_like_keys, found.or_all_keys, found.and_all_keys];
        let contrary = match keys.into_iter().filter(|is_set| *is_set).count() {
            _ if found.combine_category_bags && found.service_subset => {
                "combineCategoryBags and serviceSubset"
            }
            2.. => "orLikeKeys, orAllKeys and andAllKeys",
            _ => return Ok(found),
        };
        let detail = format!("{contrary} exclude each other");
        Err(Error::new(ErrorCode::TooManyOptions, detail))
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
        let parsed = FindQualifiers::parse(FindCall::Business, words.iter().copied());
        parsed.err().map(|error| error.code)
    }

    #[test]
    fn unknown_and_contrary_qualifiers_are_refused() {
        assert_eq!(code(&["soundex"]), Some(ErrorCode::Unsupported));
        let contrary = [
            ["sortByNameAsc", "sortByNameDesc"],
            ["sortByDateDesc", "sortByDateAsc"],
            ["serviceSubset", "combineCategoryBags"],
            ["orLikeKeys", "orAllKeys"],
            ["andAllKeys", "orLikeKeys"],
        ];
        for pair in contrary {
            assert_eq!(code(&pair), Some(ErrorCode::TooManyOptions), "{pair:?}");
        }
        assert_eq!(
            code(&["sortByNameAsc", "sortByNameAsc", "sortByDateDesc"]),
            None
        );
    }

    #[test]
    fn qualifiers_that_do_not_apply_are_ignored() {
        let all = [
            "sortByNameAsc",
            "sortByNameDesc",
            "orLikeKeys",
            "orAllKeys",
            "andAllKeys",
            "serviceSubset",
        ];
        let parsed = FindQualifiers::parse(FindCall::Binding, all).unwrap();
        let only = FindQualifiers {
            or_all_keys: true,
            ..FindQualifiers::default()
        };
        assert_eq!(parsed, only);
        let unknown = FindQualifiers::parse(FindCall::Binding, ["soundex"]);
        assert_eq!(unknown.unwrap_err().code, ErrorCode::Unsupported);
    }
}
