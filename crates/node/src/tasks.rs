//! What the tasks of a node share: they end with the node, and take turns.

use tokio::sync::watch;

/// Waits until the node ends.
pub(crate) async fn ended(drain: &mut watch::Receiver<bool>) {
    // An error says that the node itself is gone.
    let _ = drain.wait_for(|drain| *drain).await;
}

/// Steps of a long loop after which other tasks of the node get their turn; reason: a step takes
/// microseconds, and an answer should not wait for thousands of them.
const TURN: usize = 32;

/// Lets other tasks run now and then, in step `index` of a long loop.
pub(crate) async fn take_turns(index: usize) {
    if index % TURN == TURN - 1 {
        tokio::task::yield_now().await;
    }
}
