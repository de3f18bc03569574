//! Helpers for the tasks of a node: waiting for the shutdown, and yielding in long loops.

use tokio::sync::watch;

/// Waits until the node shuts down.
pub(crate) async fn shutdown(drain: &mut watch::Receiver<bool>) {
    // Fails only when the node itself was dropped.
    let _ = drain.wait_for(|drain| *drain).await;
}

/// Steps of a long loop between two yields; reason: a step takes microseconds, and an answer should
/// not wait for thousands of them.
const YIELD_STEPS: usize = 32;

/// Yields to other tasks at every [`YIELD_STEPS`]th step of a long loop; `index` is the step.
pub(crate) async fn yield_every(index: usize) {
    if index % YIELD_STEPS == YIELD_STEPS - 1 {
        tokio::task::yield_now().await;
    }
}
