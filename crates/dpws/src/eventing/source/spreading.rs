//! Membership of sinks in notification trees, and the fallback for events that miss them.
//!
//! The source proves a sink's address, then lists the sink as soon as its queue of standard
//! notifications is empty, which keeps events in order. An event that misses a sink is sent as a
//! standard notification with the same identifier; consecutive misses remove the sink from the
//! tree.

use std::cmp::Reverse;

use chappe_machine::Output;
use chappe_xml::Str;

use super::delivery::QueuedNotification;
use super::types::SharedBody;
use super::{
    EventSource, Request, SourceEvent, SourceTransmit, Spread, Subscription, SubscriptionId,
};
use crate::eventing::{TreeOffer, TreePeer, TreeSink};

/// A subscription whose sink supports trees.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnTree {
    pub(super) sink: TreeSink,
    stage: Stage,
    /// Consecutive events that missed the sink.
    misses: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The proof of its address is pending.
    Proving,
    /// The address is proven; standard notifications are queued.
    Proven,
    /// Listed as a member.
    Member,
    /// Removed; events in flight may still have missed it.
    Removed,
}

impl OnTree {
    pub(super) fn new(sink: TreeSink) -> Self {
        Self {
            sink,
            stage: Stage::Proving,
            misses: 0,
        }
    }
}

impl Subscription {
    pub(super) fn is_member(&self) -> bool {
        self.on_tree.is_some_and(|tree| tree.stage == Stage::Member)
    }

    fn peer(&self) -> Option<TreePeer> {
        self.on_tree.map(|tree| tree.sink.peer)
    }
}

impl EventSource {
    /// The tree offered to a subscriber that supports trees. Otherwise reports the reason, and the
    /// subscriber gets standard notifications.
    pub(super) fn tree_for(
        &mut self,
        request: &Request,
        requested: &Result<Option<TreeSink>, &'static str>,
        subscription: SubscriptionId,
    ) -> Option<(TreeOffer, TreeSink)> {
        let config = self.config.tree.as_ref()?;
        let checked = match requested {
            Ok(None) => return None,
            Err(reason) => Err(*reason),
            Ok(Some(sink)) if sink.peer.address.is_ipv4() != config.v4 => {
                Err("the sink's address has another family than the tree")
            }
            Ok(Some(sink)) if (self.check)(&sink.peer.uri(), request.peer).is_err() => {
                Err("the sink's address is refused by the address check")
            }
            Ok(Some(sink)) => match config.offer(&request.base) {
                Some(offer) => Ok((offer, *sink)),
                None => Err("the tree has no address of the request's family"),
            },
        };
        let reason = match checked {
            Ok(offer) => return Some(offer),
            Err(reason) => reason,
        };
        self.event(SourceEvent::OffTree {
            subscription,
            reason,
        });
        None
    }

    pub(super) fn prove_address(&mut self, action: Str, peer: TreePeer) {
        let prove = SourceTransmit::Prove { action, peer };
        self.outputs.push_back(Output::Transmit(prove));
    }

    /// All subscriptions of a sink.
    fn subscriptions_of(&self, peer: TreePeer) -> Vec<SubscriptionId> {
        let all = self.subscriptions.iter();
        let of = all.filter(|(_, one)| one.peer() == Some(peer));
        of.map(|(id, _)| *id).collect()
    }

    pub(super) fn on_proof_result(&mut self, peer: TreePeer, is_reachable: bool) {
        for subscription in self.subscriptions_of(peer) {
            let Some(known) = self.subscriptions.get_mut(&subscription) else {
                continue;
            };
            let Some(tree) = known
                .on_tree
                .as_mut()
                .filter(|tree| tree.stage == Stage::Proving)
            else {
                continue;
            };
            if is_reachable {
                tree.stage = Stage::Proven;
                self.join_tree(subscription);
                continue;
            }
            self.remove_from_tree(
                subscription,
                "the sink did not prove its key at its address",
            );
        }
    }

    /// Lists a sink once its queue is empty.
    pub(super) fn join_tree(&mut self, id: SubscriptionId) {
        let Some(known) = self.subscriptions.get_mut(&id) else {
            return;
        };
        let Some(tree) = &mut known.on_tree else {
            return;
        };
        if tree.stage != Stage::Proven || !known.queue.is_empty() {
            return;
        }
        tree.stage = Stage::Member;
        let peer = tree.sink.peer;
        self.changed.extend(known.actions.iter().cloned());
        // This sink has just answered, so another key at its address is stale.
        let is_stale = |one: &TreePeer| one.address == peer.address && one.key != peer.key;
        let all = self.subscriptions.iter();
        let stale = all.filter(|(_, one)| one.peer().as_ref().is_some_and(is_stale));
        let stale: Vec<_> = stale.map(|(id, _)| *id).collect();
        for subscription in stale {
            self.remove_from_tree(subscription, "another sink answered at its address");
        }
    }

