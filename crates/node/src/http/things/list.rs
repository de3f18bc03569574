//! The list of things, with its pages, and single things.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use chappe_registry::vocabulary::td;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::{IntoParams, ToSchema};

use super::{TD_JSON, ThingDescription, ThingList};
use crate::accounts::Caller;
use crate::http::params::{Name, Params};
use crate::http::parts;
use crate::http::problem::Problem;
use crate::permits::RequestKind;
use crate::shared::App;
use crate::tasks::yield_every;
use crate::things;

/// Bytes of one chunk of a list.
const CHUNK_BYTES: usize = 64 << 10;
/// A list is abandoned if the client receives nothing for this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The form of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ThingListFormat {
    /// The Thing Descriptions.
    #[default]
    Array,
    /// An object with them, their number and the next page.
    Collection,
}

/// The wanted part of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ThingListParams {
    /// Number of things to skip. It has no effect with `after`.
    offset: Option<usize>,
    /// The id of the last thing of the previous page. Unlike with `offset` alone, no thing is left out or repeated when
    /// others are added or removed.
    after: Option<String>,
    /// Maximum number of things; all without it.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// array or collection.
    #[param(inline)]
    format: Option<ThingListFormat>,
}

/// A page of the list.
struct Page {
    ids: Vec<String>,
    total: usize,
    offset: usize,
    /// The state of the whole list.
    etag: u64,
    own: String,
    next: Option<String>,
}

impl Page {
    fn new(mut ids: Vec<String>, params: &ThingListParams) -> Self {
        let mut hasher = DefaultHasher::new();
        ids.hash(&mut hasher);
        let total = ids.len();
        let offset = match &params.after {
            Some(after) => ids.partition_point(|id| id <= after),
            None => params.offset.unwrap_or(0),
        };
        let address = |offset: usize, after: Option<&str>| {
            let after = after.map(|id| format!("&after={}", things::device::encoded(id)));
            let limit = params.limit.map(|limit| format!("&limit={limit}"));
            let format = match params.format {
                Some(ThingListFormat::Collection) => "&format=collection",
                Some(ThingListFormat::Array) => "&format=array",
                None => "",
            };
            format!(
                "/things?offset={offset}{}{format}{}",
                limit.unwrap_or_default(),
                after.unwrap_or_default()
            )
        };
        let end = params
            .limit
            .map_or(total, |limit| offset.saturating_add(limit).min(total));
        let last = end.checked_sub(1).and_then(|last| ids.get(last));
        let next = (end < total).then(|| address(end, last.map(String::as_str)));
        let own = address(offset, params.after.as_deref());
        ids.truncate(end);
        ids.drain(..offset.min(end));
        Self {
            ids,
            total,
            offset,
            etag: hasher.finish(),
            own,
            next,
        }
    }

    /// The field `Link` of a page (RFC 8288).
    fn links(&self) -> String {
        let canonical = format!("</things>; rel=\"canonical\"; etag=\"{:016x}\"", self.etag);
        match &self.next {
            Some(next) => format!("<{next}>; rel=\"next\", {canonical}"),
            None => canonical,
        }
    }

    /// What stands before and after the things.
    fn frame(&self, format: ThingListFormat) -> (String, &'static str) {
        if format == ThingListFormat::Array {
            return ("[".to_owned(), "]");
        }
        let mut head = json!({
            "@context": td::DISCOVERY_CONTEXT,
            "@id": self.own,
            "@type": "ThingCollection",
            "total": self.total,
        });
        if let Some(next) = &self.next {
            head["next"] = json!(next);
        }
        let mut head = head.to_string();
        head.pop();
        head.push_str(",\"members\":[");
        (head, "]}")
    }
}

