//! What sources post to the sink: notifications and the ends of subscriptions.

use std::net::SocketAddr;

use chappe_machine::Output;
use chappe_soap::{Envelope, Fault};
use chappe_xml::{Element, Str};

use super::{EndReason, EventSink, SinkEvent, SinkRefusal, SinkTransmit, SubscriptionKey};
use crate::eventing::message::{SubscriptionEnd, action};
use crate::eventing::{EventingFault, Token};
use crate::exchange::{self, Reply};

impl EventSink {
    pub(super) fn posted(
        &mut self,
        token: Token,
        peer: SocketAddr,
        path: &str,
        envelope: &Envelope,
    ) {
        let reply = match self.take(path, envelope) {
            Ok(()) => Reply::ACCEPTED,
            Err((reason, fault)) => {
                *self.refused.entry(reason).or_default() += 1;
                self.event(SinkEvent::Refused { peer, reason });
                Reply::message(exchange::fault(envelope, &fault, self.ids.urn()))
            }
        };
        self.outputs
            .push_back(Output::Transmit(SinkTransmit::Reply { token, reply }));
    }

    pub(super) fn route(&self, path: &str) -> Option<SubscriptionKey> {
        let text = path.strip_prefix(&*self.config.path)?.strip_prefix('/')?;
        let route = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok())??;
        self.routes.get(&route).copied()
    }

    fn take(&mut self, path: &str, envelope: &Envelope) -> Result<(), (SinkRefusal, Fault)> {
        let version = envelope.addressing.version;
        let invalid = |reason, text: &'static str| {
            let fault = EventingFault::InvalidMessage(text.into());
            (reason, fault.to_fault(version))
        };
        let Some(key) = self.route(path) else {
            return Err(invalid(SinkRefusal::Path, "there is no such subscription"));
        };
        if let Some(header) = envelope.not_understood(&[]) {
            let fault = exchange::not_understood(&header.name);
            return Err((SinkRefusal::NotUnderstood, fault));
        }
        let Some(body) = envelope.body() else {
            return Err(invalid(SinkRefusal::Malformed, "its body is empty"));
        };
        let asked = &envelope.addressing.action;
        if asked == action::SUBSCRIPTION_END {
            let end = SubscriptionEnd::from_element(version, body)
                .map_err(|fault| (SinkRefusal::Malformed, fault.to_fault(version)))?;
            self.lost(
                key,
                EndReason::Source {
                    status: end.status,
                    reason: end.reason,
                },
            );
            return Ok(());
        }
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return Err(invalid(SinkRefusal::Path, "there is no such subscription"));
        };
        let wanted = &subscription.source.actions;
        if !wanted.is_empty() && !wanted.contains(asked) {
            let fault = exchange::action_not_supported(version, asked);
            return Err((SinkRefusal::Action, fault));
        }
        subscription.heard_at = self.now;
        if let Some(id) = &envelope.addressing.message_id {
            let hash = self.ids.hash(id.as_bytes());
            let most = match subscription.on_tree {
                true => self.config.tree_duplicates_max,
                false => self.config.duplicates_max,
            };
            if !subscription.seen.note(hash, most) {
                self.duplicates += 1;
                return Ok(());
            }
        }
        let event = SinkEvent::Notification {
            key,
            action: asked.clone(),
            body: body.clone(),
            by_tree: false,
        };
        self.event(event);
        self.schedule(key);
        Ok(())
    }

    /// An event that came by the tree.
    pub(super) fn spread(
        &mut self,
        key: SubscriptionKey,
        message_id: &str,
        action: Str,
        body: Element,
    ) {
        let hash = self.ids.hash(message_id.as_bytes());
        let most = self.config.tree_duplicates_max;
        let known = self.subscriptions.get_mut(&key);
        let wanted = known.filter(|known| known.on_tree && known.source.actions.contains(&action));
        let Some(subscription) = wanted else {
            return self.event(SinkEvent::NotTaken { key });
        };
        subscription.heard_at = self.now;
        if !subscription.seen.note(hash, most) {
            self.duplicates += 1;
            return self.event(SinkEvent::NotTaken { key });
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
