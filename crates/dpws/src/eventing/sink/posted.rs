//! Messages posted by sources: notifications and ends of subscriptions.

use std::net::SocketAddr;

use chappe_machine::Output;
use chappe_soap::{Envelope, Fault};
use chappe_xml::{Element, Str};

use super::{EndReason, EventSink, SinkEvent, SinkRefusal, SinkTransmit, SubscriptionKey};
use crate::eventing::message::{SubscriptionEnd, action};
use crate::eventing::{EventingFault, Token};
use crate::exchange::{self, Reply};

impl EventSink {
    pub(super) fn on_posted(
        &mut self,
        token: Token,
        peer: SocketAddr,
        path: &str,
        envelope: &Envelope,
    ) {
        let reply = match self.accept(path, envelope) {
            Ok(()) => Reply::ACCEPTED,
            Err((reason, fault)) => {
                *self.refusals.entry(reason).or_default() += 1;
                self.event(SinkEvent::Refused { peer, reason });
                let mut answer = exchange::fault(envelope, &fault, self.ids.urn());
                if let Some((_, blocks)) = exchange::not_understood(envelope, &[])
                    && reason == SinkRefusal::NotUnderstood
                {
                    answer.headers.extend(blocks);
                }
                Reply::message(answer)
            }
        };
        self.outputs
            .push_back(Output::Transmit(SinkTransmit::Reply { token, reply }));
    }

    pub(super) fn find_route(&self, path: &str) -> Option<SubscriptionKey> {
        let text = path.strip_prefix(&*self.config.path)?.strip_prefix('/')?;
        let find_route = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok())??;
        self.routes.get(&find_route).copied()
    }

    fn accept(&mut self, path: &str, envelope: &Envelope) -> Result<(), (SinkRefusal, Fault)> {
        let version = envelope.addressing.version;
        let invalid = |reason, text: &'static str| {
            let fault = EventingFault::InvalidMessage(text.into());
            (reason, fault.to_fault(version))
        };
        let Some(key) = self.find_route(path) else {
            return Err(invalid(
                SinkRefusal::Path,
                "the subscription does not exist",
            ));
        };
        if let Some((fault, _)) = exchange::not_understood(envelope, &[]) {
            return Err((SinkRefusal::NotUnderstood, fault));
        }
        let Some(body) = envelope.body() else {
            return Err(invalid(SinkRefusal::Malformed, "the body is empty"));
        };
        let event_action = &envelope.addressing.action;
        if event_action == action::SUBSCRIPTION_END {
            let end = SubscriptionEnd::from_element(version, body)
                .map_err(|fault| (SinkRefusal::Malformed, fault.to_fault(version)))?;
            self.on_source_end(
                key,
                EndReason::Source {
                    status: end.status,
                    reason: end.reason,
                },
            );
            return Ok(());
        }
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return Err(invalid(
                SinkRefusal::Path,
                "the subscription does not exist",
            ));
        };
        let subscribed = &subscription.source.actions;
        if !subscribed.is_empty() && !subscribed.contains(event_action) {
            let fault = exchange::action_not_supported(version, event_action);
            return Err((SinkRefusal::Action, fault));
        }
        subscription.last_contact = self.now;
        if let Some(id) = &envelope.addressing.message_id {
            let hash = self.ids.hash(id.as_bytes());
            let capacity = match subscription.on_tree {
                true => self.config.tree_duplicates_max,
                false => self.config.duplicates_max,
            };
            if !subscription.seen.insert(hash, capacity) {
                self.duplicates += 1;
                return Ok(());
            }
        }
        let event = SinkEvent::Notification {
            key,
            action: event_action.clone(),
            body: body.clone(),
            by_tree: false,
        };
        self.event(event);
        self.schedule(key);
        Ok(())
    }

    /// Handles an event received through the tree.
    pub(super) fn on_tree_event(
        &mut self,
        key: SubscriptionKey,
        message_id: &str,
        action: Str,
        body: Element,
    ) {
        let hash = self.ids.hash(message_id.as_bytes());
        let capacity = self.config.tree_duplicates_max;
        let known = self.subscriptions.get_mut(&key);
        let subscribed =
            known.filter(|known| known.on_tree && known.source.actions.contains(&action));
        let Some(subscription) = subscribed else {
            return self.event(SinkEvent::Ignored { key });
        };
        subscription.last_contact = self.now;
        if !subscription.seen.insert(hash, capacity) {
            self.duplicates += 1;
            return self.event(SinkEvent::Ignored { key });
        }
        let by_tree = true;
        self.event(SinkEvent::Notification {
            key,
            action,
            body,
            by_tree,
        });
        self.schedule(key);
    }
}