/// All Thing Descriptions, in the order of their ids: those that clients registered and those of the devices
/// that the node has found. With `offset` or `limit`, the header `Link` names the next page, and the
/// canonical address of the list with an `etag` that identifies its state.
#[utoipa::path(get, path = "/things", tag = "things", params(ThingListParams),
    responses((status = 200, content_type = "application/ld+json", body = ThingList),
        (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Params(params): Params<ThingListParams>,
) -> Result<Response, Problem> {
    if params.limit == Some(0) {
        return Err(Problem::bad_request("limit: must be at least 1"));
    }
    let permit = parts::permit_soon(&app, &caller, RequestKind::Query).await?;
    let page = Page::new(things::ids(&app, &caller), &params);
    let (head, tail) = page.frame(params.format.unwrap_or_default());
    let mut response = Response::new(Body::empty());
    let fields = response.headers_mut();
    let kind = HeaderValue::from_static("application/ld+json");
    fields.insert(header::CONTENT_TYPE, kind);
    if (params.limit.is_some() || page.offset > 0)
        && let Ok(links) = HeaderValue::from_str(&page.links())
    {
        fields.insert(header::LINK, links);
    }
    let base = parts::own_url(&app, &headers);
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::convert::Infallible>>(1);
    tokio::spawn(async move {
        let _permit = permit;
        let mut text = head;
        let mut is_first = true;
        for (index, id) in page.ids.iter().enumerate() {
            yield_every(index).await;
            // It may be gone since the page was made.
            let Some(thing) = things::text(&app, id, &caller, &base) else {
                continue;
            };
            if !std::mem::take(&mut is_first) {
                text.push(',');
            }
            text.push_str(&thing);
            if text.len() >= CHUNK_BYTES {
                let chunk = Bytes::from(std::mem::take(&mut text));
                let sent = tokio::time::timeout(STALL_TIMEOUT, sender.send(Ok(chunk))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
        }
        text.push_str(tail);
        let _ = tokio::time::timeout(STALL_TIMEOUT, sender.send(Ok(text.into()))).await;
    });
    *response.body_mut() = Body::from_stream(ReceiverStream::new(receiver));
    Ok(response)
}

/// One Thing Description.
#[utoipa::path(get, path = "/things/{id}", tag = "things",
    params(("id" = String, Path, description = "The thing's id, percent-encoded")),
    responses((status = 200, content_type = "application/td+json", body = ThingDescription),
        (status = 404, body = Problem)))]
pub(crate) async fn retrieve(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Name(id): Name,
) -> Result<Response, Problem> {
    let base = parts::own_url(&app, &headers);
    match things::text(&app, &id, &caller, &base) {
        Some(text) => Ok(([(header::CONTENT_TYPE, TD_JSON)], text).into_response()),
        None => Err(Problem::not_found(format!("there is no thing {id:?}"))
            .hint("percent-encode the id in the path; GET /things lists all things")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(count: usize, offset: usize, limit: usize) -> Page {
        let ids = (0..count).map(|number| format!("urn:{number}")).collect();
        let params = ThingListParams {
            offset: Some(offset),
            after: None,
            limit: Some(limit),
            format: None,
        };
        Page::new(ids, &params)
    }

    /// A page starts after the last thing of the one before, whatever came and went.
    #[test]
    fn things_that_come_and_go_do_not_move_the_others_between_pages() {
        let ids = |numbers: &[u32]| {
            numbers
                .iter()
                .map(|number| format!("urn:{number}"))
                .collect()
        };
        let after = |numbers: &[u32]| {
            let params = ThingListParams {
                offset: Some(2),
                after: Some("urn:3".to_owned()),
                limit: Some(2),
                format: None,
            };
            Page::new(ids(numbers), &params)
        };
        for numbers in [
            &[1, 3, 5, 7, 9][..],
            &[5, 7, 9],
            &[0, 1, 2, 3, 5, 7, 9],
            &[3, 5, 7, 9],
        ] {
            assert_eq!(after(numbers).ids, ["urn:5", "urn:7"], "{numbers:?}");
        }
        assert!(after(&[1, 2]).ids.is_empty());
        assert_eq!(after(&[1, 3, 5, 7]).next, None);
    }

    #[test]
    fn pages_follow_each_other() {
        let first = page(5, 0, 2);
        assert_eq!(first.ids, ["urn:0", "urn:1"]);
        assert_eq!(
            first.next.as_deref(),
            Some("/things?offset=2&limit=2&after=urn:1")
        );
        let last = page(5, 4, 2);
        assert_eq!(last.ids, ["urn:4"]);
        assert_eq!(last.next, None);
        assert_eq!(last.etag, first.etag);
        assert_ne!(page(6, 0, 2).etag, first.etag);
        assert!(page(5, 9, usize::MAX).ids.is_empty());
        assert_eq!(page(0, 0, 1).next, None);
    }
}
