//! Sinks on notification trees: when they are listed, and what happens to events that miss them.
//!
//! A sink is asked at its address, then listed as soon as no standard notification waits for it, so
//! that nothing overtakes. What it does not get by the tree it gets as a standard notification with
//! the same identifier; after some of those in a row it is taken off the list.

use std::cmp::Reverse;

use chappe_machine::Output;
use chappe_xml::Str;

use super::delivery::Waiting;
use super::types::SharedBody;
use super::{
    EventSource, Request, SourceEvent, SourceTransmit, Spread, Subscription, SubscriptionId,
};
use crate::eventing::{TreeOffer, TreePeer, TreeSink};

/// A subscription whose sink understands trees.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnTree {
    pub(super) sink: TreeSink,
    stage: Stage,
    /// Events in a row that it did not get by the tree.
    misses: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Asked whether it is where it says.
    Asked,
    /// It is; standard notifications still wait.
    There,
    /// Listed.
    Member,
    /// Not listed any more; events under way may still have missed it.
    Off,
}

impl OnTree {
    pub(super) fn asked(sink: TreeSink) -> Self {
        Self {
            sink,
            stage: Stage::Asked,
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
    /// What a subscriber that asks for the tree is offered; why not is told, and it gets standard
    /// notifications.
    pub(super) fn tree_for(
        &mut self,
        request: &Request,
        asked: &Result<Option<TreeSink>, &'static str>,
        subscription: SubscriptionId,
    ) -> Option<(TreeOffer, TreeSink)> {
        let config = self.config.tree.as_ref()?;
        let judged = match asked {
            Ok(None) => return None,
            Err(reason) => Err(*reason),
            Ok(Some(sink)) if sink.peer.address.is_ipv4() != config.v4 => {
                Err("its address is of another family than the tree")
            }
            Ok(Some(sink)) if (self.check)(&sink.peer.uri(), request.peer).is_err() => {
                Err("its address is not contacted")
            }
            Ok(Some(sink)) => match config.offer(&request.base) {
                Some(offer) => Ok((offer, *sink)),
                None => Err("the tree has no address of the family it came by"),
            },
        };
        let reason = match judged {
            Ok(offer) => return Some(offer),
            Err(reason) => reason,
        };
        self.event(SourceEvent::OffTree {
            subscription,
            reason,
        });
        None
    }

    pub(super) fn prove(&mut self, action: Str, peer: TreePeer) {
        let prove = SourceTransmit::Prove { action, peer };
        self.outputs.push_back(Output::Transmit(prove));
    }

    /// The subscriptions of a sink.
    fn of(&self, peer: TreePeer) -> Vec<SubscriptionId> {
        let all = self.subscriptions.iter();
        let of = all.filter(|(_, one)| one.peer() == Some(peer));
        of.map(|(id, _)| *id).collect()
    }

    pub(super) fn proven(&mut self, peer: TreePeer, there: bool) {
        for subscription in self.of(peer) {
            let Some(known) = self.subscriptions.get_mut(&subscription) else {
                continue;
            };
            let Some(tree) = known
                .on_tree
                .as_mut()
                .filter(|tree| tree.stage == Stage::Asked)
            else {
                continue;
            };
            if there {
                tree.stage = Stage::There;
                self.join(subscription);
                continue;
            }
            self.off(subscription, "nobody with its key answers at its address");
        }
    }

    /// Lists a sink for which nothing waits any more.
    pub(super) fn join(&mut self, id: SubscriptionId) {
        let Some(known) = self.subscriptions.get_mut(&id) else {
            return;
        };
        let Some(tree) = &mut known.on_tree else {
            return;
        };
        if tree.stage != Stage::There || !known.queue.is_empty() {
            return;
        }
        tree.stage = Stage::Member;
        let peer = tree.sink.peer;
        self.changed.extend(known.actions.iter().cloned());
        // Who was there with another key is gone: this one has just answered.
        let elsewhere = |one: &TreePeer| one.address == peer.address && one.key != peer.key;
        let all = self.subscriptions.iter();
        let gone = all.filter(|(_, one)| one.peer().as_ref().is_some_and(elsewhere));
        let gone: Vec<_> = gone.map(|(id, _)| *id).collect();
        for subscription in gone {
            self.off(subscription, "another sink answers at its address");
        }
    }

    /// A subscription goes on with standard notifications alone.
    fn off(&mut self, subscription: SubscriptionId, reason: &'static str) {
        if let Some(known) = self.subscriptions.get_mut(&subscription) {
            if known.is_member() {
                self.changed.extend(known.actions.iter().cloned());
            }
            if let Some(tree) = &mut known.on_tree {
                tree.stage = Stage::Off;
            }
        }
        self.event(SourceEvent::OffTree {
            subscription,
            reason,
        });
    }

    /// A subscription has ended.
    pub(super) fn left_tree(&mut self, left: &Subscription) {
        if left.is_member() {
            self.changed.extend(left.actions.iter().cloned());
        }
    }

    /// Says who is on the trees that have changed.
    pub(super) fn tell_members(&mut self) {
        for action in std::mem::take(&mut self.changed) {
            let wanting = self.subscriptions.values();
            let wanting = wanting.filter(|one| one.is_member() && one.wants(&action));
            let mut sinks: Vec<_> = wanting
                .filter_map(|one| one.on_tree.map(|tree| tree.sink))
                .collect();
            // A sink may have several subscriptions: the most critical one comes first.
            sinks.sort_unstable_by_key(|sink| (sink.peer, Reverse(sink.criticality)));
            sinks.dedup_by_key(|sink| sink.peer);
            let members = SourceTransmit::Members { action, sinks };
            self.outputs.push_back(Output::Transmit(members));
        }
    }

    /// Whether one more event may be under way on trees.
    pub(super) fn spreads_more(&self) -> bool {
        let most = self.config.tree.as_ref().map_or(0, |tree| tree.spreads_max);
        self.spreading.len() < most
    }

    pub(super) fn spread(&mut self, message_id: Str, action: &str, body: &SharedBody) {
        let delivery = self.next_delivery;
        self.next_delivery += 1;
        let waiting = Waiting {
            message_id,
            action: action.to_owned().into(),
            body: body.clone(),
        };
        let spread = Spread {
            delivery,
            action: waiting.action.clone(),
            message_id: waiting.message_id.clone(),
            body: body.clone(),
        };
        self.spreading.insert(delivery, waiting);
        let transmit = SourceTransmit::Spread(Box::new(spread));
        self.outputs.push_back(Output::Transmit(transmit));
    }

    pub(super) fn spread_ended(&mut self, delivery: u64, delivered: u64, missed: &[TreePeer]) {
        let Some(waiting) = self.spreading.remove(&delivery) else {
            return;
        };
        self.delivered_by_tree += delivered;
        self.missed_by_tree += missed.len() as u64;
        let misses_max = self.config.tree.as_ref().map_or(0, |tree| tree.misses_max);
        let mut late = Vec::new();
        let mut off = Vec::new();
        for (id, known) in &mut self.subscriptions {
            if !known.wants(&waiting.action) {
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
            late.push(*id);
            if tree.stage == Stage::Member && tree.misses >= misses_max {
                off.push(*id);
            }
        }
        for subscription in off {
            self.off(subscription, "events do not reach it by the tree");
        }
        for id in late {
            self.enqueue(id, waiting.clone());
        }
    }

    pub(super) fn not_spread(&mut self, delivery: u64) {
        let Some(waiting) = self.spreading.remove(&delivery) else {
            return;
        };
        // Who was taken off the list meanwhile may have been on it, and knows the identifier if not.
        let was = |one: &Subscription| {
            let stage = one.on_tree.map(|tree| tree.stage);
            matches!(stage, Some(Stage::Member | Stage::Off)) && one.wants(&waiting.action)
        };
        let all = self.subscriptions.iter();
        let members: Vec<_> = all.filter(|(_, one)| was(one)).map(|(id, _)| *id).collect();
        for id in members {
            self.enqueue(id, waiting.clone());
        }
    }
}
