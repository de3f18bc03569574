//! Interfaces of other databases, to which agents write: InfluxDB's line protocol and Prometheus remote write. The
//! points go to a wrapper of their kind (docs/reference/wrappers-and-exporters.md), and are answered once they are stored.
//!
//! A sender that is refused with a status from 400 to 499 drops its points, so these are for points that this node will
//! not take later either. Everything else asks it to come again.

pub(super) mod credential;
pub(super) mod influxdb;
pub(super) mod remote_write;

use axum::http::{HeaderMap, header};

use super::problem::Problem;
use super::routes::{OPEN, Routes, WRITE};
use crate::shared::Shared;
use crate::wrappers::WrapperHandle;

/// Seconds after which a sender comes again while wrappers are started.
const START_S: u32 = 2;

/// The paths of these interfaces at the root, beside those below [`INFLUXDB`].
const WRITES: [&str; 6] = [
    "/write",
    "/query",
    "/ping",
    "/api/v2/write",
    "/api/v2/ping",
    remote_write::PATH,
];
/// Where InfluxDB's interface is again, for clients that ask for its health.
pub(super) const INFLUXDB: &str = "/influxdb";

/// Adds the routes of these interfaces.
pub(super) fn add(routes: Routes) -> Routes {
    let write = WRITE.unaudited();
    let routes = routes
        .under("")
        .post(
            remote_write::PATH,
            "remote_write",
            write,
            remote_write::write,
        )
        .get("/ping", "ping_influxdb", OPEN, influxdb::ping)
        .get("/api/v2/ping", "ping_influxdb_2", OPEN, influxdb::ping_v2)
        .post("/write", "write_influxdb", write, influxdb::write_v1)
        .post(
            "/api/v2/write",
            "write_influxdb_2",
            write,
            influxdb::write_v2,
        )
        .get("/query", "query_influxdb", write, influxdb::query)
        .post("/query", "post_influxdb_query", write, influxdb::post_query);
    // The same again below a path of its own, whose health clients of version 2 ask for.
    routes
        .under(INFLUXDB)
        .get("/health", "influxdb_health", OPEN, influxdb::health)
        .get("/ping", "ping_influxdb_below", OPEN, influxdb::ping)
        .get(
            "/api/v2/ping",
            "ping_influxdb_2_below",
            OPEN,
            influxdb::ping_v2,
        )
        .post("/write", "write_influxdb_below", write, influxdb::write_v1)
        .post(
            "/api/v2/write",
            "write_influxdb_2_below",
            write,
            influxdb::write_v2,
        )
        .get("/query", "query_influxdb_below", write, influxdb::query)
        .post(
            "/query",
            "post_influxdb_query_below",
            write,
            influxdb::post_query,
        )
}

/// Whether a path belongs to one of these interfaces: bodies may be compressed, and credentials have their forms.
pub(super) fn is_ingest(path: &str) -> bool {
    WRITES.contains(&path)
        || path
            .strip_prefix(INFLUXDB)
            .is_some_and(|rest| rest.starts_with('/'))
}

/// The wrapper of a kind that `takes` accepts best: the highest number wins, then the first name; `None` for one that
/// does not take it.
fn wrapper(
    app: &Shared,
    kind: &str,
    takes: impl Fn(&WrapperHandle) -> Option<u8>,
) -> Result<WrapperHandle, Problem> {
    let handles = app.wrappers.handles_of(kind);
    let has_some = !handles.is_empty();
    let rated = handles
        .into_iter()
        .filter_map(|one| Some((takes(&one)?, one)));
    let best = rated.reduce(|best, next| if next.0 > best.0 { next } else { best });
    match best {
        Some((_, handle)) => Ok(handle),
        None if app.wrappers.is_starting(&app.config.wrappers_directory) => {
            let problem = Problem::unavailable("the node is starting its wrappers");
            Err(problem.retry_after(START_S))
        }
        None => {
            let problem = match has_some {
                true => Problem::not_found(format!("no wrapper of kind {kind:?} accepts this")),
                false => Problem::not_found(format!("there is no wrapper of kind {kind:?}")),
            };
            let hint =
                format!("write a file with `kind = {kind:?}` into the directory of wrappers");
            Err(problem.hint(hint))
        }
    }
}

/// The content coding of a body, in lower case; empty if it has none.
fn coding(headers: &HeaderMap) -> String {
    let coding = headers.get(header::CONTENT_ENCODING);
    let text = coding
        .and_then(|text| text.to_str().ok())
        .unwrap_or_default();
    match text.trim().to_ascii_lowercase() {
        coding if coding == "identity" => String::new(),
        coding => coding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_other_interfaces_are_not_those_of_agents() {
        for path in ["/write", "/influxdb/api/v2/write", "/api/v1/write"] {
            assert!(is_ingest(path), "{path}");
        }
        for path in [
            "/influxdb",
            "/influxdbx/write",
            "/api/v1/streams/write/elements",
        ] {
            assert!(!is_ingest(path), "{path}");
        }
    }
}
