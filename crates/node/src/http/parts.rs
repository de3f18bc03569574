//! Parts of the node that may be unavailable or busy when a request arrives.

use tokio::sync::OwnedSemaphorePermit;

use super::problem::Problem;
use crate::links::Exchange;
use crate::shared::Shared;

/// The links to and from other nodes.
///
/// # Errors
/// The node has not started them yet.
pub(super) fn exchange(app: &Shared) -> Result<&Exchange, Problem> {
    let exchange = app.exchange.get();
    exchange.ok_or_else(|| Problem::unavailable("the node is starting its links"))
}

/// A permit for one query.
///
/// # Errors
/// `limits.queries` queries are running.
pub(super) fn query_permit(app: &Shared) -> Result<OwnedSemaphorePermit, Problem> {
    app.permits.query().ok_or_else(|| {
        Problem::unavailable("query limit reached")
            .hint("retry in a moment, or raise limits.queries")
    })
}
