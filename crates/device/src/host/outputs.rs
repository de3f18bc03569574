//! Handles the outputs of a host's machine: answers, operations, events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::eventing::{DropReason, Failure, Notification, SourceEvent, Token};
use chappe_dpws::exchange;
use chappe_dpws::hosting::{
    Device, DeviceCommand, DeviceEvent, DeviceReceive, DeviceTransmit, Invocation,
};
use chappe_machine::{Input, Output};
use chappe_soap::AddressingVersion;
use chappe_soap::wsdl::OperationKind;
use chappe_transport::{Drops, Hop};
use tokio::task::{AbortHandle, JoinSet};

use super::builder::{self, Answer};
use super::serving::Step;
use super::{Operation, Shared, TreeState};

/// One-way operations under way. Reason: as many as operations that wait for an answer.
const ONE_WAY_MAX: usize = 256;
/// The time limit for the last notifications, which end subscriptions.
const LAST_NOTIFICATIONS_DEADLINE: Duration = Duration::from_secs(1);

/// The load of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostState {
    /// Active subscriptions.
    pub subscriptions: usize,
    /// Notifications delivered since the start.
    pub delivered: u64,
    /// Notifications dropped since the start; the drops give the reasons.
    pub dropped: u64,
    /// Operations called since the start.
    pub invoked: u64,
    /// Counters of notification trees.
    pub tree: TreeState,
}

/// Handles the outputs of the machine.
#[derive(Default)]
pub(super) struct DeviceOutputs {
    tasks: JoinSet<()>,
    /// Operations that will answer.
    under_way: HashMap<Token, AbortHandle>,
    one_way: JoinSet<()>,
    state: HostState,
}

impl DeviceOutputs {
    /// Handles one output.
    pub(super) fn handle(
        &mut self,
        shared: &Arc<Shared>,
        output: Output<DeviceTransmit, DeviceEvent>,
    ) {
        while self.tasks.try_join_next().is_some() {}
        while self.one_way.try_join_next().is_some() {}
        match output {
            Output::Transmit(DeviceTransmit::Reply { token, reply }) => {
                // An operation that is answered otherwise has exceeded its time limit.
                if let Some(operation) = self.under_way.remove(&token) {
                    operation.abort();
                }
                // The connection may be closed.
                let _ = shared.serving.give(token.0, Step::Reply(reply));
            }
            Output::Transmit(DeviceTransmit::Notify(notification)) => {
                let shared = Arc::clone(shared);
                self.tasks.spawn(async move {
                    let receive = deliver(&shared, &notification).await;
                    let _ = shared.inputs.send(Some(Input::Receive(receive))).await;
                });
            }
            Output::Transmit(DeviceTransmit::Tree(order)) => {
                if let Some(tree) = &shared.tree
                    && let Err(refused) = tree.order(order)
                {
                    let shared = Arc::clone(shared);
                    self.tasks.spawn(async move {
                        let input = Input::Receive(DeviceReceive::Tree(refused));
                        let _ = shared.inputs.send(Some(input)).await;
                    });
                }
            }
            Output::Event(DeviceEvent::Invoked(invocation)) => self.invoke(shared, invocation),
            Output::Event(DeviceEvent::Eventing(event)) => {
                self.on_source_event(&shared.drops, event);
            }
            Output::Event(DeviceEvent::Refused {
                peer,
                reason,
                detail,
            }) => {
                let detail = format!("{reason:?}: {detail}");
                let drops = &shared.drops;
                drops.record(Hop::Http, "request refused", peer.ip(), detail, None);
            }
            Output::Event(_) => {}
        }
    }

    /// Called after all outputs of an input.
    pub(super) fn on_drained(&mut self, shared: &Shared, device: &Device) {
        self.state.subscriptions = device.events().subscriptions();
        self.state.delivered = device.events().delivered();
        self.state.tree.sinks = device.events().on_trees();
        self.state.tree.delivered = device.events().delivered_by_tree();
        self.state.tree.missed = device.events().missed_by_tree();
        let state = self.state;
        shared.state.send_if_modified(|before| {
            let changed = *before != state;
            *before = state;
            changed
        });
    }

    fn invoke(&mut self, shared: &Arc<Shared>, invocation: Box<Invocation>) {
        self.state.invoked += 1;
        let token = invocation.token;
        let Some(operation) = shared.operation(&invocation.action) else {
            let version = AddressingVersion::default();
            let fault = exchange::action_not_supported(version, &invocation.action);
            let answering = Box::pin(async move { Err(fault) });
            return self.spawn_operation(shared, token, answering);
        };
        if invocation.kind == OperationKind::OneWay {
            return self.invoke_one_way(shared, &operation, *invocation);
        }
        let step = Step::Run(operation, invocation);
        // Without a connection nobody else runs it.
        if let Some(Step::Run(operation, invocation)) = shared.serving.give(token.0, step) {
            let answering = operation(*invocation);
            self.spawn_operation(shared, token, answering);
        }
    }

