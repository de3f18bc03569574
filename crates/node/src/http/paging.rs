//! Lists in parts: with `limit` an answer has at most that many entries, and a cursor if there are more.
//!
//! A cursor holds the key of the last entry, so that entries that come or go meanwhile neither repeat nor hide
//! others. Lists are sorted by their keys.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use utoipa::IntoParams;

use super::problem::Problem;

/// The requested part of a list.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// Maximum number of entries; without it, all.
    pub(super) limit: Option<usize>,
    /// The value of `next` in the answer before.
    pub(super) cursor: Option<String>,
}

impl Paging {
    /// The part of a list that is sorted by `key`, and the cursor of the next part.
    ///
    /// # Errors
    /// An invalid cursor, or a limit of 0.
    pub(super) fn cut<T>(
        &self,
        items: Vec<T>,
        key: impl Fn(&T) -> &str,
    ) -> Result<(Vec<T>, Option<String>), Problem> {
        if self.limit == Some(0) {
            return Err(Problem::bad_request("limit: must be at least 1"));
        }
        let after = self.cursor.as_deref().map(decode).transpose()?;
        let mut items = items;
        if let Some(after) = after {
            items.retain(|item| key(item) > after.as_str());
        }
        let limit = self.limit.unwrap_or(usize::MAX);
        let has_more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| has_more);
        let next = last.map(|item| URL_SAFE_NO_PAD.encode(key(item)));
        Ok((items, next))
    }
}

fn decode(cursor: &str) -> Result<String, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let key = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| {
        Problem::bad_request("cursor: not a cursor of this list")
            .hint("pass the value of `next` in the answer before")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_the_whole_list_even_if_entries_come_and_go() {
        let mut paging = Paging {
            limit: Some(2),
            cursor: None,
        };
        let list = vec!["a", "b", "c", "d", "e"];
        let mut seen = Vec::new();
        loop {
            let (part, next) = paging.cut(list.clone(), |item| item).unwrap();
            assert!(part.len() <= 2);
            seen.extend(part);
            paging.cursor = next;
            if paging.cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, list);
        paging.cursor = Some(URL_SAFE_NO_PAD.encode("b"));
        let (part, next) = paging.cut(vec!["a", "bb", "c"], |item| item).unwrap();
        assert_eq!((part, next), (vec!["bb", "c"], None));
        for cursor in ["=", "//", "_w"] {
            paging.cursor = Some(cursor.to_owned());
            assert!(paging.cut(list.clone(), |item| item).is_err(), "{cursor}");
        }
        let (all, next) = Paging::default().cut(list.clone(), |item| item).unwrap();
        assert_eq!((all, next), (list.clone(), None));
        paging.limit = Some(0);
        assert!(paging.cut(list, |item| item).is_err());
    }
}
