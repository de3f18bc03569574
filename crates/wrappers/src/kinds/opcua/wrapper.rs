//! The wrapper: batches of the follower, acknowledged when they are stored.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tracing::Dispatch;
use tracing::instrument::WithSubscriber as _;

use super::follow::{Delivery as Delivered, Follower, HISTORY_PAGE, Notification};
use super::settings::{Plan, Settings};
use super::track::Track;
use crate::{
    Batch, Condition, Delivery, Mark, Notes, Step, Wrapper, WrapperError, WrapperKind,
    WrapperOpening,
};

/// Batches that wait to be stored; 4: with 384 KiB each they stay below what the host holds.
const BATCHES: usize = 4;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "opcua",
    about: "variables of an OPC UA server, by subscription",
    delivery: Delivery {
        acknowledges: "a notification after it is stored",
        resumes: "the session or the subscription, with republishing; with `history`, from the newest stored time of each node",
        may_double: "a value whose time the source repeats, after a gap",
        may_miss: "without `history`, values of a gap and of a queue that overflowed, which are counted; with it, values that the server's history lacks",
        back_pressure: "nothing is asked for while storing lags; the server's queues fill, and what they lose comes from history or is counted",
    },
    check: |file| Plan::of(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: Some(super::browse::browse),
};

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let plan = Plan::of(opening.file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let nodes: Vec<String> = plan
        .nodes
        .iter()
        .map(|node| format!("{} {}", node.address, plan.groups[node.group].stream))
        .collect();
    let track = Track::of(opening.mark.as_ref(), &nodes);
    opening.condition.waits("not connected yet");
    Ok(Box::new(OpcUaWrapper {
        state: State::Ready(Box::new((plan, track))),
        condition: opening.condition,
        notes: opening.notes,
        stored: Arc::default(),
        waiting: VecDeque::new(),
        has_history: false,
    }))
}

enum State {
    Ready(Box<(Plan, Track)>),
    /// The task ends when this is gone: it closes its session, within a second.
    Running(mpsc::Receiver<Delivered>),
}

struct OpcUaWrapper {
    state: State,
    condition: Condition,
    notes: Notes,
    stored: Arc<Mutex<Vec<Notification>>>,
    /// Notifications that are acknowledged when the batch with this mark is stored.
    waiting: VecDeque<(Mark, Option<Notification>)>,
    has_history: bool,
}

impl OpcUaWrapper {
    fn start(&mut self, plan: Plan, track: Track) -> mpsc::Receiver<Delivered> {
        let (batches, received) = mpsc::channel(BATCHES);
        self.has_history = plan.history_delay.is_some();
        let follower = Follower {
            track,
            batches,
            stored: self.stored.clone(),
            condition: self.condition.clone(),
            notes: self.notes.clone(),
            session: None,
            subscription: None,
            groups: plan.groups.clone(),
            has_gap: false,
            history_page: HISTORY_PAGE,
            worked: None,
            faults: vec![(None, 0); plan.nodes.len()],
            plan,
        };
        // The library logs each fault once more, as errors, and parts of what it received.
        tokio::spawn(follower.run().with_subscriber(Dispatch::none()));
        received
    }
}

impl Wrapper for OpcUaWrapper {
    fn repeats(&self) -> bool {
        self.has_history
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            if let State::Ready(ready) = &mut self.state {
                let (plan, track) = (**ready).clone();
                self.state = State::Running(self.start(plan, track));
            }
            let State::Running(batches) = &mut self.state else {
                return Err(WrapperError::peer("not started"));
            };
            let delivered = batches.recv().await;
            let ended = || Err(WrapperError::peer("the connection's task has ended"));
            let (batch, notification) = delivered.unwrap_or_else(ended)?;
            self.waiting.push_back((batch.mark.clone(), notification));
            Ok(batch)
        })
    }

    fn stored<'a>(&'a mut self, mark: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        let reached = self.waiting.iter().position(|(waiting, _)| waiting == mark);
        if let Some(reached) = reached {
            let done = self.waiting.drain(..=reached);
            let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
            stored.extend(done.filter_map(|(_, notification)| notification));
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
