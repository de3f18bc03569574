//! Sends batches, again when their answer is lost or the node has no room.

use std::time::{Duration, Instant};

use chappe_stream::lines::Format;
use serde_json::Value;

use super::batch::Batch;
use crate::command::node_client::{Connection, NodeClient, Reply, failure};
use crate::command::query::percent;
use crate::output::{self, Failure};

/// The first pause before a batch is sent again; each further one doubles.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What became of all batches.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) stored: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
    /// The position of the last stored element.
    pub(super) last: Option<String>,
}

/// Sends the batches of one producer.
pub(super) struct Sender {
    node: NodeClient,
    connection: Option<Connection>,
    /// The path without the number of the first element.
    path: String,
    content_type: &'static str,
    retry_for: Duration,
}

impl Sender {
    pub(super) fn new(
        node: NodeClient,
        stream: &str,
        producer: &str,
        format: Format,
        retry_for: Duration,
    ) -> Self {
        let (stream, producer) = (percent(stream), percent(producer));
        Self {
            node,
            connection: None,
            path: format!("/api/v1/streams/{stream}/elements?producer={producer}&first="),
            content_type: match format {
                Format::Csv => "text/csv",
                _ => "application/x-ndjson",
            },
            retry_for,
        }
    }

    /// Sends a batch until it is answered; returns its refused lines with their reasons.
    pub(super) async fn send(
        &mut self,
        batch: &Batch,
        totals: &mut Totals,
    ) -> Result<Vec<(u64, String)>, Failure> {
        let started = Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            let (cause, wait) = match self.try_send(batch).await {
                Ok(reply) => match reply.status {
                    200 | 207 | 422 => return take(&reply, totals),
                    408 | 429 | 503 | 507 => {
                        let wait = reply.retry_after.unwrap_or(pause);
                        (failure(&reply), wait)
                    }
                    _ => return Err(failure(&reply)),
                },
                Err(error) => {
                    self.connection = None;
                    (error, pause)
                }
            };
            if started.elapsed() + wait > self.retry_for {
                return Err(cause.hint_if((!self.retry_for.is_zero()).then_some(
                    "run it again with the same input and the same --producer: nothing is stored twice",
                )));
            }
            output::progress(format_args!("{}; trying again", cause.message));
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn try_send(&mut self, batch: &Batch) -> Result<Reply, Failure> {
        if self.connection.is_none() {
            self.connection = Some(self.node.open().await?);
        }
        let Some(connection) = &mut self.connection else {
            return Err(Failure::new("there is no connection").coded("answer_incomplete"));
        };
        let path = format!("{}{}", self.path, batch.first());
        let body = batch.body().to_vec();
        let reply = connection.post(&path, self.content_type, body).await?;
        if reply.closes {
            self.connection = None;
        }
        Ok(reply)
    }
}

fn take(reply: &Reply, totals: &mut Totals) -> Result<Vec<(u64, String)>, Failure> {
    let body = &reply.body;
    let count = |name: &str| body[name].as_u64();
    let (Some(stored), Some(duplicates), Some(refused)) =
        (count("stored"), count("duplicates"), count("refused"))
    else {
        return Err(failure(reply));
    };
    let refusals = body["refusals"].as_array().into_iter().flatten();
    let refusals = refusals.map(|refusal| {
        let reason = refusal["reason"].as_str().unwrap_or_default().to_owned();
        (refusal["line"].as_u64().unwrap_or(0), reason)
    });
    let refusals: Vec<_> = refusals.collect();
    // Each further batch would be refused for the same reason.
    if body["complete"] == Value::Bool(false)
        && let Some((_, reason)) = refusals.last()
    {
        return Err(Failure::new(reason.clone()).coded("input_refused"));
    }
    totals.stored += stored;
    totals.duplicates += duplicates;
    totals.refused += refused;
    if let Some(range) = body["positions"]
        .as_array()
        .and_then(|ranges| ranges.last())
    {
        totals.last = range["last"].as_str().map(str::to_owned);
    }
    Ok(refusals)
}