    /// Falls back to standard notifications.
    fn remove_from_tree(&mut self, subscription: SubscriptionId, reason: &'static str) {
        if let Some(known) = self.subscriptions.get_mut(&subscription) {
            if known.is_member() {
                self.changed.extend(known.actions.iter().cloned());
            }
            if let Some(tree) = &mut known.on_tree {
                tree.stage = Stage::Removed;
            }
        }
        self.event(SourceEvent::OffTree {
            subscription,
            reason,
        });
    }

    /// Updates the trees after a subscription has ended.
    pub(super) fn on_member_ended(&mut self, ended: &Subscription) {
        if ended.is_member() {
            self.changed.extend(ended.actions.iter().cloned());
        }
    }

    /// Emits the members of changed trees.
    pub(super) fn send_members(&mut self) {
        for action in std::mem::take(&mut self.changed) {
            let members = self.subscriptions.values();
            let members = members.filter(|one| one.is_member() && one.has_action(&action));
            let mut sinks: Vec<_> = members
                .filter_map(|one| one.on_tree.map(|tree| tree.sink))
                .collect();
            // A sink may have several subscriptions; the most critical one counts.
            sinks.sort_unstable_by_key(|sink| (sink.peer, Reverse(sink.criticality)));
            sinks.dedup_by_key(|sink| sink.peer);
            let members = SourceTransmit::Members { action, sinks };
            self.outputs.push_back(Output::Transmit(members));
        }
    }

    /// Whether another event may be in flight on trees.
    pub(super) fn can_spread(&self) -> bool {
        let limit = self.config.tree.as_ref().map_or(0, |tree| tree.spreads_max);
        self.spreading.len() < limit
    }

    pub(super) fn spread(&mut self, message_id: Str, action: &str, body: &SharedBody) {
        let delivery = self.next_delivery;
        self.next_delivery += 1;
        let notification = QueuedNotification {
            message_id,
            action: action.to_owned().into(),
            body: body.clone(),
            // An event that missed a sink on a tree comes late, and must not replace a newer one.
            key: None,
        };
        let spread = Spread {
            delivery,
            action: notification.action.clone(),
            message_id: notification.message_id.clone(),
            body: body.clone(),
        };
        self.spreading.insert(delivery, notification);
        let transmit = SourceTransmit::Spread(Box::new(spread));
        self.outputs.push_back(Output::Transmit(transmit));
    }

    pub(super) fn on_spread_result(&mut self, delivery: u64, delivered: u64, missed: &[TreePeer]) {
        let Some(notification) = self.spreading.remove(&delivery) else {
            return;
        };
        self.delivered_by_tree += delivered;
        self.missed_by_tree += missed.len() as u64;
        let misses_max = self.config.tree.as_ref().map_or(0, |tree| tree.misses_max);
        let mut missed_ids = Vec::new();
        let mut removed = Vec::new();
        for (id, known) in &mut self.subscriptions {
            if !known.has_action(&notification.action) {
                continue;
            }
            let Some(tree) = &mut known.on_tree else {
                continue;
            };
            if !missed.contains(&tree.sink.peer) {
                tree.misses = 0;
                continue;
            }
            tree.misses = tree.misses.saturating_add(1);
            missed_ids.push(*id);
            if tree.stage == Stage::Member && tree.misses >= misses_max {
                removed.push(*id);
            }
        }
        for subscription in removed {
            self.remove_from_tree(
                subscription,
                "too many consecutive events missed it on the tree",
            );
        }
        for id in missed_ids {
            self.enqueue(id, notification.clone());
        }
    }

    pub(super) fn on_spread_failed(&mut self, delivery: u64) {
        let Some(notification) = self.spreading.remove(&delivery) else {
            return;
        };
        // A sink removed meanwhile may have been a member; if it was not, the identifier marks a
        // duplicate.
        let was_member = |one: &Subscription| {
            let stage = one.on_tree.map(|tree| tree.stage);
            matches!(stage, Some(Stage::Member | Stage::Removed))
                && one.has_action(&notification.action)
        };
        let all = self.subscriptions.iter();
        let members: Vec<_> = all
            .filter(|(_, one)| was_member(one))
            .map(|(id, _)| *id)
            .collect();
        for id in members {
            self.enqueue(id, notification.clone());
        }
    }
}
