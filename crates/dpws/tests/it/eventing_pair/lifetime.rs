//! A subscription lives through lost messages, restarts and races until it is unsubscribed.

use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::{
    EndReason, EndStatus, SinkCommand, SinkEvent, SinkRefusal, SourceCommand, SourceRefusal,
    TroubleReason,
};

use super::{KEY, Packet, REPORT, World, is_renewed};

#[test]
fn subscription_is_renewed_until_stopped() {
    for dialect in Dialect::ALL {
        let mut world = World::new(1);
        world.dialect = dialect;
        world.restart_sink();
        world.subscribe(&[REPORT]);
        for _ in 0..60 {
            world.run(Duration::from_secs(1));
            world.notify();
        }
        world.run(Duration::from_secs(1));
        assert_eq!(world.received, (0..60).collect::<Vec<_>>(), "{dialect:?}");
        // Renewal after 50 to 75 % of 10 s, during 60 s.
        let renewed = world.count(is_renewed);
        assert!((7..=12).contains(&renewed), "{renewed} renewals");
        world.command(SinkCommand::Stop);
        world.run(Duration::from_secs(1));
        assert_eq!(world.ended(), [&EndReason::Unsubscribed]);
        assert_eq!(world.live(), 0);
        assert_eq!(world.sink.deadline(), None);
    }
}

#[test]
fn lossy_channel_keeps_order_and_deduplicates() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        world.subscribe(&[REPORT]);
        world.run(Duration::from_secs(1));
        world.loss = 0.2;
        for _ in 0..100 {
            world.run(Duration::from_millis(700));
            world.notify();
        }
        world.loss = 0.0;
        // Leases of orphaned attempts expire and pauses end.
        world.run(Duration::from_secs(40));
        assert_eq!(world.live(), 1, "seed {seed}");
        assert!(
            world.last_state_is_granted(),
            "seed {seed}: {:?}",
            world.events
        );
        let rising = world.received.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(rising, "seed {seed}: {:?}", world.received);
        if world.ended().is_empty() {
            let all: Vec<_> = (0..100).collect();
            assert_eq!(
                world.received, all,
                "seed {seed}: events are lost only with an end"
            );
        }
        let received_before = world.received.len();
        for _ in 0..10 {
            world.notify();
            world.run(Duration::from_secs(1));
        }
        assert_eq!(
            world.received.len(),
            received_before + 10,
            "seed {seed}: delivery has recovered"
        );
    }
}

#[test]
fn sink_resubscribes_after_source_restart() {
    let mut world = World::new(3);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.restart_source();
    // Automatically when a renewal fails, at the latest after three quarters of the lease.
    world.run(Duration::from_secs(8));
    assert_eq!(world.live(), 1);
    assert_eq!(world.ended(), [&EndReason::Forgotten]);
    // Faster when the application noticed the restart.
    world.restart_source();
    world.command(SinkCommand::Verify { key: KEY });
    world.run(Duration::from_secs(1));
    assert_eq!(world.live(), 1);
    world.notify();
    world.run(Duration::from_secs(1));
    assert_eq!(world.received, [0]);
}

#[test]
fn verifying_live_subscription_changes_nothing() {
    let mut world = World::new(4);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.command(SinkCommand::Verify { key: KEY });
    world.run(Duration::from_secs(1));
    assert!(world.ended().is_empty());
    let (_, remaining) = world.sink.machine().subscriptions().next().unwrap();
    let remaining = remaining.unwrap();
    assert!(
        remaining > Duration::from_secs(7) && remaining < Duration::from_secs(9),
        "{remaining:?}"
    );
}

/// A Hello, which is not authenticated, makes a client verify its subscriptions.
#[test]
fn flood_of_hellos_neither_ends_a_subscription_nor_floods_its_source() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        world.subscribe(&[REPORT]);
        world.run(Duration::from_secs(1));
        for step in 0..1_200 {
            world.command(SinkCommand::Verify { key: KEY });
            if step % 20 == 0 {
                world.notify();
            }
            world.run(Duration::from_millis(50));
        }
        assert!(world.ended().is_empty(), "seed {seed}: {:?}", world.events);
        assert_eq!(world.received, (0..60).collect::<Vec<_>>(), "seed {seed}");
        // In 60 s one question a second, and renewals after 50 to 75 % of 10 s.
        let renewed = world.count(is_renewed);
        assert!((7..=12).contains(&renewed), "seed {seed}: {renewed}");
        assert!(world.requests <= 75, "seed {seed}: {}", world.requests);
    }
}

