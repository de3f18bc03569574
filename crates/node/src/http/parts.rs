//! Parts of the node that a request may find missing or busy.

use tokio::sync::OwnedSemaphorePermit;

use super::problem::Problem;
use crate::links::Exchange;
use crate::shared::Shared;

/// The links to and from other nodes.
///
/// # Errors
/// The node is still starting them.
pub(super) fn exchange(app: &Shared) -> Result<&Exchange, Problem> {
    let exchange = app.exchange.get();
    exchange.ok_or_else(|| Problem::unavailable("the node is starting its links"))
}

/// A permit for one query.
///
/// # Errors
/// `limits.queries` queries run already.
pub(super) fn query_permit(app: &Shared) -> Result<OwnedSemaphorePermit, Problem> {
    app.permits.query().ok_or_else(|| {
        Problem::unavailable("query limit reached")
            .hint("try again in a moment; the limit is limits.queries")
    })
}
