//! Parts of the node that may be unavailable or busy when a request arrives.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use chappe_transport::Hop;

use super::problem::{Problem, code};
use crate::accounts::Caller;
use crate::links::Exchange;
use crate::permits::{Busy, Permit, RequestKind};
use crate::shared::Shared;

/// The links to and from other nodes.
///
/// # Errors
/// The node has not started them yet.
pub(super) fn exchange(app: &Shared) -> Result<&Exchange, Problem> {
    let exchange = app.exchange.get();
    exchange.ok_or_else(|| Problem::unavailable("the node is starting its links"))
}

/// The address of this node as a client sees it: the host that its request names, or that of the node.
pub(super) fn own_url(app: &Shared, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    let own = app.identity.url();
    let scheme = own.split("://").next().unwrap_or("http");
    host.map_or_else(|| own.clone(), |host| format!("{scheme}://{host}"))
}

/// Time to wait for the end of other requests, where a request itself mostly takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// A permit for one request of a kind.
///
/// # Errors
/// The account has its share of them, or all are in use.
pub(super) fn permit(app: &Shared, caller: &Caller, kind: RequestKind) -> Result<Permit, Problem> {
    let tenant = app.shares.tenant(&app.accounts, caller);
    let taken = app.permits.take(kind, tenant.as_ref());
    taken.map_err(|busy| busy_problem(app, caller, kind, busy))
}

/// The same, but waits for a short while for the end of others.
///
/// # Errors
/// See [`permit`].
pub(super) async fn permit_soon(
    app: &Shared,
    caller: &Caller,
    kind: RequestKind,
) -> Result<Permit, Problem> {
    let tenant = app.shares.tenant(&app.accounts, caller);
    let taken = app.permits.take_within(kind, tenant.as_ref(), PATIENCE);
    let taken = taken.await;
    taken.map_err(|busy| busy_problem(app, caller, kind, busy))
}

fn busy_problem(app: &Shared, caller: &Caller, kind: RequestKind, busy: Busy) -> Problem {
    match (busy, kind) {
        (Busy::Account { most }, _) => {
            let what = match kind {
                RequestKind::Query => "queries",
                RequestKind::Live => "connections for live data",
                RequestKind::Pull => "connections of links",
                RequestKind::Write => "requests that write",
            };
            let share = format!("{most} {what}, its share of {}", kind.key());
            share_problem(app, caller, &share)
        }
        (Busy::Node, RequestKind::Query) => Problem::unavailable("query limit reached")
            .hint("retry in a moment, or raise limits.queries"),
        (Busy::Node, RequestKind::Live) => {
            Problem::unavailable("limit of live data clients reached")
                .hint("read many streams over one connection, or raise http.max_live_clients")
        }
        (Busy::Node, RequestKind::Pull) => {
            let detail = "half of the connections are endless answers to other nodes already";
            Problem::unavailable(detail).hint("raise http.max_connections")
        }
        (Busy::Node, RequestKind::Write) => {
            super::write::busy::busy("too many requests are writing; limits.writes sets the limit")
        }
    }
}

/// An account has its share.
pub(super) fn share_problem(app: &Shared, caller: &Caller, share: &str) -> Problem {
    /// Pause that a client is asked for; its own requests have to end first.
    const PAUSE_S: u32 = 1;
    let name = caller.name();
    let detail = format!("{name} has {share}");
    let drops = &app.observability.drops;
    drops.record(
        Hop::Http,
        code::SHARE_OF_REQUESTS,
        name,
        detail.clone(),
        None,
    );
    Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
        .code(code::SHARE_OF_REQUESTS)
        .hint("end other requests of this account first, or raise its share: chappe account share")
        .retry_after(PAUSE_S)
}
