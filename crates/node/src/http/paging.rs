//! Lists in parts: with `limit` an answer has at most that many entries, and a cursor if there are more.
//!
//! A cursor names its list and holds the key of the last entry, so that entries that come or go meanwhile neither
//! repeat nor hide others. Lists are sorted by their keys. In lists whose order changes (drops, readers), an entry
//! that moves forward meanwhile is in no later part; reading from the start finds it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use utoipa::IntoParams;

use super::problem::Problem;

/// Characters of a cursor that an error repeats.
const SHOWN_MAX: usize = 40;

/// The requested part of a list.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// Maximum number of entries; without it, all.
    #[param(minimum = 1)]
    pub(super) limit: Option<usize>,
    /// The value of `next` in the previous response.
    pub(super) cursor: Option<String>,
}

impl Paging {
    /// The part that the parameters of a list ask for.
    pub(super) fn new(limit: Option<usize>, cursor: Option<String>) -> Self {
        Self { limit, cursor }
    }

    /// The part of the list `list` that is sorted by `key`, and the cursor of the next part.
    ///
    /// # Errors
    /// A cursor that is not of this list, or a limit of 0.
    pub(super) fn cut<T>(
        &self,
        list: &str,
        items: Vec<T>,
        key: impl Fn(&T) -> &str,
    ) -> Result<(Vec<T>, Option<String>), Problem> {
        let limit = self.limit()?;
        let mut items = items;
        if let Some(after) = self.after(list)? {
            items.retain(|item| key(item) > after.as_str());
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().filter(|_| has_more);
        let next = last.map(|item| cursor(list, key(item)));
        Ok((items, next))
    }

    /// The same for a list whose keys are made; sorts it by them.
    ///
    /// # Errors
    /// See [`Paging::cut`].
    pub(super) fn cut_by<T>(
        &self,
        list: &str,
        items: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> String,
    ) -> Result<(Vec<T>, Option<String>), Problem> {
        let items = items.into_iter().map(|item| (key(&item), item));
        let mut items: Vec<(String, T)> = items.collect();
        items.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (items, next) = self.cut(list, items, |(key, _)| key)?;
        Ok((items.into_iter().map(|(_, item)| item).collect(), next))
    }

    /// Maximum number of entries.
    ///
    /// # Errors
    /// It is 0.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        match self.limit {
            Some(0) => Err(Problem::bad_request("limit: must be at least 1")),
            limit => Ok(limit.unwrap_or(usize::MAX)),
        }
    }

    /// The key of the last entry of the part before.
    ///
    /// # Errors
    /// The cursor is not of this list.
    pub(super) fn after(&self, list: &str) -> Result<Option<String>, Problem> {
        let Some(text) = &self.cursor else {
            return Ok(None);
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let decoded = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let of = decoded.as_deref().and_then(|text| text.split_once(':'));
        match of {
            Some((of, key)) if of == list => Ok(Some(key.to_owned())),
            Some((of, _)) if of.bytes().all(|it| it.is_ascii_lowercase() || it == b'_') => {
                let detail = format!("cursor: it belongs to the list {of:?}, not to {list:?}");
                Err(Problem::bad_request(detail).hint(HINT))
            }
            _ => {
                let shown: String = text.chars().take(SHOWN_MAX).collect();
                let detail = format!("cursor: {shown:?} is not a cursor");
                Err(Problem::bad_request(detail).hint(HINT))
            }
        }
    }
}

const HINT: &str = "pass the value of `next` in the answer before; without a cursor, the answer has the first entries";

/// The cursor after the entry with this key.
pub(super) fn cursor(list: &str, key: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{list}:{key}"))
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
            let (part, next) = paging.cut("letters", list.clone(), |item| item).unwrap();
            assert!(part.len() <= 2);
            seen.extend(part);
            paging.cursor = next;
            if paging.cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, list);
        paging.cursor = Some(cursor("letters", "b"));
        let (part, next) = paging
            .cut("letters", vec!["a", "bb", "c"], |item| item)
            .unwrap();
        assert_eq!((part, next), (vec!["bb", "c"], None));
        let foreign = cursor("numbers", "b");
        let broken = ["", "=", "//", "_w", "b", "YQ"].map(|text| (text, "is not a cursor"));
        let refused = [(foreign.as_str(), "belongs to the list \"numbers\"")];
        for (text, reason) in broken.into_iter().chain(refused) {
            paging.cursor = Some(text.to_owned());
            let problem = paging
                .cut("letters", list.clone(), |item| item)
                .unwrap_err();
            assert!(
                problem.detail.contains(reason),
                "{text}: {}",
                problem.detail
            );
        }
        paging.cursor = None;
        let (part, _) = paging
            .cut_by("numbers", [3, 1, 2], |number| format!("{number:03}"))
            .unwrap();
        assert_eq!(part, [1, 2]);
        let (all, next) = Paging::default()
            .cut("letters", list.clone(), |item| item)
            .unwrap();
        assert_eq!((all, next), (list.clone(), None));
        paging.limit = Some(0);
        assert!(paging.cut("letters", list, |item| item).is_err());
    }
}
