//! Goal: nodes that were silent for so long that the table has dropped them are found again,
//! without an entrance and without disturbing others.
//!
//! Method: real nodes with real keys that know each other as after a restart, so that they have no
//! entrance; a cut between them, or a contact that is absent.

use std::time::Duration;

use crate::network::{Network, address};
use chappe_identity::Key as IdentityKey;
use chappe_kad::Contact;

const HOUR: Duration = Duration::from_secs(3_600);

/// Nodes that know each other and no entrance.
fn acquainted(count: u8) -> Network {
    let mut network = Network::new(count, |_, _| {});
    let contacts: Vec<_> = (0..usize::from(count))
        .map(|index| network.contact(index))
        .collect();
    for (index, node) in network.nodes.iter_mut().enumerate() {
        let others = contacts.iter().enumerate();
        let others = others.filter(|(other, _)| *other != index);
        node.recall(network.now, others.map(|(_, contact)| *contact));
    }
    network
}

#[test]
fn halves_that_have_forgotten_each_other_come_together() {
    let mut network = acquainted(10);
    network.cut = 5;
    network.pass(24 * HOUR);
    for (index, node) in network.nodes.iter().enumerate() {
        let own = node
            .contacts()
            .filter(|it| (0..5).any(|at| address(at) == it.address) == (index < 5));
        assert_eq!((own.count(), node.contacts_len()), (4, 4), "node {index}");
    }
    network.cut = 0;
    // A sixteenth of the silence, and the housekeeping after it.
    network.pass(24 * HOUR / 16 + Duration::from_secs(300));
    for (index, node) in network.nodes.iter().enumerate() {
        assert_eq!(node.contacts_len(), 9, "node {index}");
    }
}

#[test]
fn who_does_not_come_back_is_asked_ever_less_often() {
    let mut network = acquainted(1);
    let gone = Contact {
        public: IdentityKey::from_seed([9; 32]).public(),
        address: address(9),
    };
    network.nodes[0].recall(network.now, [gone]);
    network.pass(8 * 24 * HOUR);
    assert_eq!(network.nodes[0].contacts_len(), 0);
    let asked = network.astray.len();
    // Every five minutes for 80 minutes, then after a sixteenth more each time.
    assert!((50..150).contains(&asked), "asked {asked} times");
    network.astray.clear();
    network.pass(24 * HOUR);
    assert!(network.astray.len() <= 3, "{}", network.astray.len());
}
