//! Delivery of notifications: one at a time for each sink, in order.

use chappe_machine::Output;
use chappe_soap::{Body, Envelope};
use chappe_xml::Str;

use super::types::SharedBody;
use super::{
    DropReason, EventSource, Failure, Notification, SourceEvent, SourceTransmit, Subscription,
    SubscriptionId, Timer,
};
use crate::eventing::EndStatus;
use crate::eventing::message::{SubscriptionEnd, action};
use crate::exchange;

/// The shortest queue: one notification in flight and one queued.
pub(super) const QUEUE_MIN: usize = 2;

/// A queued notification; the first of a queue may be in flight.
#[derive(Debug, Clone)]
pub(super) struct QueuedNotification {
    pub(super) message_id: Str,
    pub(super) action: Str,
    pub(super) body: SharedBody,
    /// A later notification with the same key replaces this one.
    pub(super) key: Option<Str>,
}

impl EventSource {
    pub(super) fn notify(&mut self, action: &str, body: Body, key: Option<&Str>) {
        let body = SharedBody::new(body);
        let subscribers = self
            .subscriptions
            .iter()
            .filter(|(_, known)| known.has_action(action) && known.filter.passes(action, &body));
        let mut has_members = false;
        let mut ids = Vec::new();
        for (id, known) in subscribers {
            match known.is_member() && self.can_spread() {
                true => has_members = true,
                false => ids.push(*id),
            }
        }
        if ids.is_empty() && !has_members {
            return;
        }
        // Common to both paths, so that the sink detects duplicates.
        let shared_id = self.ids.urn();
        if has_members {
            self.spread(shared_id.clone(), action, &body);
        }
        for id in ids {
            let known = self.subscriptions.get(&id);
            let supports_tree = known.is_some_and(|known| known.on_tree.is_some());
            let message_id = match supports_tree {
                true => shared_id.clone(),
                false => self.ids.urn(),
            };
            let notification = QueuedNotification {
                message_id,
                action: action.to_owned().into(),
                body: body.clone(),
                key: key.cloned(),
            };
            self.enqueue(id, notification);
        }
    }

    pub(super) fn enqueue(&mut self, id: SubscriptionId, notification: QueuedNotification) {
        let queue_max = self.config.queue_max.max(QUEUE_MIN);
        let Some(subscription) = self.subscriptions.get_mut(&id) else {
            return;
        };
        let is_idle = subscription.queue.is_empty();
        // The first may be in flight, so the oldest of the others is dropped or replaced.
        let oldest = usize::from(subscription.in_flight.is_some());
        if let Some(key) = &notification.key {
            let mut waiting = subscription.queue.iter().skip(oldest);
            if let Some(at) = waiting.position(|one| one.key.as_ref() == Some(key)) {
                subscription.queue.remove(oldest + at);
            }
        }
        let is_full = subscription.queue.len() >= queue_max;
        if is_full {
            subscription.queue.remove(oldest);
        }
        subscription.queue.push_back(notification);
        if is_full {
            self.drop_notifications(id, DropReason::QueueFull, 1);
        }
        if is_idle {
            self.send_next(id);
        }
    }

    /// Sends the first queued notification unless one is in flight.
    pub(super) fn send_next(&mut self, id: SubscriptionId) {
        let Some(subscription) = self.subscriptions.get_mut(&id) else {
            return;
        };
        if subscription.in_flight.is_some() {
            return;
        }
        let Some(first) = subscription.queue.front() else {
            return;
        };
        let delivery = self.next_delivery;
        self.next_delivery += 1;
        let head = head(subscription, &first.action, first.message_id.clone());
        let notification = Notification::new(delivery, id, head, first.body.clone());
        subscription.in_flight = Some(delivery);
        self.deliveries.insert(delivery, id);
        let timeout_at = self.now + self.config.delivery_timeout;
        self.timers
            .set(Timer::DeliveryTimeout(delivery), timeout_at);
        let transmit = SourceTransmit::Notify(Box::new(notification));
        self.outputs.push_back(Output::Transmit(transmit));
    }

    /// Closes a delivery; `None` if its result is late.
    fn close_delivery(&mut self, delivery: u64) -> Option<SubscriptionId> {
        let id = self.deliveries.remove(&delivery)?;
        self.timers.cancel(&Timer::DeliveryTimeout(delivery));
        self.subscriptions.get_mut(&id)?.in_flight = None;
        Some(id)
    }

    pub(super) fn on_delivered(&mut self, delivery: u64) {
        let Some(id) = self.close_delivery(delivery) else {
            return;
        };
        self.delivered += 1;
        if let Some(subscription) = self.subscriptions.get_mut(&id) {
            subscription.queue.pop_front();
            subscription.failures = 0;
        }
        self.send_next(id);
        self.join_tree(id);
    }

    pub(super) fn on_failed(&mut self, delivery: u64, failure: Failure) {
        let Some(id) = self.close_delivery(delivery) else {
            return;
        };
        let Some(subscription) = self.subscriptions.get_mut(&id) else {
            return;
        };
        if failure != Failure::Local {
            subscription.failures += 1;
        }
        let failures = subscription.failures;
        if failures >= self.config.failures_max {
            let status = EndStatus::DeliveryFailure;
            let reason = format!("{failures} notifications in a row could not be delivered");
            self.end(id, Some((status.clone(), reason.into())));
            self.event(SourceEvent::Ended {
                subscription: id,
                status,
            });
            return;
        }
        if failure == Failure::Refused {
            subscription.queue.pop_front();
            self.drop_notifications(id, DropReason::Refused, 1);
            self.join_tree(id);
        }
        let doublings = failures.saturating_sub(1).min(16);
        let pause = self.config.retry_delay.saturating_mul(1 << doublings);
        self.timers.set(Timer::Retry(id), self.now + pause);
    }

    /// Sends SubscriptionEnd once, without retries: the sink may be gone.
    pub(super) fn send_subscription_end(
        &mut self,
        id: SubscriptionId,
        ended: Subscription,
        status: EndStatus,
        reason: Str,
    ) {
        let Some(end_to) = &ended.end_to else {
            return;
        };
        let version = ended.version;
        let message = SubscriptionEnd {
            manager: Some(ended.manager),
            status,
            reason: Some(reason),
        };
        let urn = self.ids.urn();
        let mut head = exchange::request(version, end_to, action::SUBSCRIPTION_END, urn);
        head.addressing.reply_to = None;
        let delivery = self.next_delivery;
        self.next_delivery += 1;
        let body = SharedBody::new(message.to_element(version).into());
        let notification = Notification::new(delivery, id, head, body);
        let transmit = SourceTransmit::Notify(Box::new(notification));
        self.outputs.push_back(Output::Transmit(transmit));
    }
}

fn head(subscription: &Subscription, action: &Str, message_id: Str) -> Envelope {
    let to = &subscription.notify_to;
    let mut head = exchange::request(subscription.version, to, action.clone(), message_id);
    // A one-way message expects no answer.
    head.addressing.reply_to = None;
    head
}