#[test]
fn recovered_subscription_is_reported() {
    let mut world = World::new(4);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.loss = 1.0;
    world.command(SinkCommand::Verify { key: KEY });
    while world.last_state_is_granted() {
        world.run(Duration::from_millis(100));
    }
    world.loss = 0.0;
    world.command(SinkCommand::Verify { key: KEY });
    // One round trip; the next renewal is due later.
    world.run(Duration::from_millis(400));
    assert!(world.last_state_is_granted(), "{:?}", world.events);
    assert!(world.ended().is_empty());
}

#[test]
fn restarted_sink_leaves_no_orphan() {
    let mut world = World::new(5);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.restart_sink();
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    assert_eq!(
        world.live(),
        2,
        "the source has not noticed the restart yet"
    );
    for _ in 0..8 {
        world.notify();
        world.run(Duration::from_secs(1));
    }
    assert_eq!(
        world.live(),
        1,
        "the orphan rejected its notifications and ended"
    );
    assert!(world.sink.machine().refused(SinkRefusal::Path) >= 4);
    assert_eq!(world.received, (0..8).collect::<Vec<_>>());
}

#[test]
fn renewal_racing_with_expiry_recovers() {
    let mut raced = 0;
    for seed in 0..20 {
        let mut world = World::new(seed);
        // A round trip takes up to 0.4 s and a renewal starts after 0.5 s at the earliest.
        world.lease = Duration::from_millis(650);
        world.subscribe(&[REPORT]);
        for _ in 0..100 {
            world.run(Duration::from_millis(100));
            world.notify();
        }
        raced += world.ended().len();
        let rising = world.received.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(
            rising && world.received.len() > 25,
            "seed {seed}: {:?}",
            world.received
        );
        assert!(world.live() <= 2, "seed {seed}");
    }
    assert!(raced > 0, "no run had a race");
}

#[test]
fn unsubscribe_wins_over_pending_renewal() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.subscribe(&[REPORT]);
        let renewing = |world: &World| {
            let renew = |packet: &Packet| match packet {
                Packet::Request(_, envelope) => envelope.addressing.action.ends_with("/Renew"),
                _ => false,
            };
            world.packets.values().any(|(_, packet)| renew(packet))
        };
        while !renewing(&world) {
            world.run(Duration::from_millis(1));
        }
        world.command(SinkCommand::Unsubscribe { key: KEY });
        world.run(Duration::from_secs(1));
        assert_eq!(world.ended(), [&EndReason::Unsubscribed]);
        assert_eq!(
            (world.live(), world.count(is_renewed)),
            (0, 0),
            "seed {seed}"
        );
        assert_eq!(world.sink.deadline(), None);
    }
}

#[test]
fn silence_is_verified_if_configured() {
    let mut world = World::new(13);
    world.verify_after = Some(Duration::from_secs(2));
    world.restart_sink();
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.restart_source();
    world.run(Duration::from_secs(3));
    assert_eq!(world.live(), 1, "before the renewal is due");
    assert_eq!(world.ended(), [&EndReason::Forgotten]);
}

#[test]
fn dead_source_is_retried_with_growing_pauses() {
    let mut world = World::new(6);
    world.loss = 1.0;
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(60));
    let troubles = world.count(|event| {
        matches!(
            event,
            SinkEvent::Trouble {
                reason: TroubleReason::Unreachable(_),
                hint: Some(_),
                ..
            }
        )
    });
    // Each attempt takes 2 s, the pauses are 1, 2, 4, 8, 8, … s.
    assert!((6..=9).contains(&troubles), "{troubles} attempts");
    world.loss = 0.0;
    world.run(Duration::from_secs(12));
    assert_eq!(world.live(), 1);
}

#[test]
fn unanswered_lease_expires() {
    let mut world = World::new(7);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.loss = 1.0;
    world.run(Duration::from_secs(12));
    assert_eq!(world.ended(), [&EndReason::Expired]);
    assert_eq!(world.live(), 0);
    world.loss = 0.0;
    world.run(Duration::from_secs(12));
    assert_eq!(world.live(), 1);
}

#[test]
fn sink_resubscribes_after_source_shutdown() {
    let mut world = World::new(8);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.source_command(SourceCommand::Shutdown);
    world.run(Duration::from_secs(3));
    let shutting_down = |reason: &&EndReason| {
        matches!(
            reason,
            EndReason::Source {
                status: EndStatus::SourceShuttingDown,
                ..
            }
        )
    };
    assert_eq!(
        world
            .ended()
            .iter()
            .filter(|reason| shutting_down(reason))
            .count(),
        1
    );
    assert!(world.source.machine().refused(SourceRefusal::Stopping) > 0);
    world.restart_source();
    world.run(Duration::from_secs(15));
    assert_eq!(world.live(), 1);
}
