//! Changes of the registry as server-sent events. The connection is the subscription's lease.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use chappe_registry::Mark;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Follow, described};
use crate::accounts::Caller;
use crate::shared::App;
use crate::tasks::shutdown;

/// Time between signs of life on an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A connection is abandoned if the client receives nothing for this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The connection's side of a subscriber.
pub(crate) type Sender = mpsc::Sender<Result<Bytes, Infallible>>;

/// The client's connection is closed or stalled.
struct Gone;

/// Sends events until the connection closes or stalls, the account ends, the query fails, or the node shuts
/// down.
pub(crate) async fn run(app: App, caller: Caller, mut follow: Follow, sender: Sender) {
    // Fails only when the client has disconnected.
    let _ = serve(&app, &caller, &mut follow, &sender).await;
}

async fn serve(
    app: &App,
    caller: &Caller,
    follow: &mut Follow,
    sender: &Sender,
) -> Result<(), Gone> {
    let mut drain = app.drain.clone();
    let mut ended = std::pin::pin!(app.accounts.ended(caller));
    let mut sent = follow.mark();
    let retry = format!("retry: 1000\n{}: start\n\n", id(sent));
    send(sender, retry).await?;
    loop {
        let next = tokio::select! {
            biased;
            () = shutdown(&mut drain) => return send(sender, ": shutting down\n\n".into()).await,
            _ = sender.closed() => return Err(Gone),
            () = &mut ended => {
                return send(sender, end(&super::FollowEnd::Account.to_string())).await;
            }
            next = follow.next() => Some(next),
            () = tokio::time::sleep(KEEP_ALIVE) => None,
        };
        match next {
            Some(Ok(item)) => {
                let (name, data) = described(&item);
                sent = item.mark.or(sent);
                send(sender, event(name, item.mark, &data)).await?;
            }
            Some(Err(reason)) => return send(sender, end(&reason.to_string())).await,
            None => {
                // What the client may not see, or did not ask for, moves the mark as well.
                let mark = follow.mark().filter(|mark| Some(*mark) != sent);
                sent = mark.or(sent);
                send(sender, format!("{}: keep-alive\n\n", id(mark))).await?;
            }
        }
    }
}

fn id(mark: Option<Mark>) -> String {
    mark.map_or_else(String::new, |mark| format!("id: {mark}\n"))
}

fn event(name: &str, mark: Option<Mark>, data: &Value) -> String {
    format!("event: {name}\n{}data: {data}\n\n", id(mark))
}

fn end(reason: &str) -> String {
    event("end", None, &json!({ "reason": reason }))
}

async fn send(sender: &Sender, text: String) -> Result<(), Gone> {
    match timeout(STALL_TIMEOUT, sender.send(Ok(text.into()))).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Gone),
    }
}