    /// Runs an operation in a task of its own.
    pub(super) fn spawn_operation(
        &mut self,
        shared: &Arc<Shared>,
        token: Token,
        answering: Answer,
    ) {
        let shared = Arc::clone(shared);
        let operation = self.tasks.spawn(async move {
            let result = answering.await;
            let _ = shared.command(DeviceCommand::Reply { token, result }).await;
        });
        self.under_way.insert(token, operation);
    }

    /// Runs a one-way operation, whose client has its answer, under the same time limit.
    fn invoke_one_way(&mut self, shared: &Shared, operation: &Operation, invocation: Invocation) {
        if self.one_way.len() >= ONE_WAY_MAX {
            let (peer, reason) = (invocation.peer.ip(), "too many one-way operations");
            let detail = format!(
                "{} is not run: {ONE_WAY_MAX} others are",
                invocation.operation
            );
            let hint = Some("make the operation end sooner".to_owned());
            let drops = &shared.drops;
            return drops.record(Hop::Http, reason, peer, detail, hint);
        }
        let limit = builder::operation_limit(&shared.options.server);
        let acting = tokio::time::timeout(limit, operation(invocation));
        self.one_way.spawn(async move {
            let _ = acting.await;
        });
    }

    /// Waits until the last notifications are delivered.
    pub(super) async fn end(mut self) {
        let last = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_NOTIFICATIONS_DEADLINE, last).await;
    }

    fn on_source_event(&mut self, drops: &Drops, event: SourceEvent) {
        match event {
            SourceEvent::Dropped {
                subscription,
                reason,
                count,
            } => {
                let count = count as u64;
                self.state.dropped += count;
                let (reason, hint) = match reason {
                    DropReason::QueueFull => (
                        "subscriber too slow",
                        Some(
                            "enlarge the event source's queue, or make the subscriber read faster",
                        ),
                    ),
                    DropReason::Refused => ("subscriber refused the event", None),
                    _ => ("subscription ended before delivery", None),
                };
                let (hop, hint) = (Hop::Event, hint.map(str::to_owned));
                let detail = format!("subscription {subscription:?}");
                drops.record_times(count, hop, reason, "", detail, hint);
            }
            SourceEvent::Refused {
                peer,
                reason,
                detail,
            } => {
                let detail = format!("{reason:?}: {detail}");
                let reason = "subscription refused";
                drops.record(Hop::Event, reason, peer.ip(), detail, None);
            }
            SourceEvent::OffTree {
                subscription,
                reason,
            } => {
                self.state.tree.off += 1;
                let detail = format!("subscription {subscription:?}: {reason}");
                let hint = "it gets standard notifications; check that UDP passes both ways";
                let what = "sink is not on the tree";
                drops.record(Hop::Event, what, "", detail, Some(hint.to_owned()));
            }
            event => tracing::debug!(?event, "eventing"),
        }
    }
}

/// Posts a notification and returns its result.
async fn deliver(shared: &Shared, notification: &Notification) -> DeviceReceive {
    let delivery = notification.delivery;
    let Some(contact) = shared.serving.contact(notification.to()) else {
        let failure = Failure::Refused;
        return DeviceReceive::Failed { delivery, failure };
    };
    let posted = match &shared.options.signing {
        Some(signing) => {
            let envelope = notification.to_envelope();
            shared.http.post_signed(&contact, envelope, signing).await
        }
        None => {
            let (action, text) = (notification.action(), notification.to_text());
            let schema = shared.schemas.of_event(action);
            let http = &shared.http;
            http.post_text_by(&contact, action, text, schema.as_ref())
                .await
        }
    };
    let failure = match posted {
        Ok(answer) if answer.status.is_success() => {
            return DeviceReceive::Delivered { delivery };
        }
        Ok(answer) if answer.status.is_client_error() => Failure::Refused,
        Ok(_) => Failure::Unreachable,
        Err(error) => {
            let (peer, detail) = (contact.address.ip(), error.to_string());
            let hint = error.hint();
            shared
                .drops
                .record(Hop::Event, "event not delivered", peer, detail, hint);
            Failure::of(error.is_of_this_host())
        }
    };
    DeviceReceive::Failed { delivery, failure }
}
