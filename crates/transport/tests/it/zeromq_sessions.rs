//! Goal: DEALER and ROUTER lose nothing, hold back per peer, and let in whom they should.
//! Method: both ends in one runtime over loopback, NULL and CURVE; peers that do not read, bursts
//! far above the queues, wrong keys.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::own_address;
use bytes::Bytes;
use chappe_identity::{CurveSecret, Key};
use chappe_transport::zeromq::{
    Allowed, Connection, Dealer, Error, Fault, Limits, Message, Router, Security,
};
use chappe_transport::{Drops, Hop};

fn secret(seed: u8) -> CurveSecret {
    Key::from_seed([seed; 32]).curve()
}

fn server(allowed: Allowed) -> Security {
    Security::CurveServer {
        secret: secret(1),
        allowed,
    }
}

fn client(own: u8, server: u8) -> Security {
    Security::CurveClient {
        secret: secret(own),
        server_key: secret(server).public(),
    }
}

async fn router(security: Security, limits: Limits, drops: &Drops) -> (Router, String) {
    // Nobody else takes the port when it has ended.
    let own = format!("tcp://{}:0", own_address());
    let router = Router::bind(&own, security, limits, drops.clone());
    let router = router.await.unwrap();
    let endpoint = router.local_endpoint().to_string();
    (router, endpoint)
}

async fn pair(router_side: Security, dealer_side: Security) -> (Router, Connection, Connection) {
    let (mut router, endpoint) = router(router_side, Limits::default(), &Drops::default()).await;
    let dealer = Dealer::connect(&endpoint, dealer_side, Limits::default());
    let (dealer, accepted) = tokio::join!(dealer, router.accept());
    (router, dealer.unwrap(), accepted.unwrap())
}

fn numbered(number: u32) -> Message {
    let mut message = Message::new(number.to_be_bytes().to_vec());
    message.push(Bytes::new());
    message.push(vec![number as u8; 100]);
    message
}

#[tokio::test]
async fn a_burst_arrives_whole_and_in_order_both_ways() {
    const MANY: u32 = 4_000;
    let allowed = Allowed::Keys(BTreeSet::from([secret(2).public()]));
    for (router_side, dealer_side) in [
        (Security::Null, Security::Null),
        (server(allowed), client(2, 1)),
    ] {
        let (_router, dealer, accepted) = pair(router_side, dealer_side).await;
        let send = |connection: Connection| async {
            let (mut sender, mut receiver) = connection.split();
            let sending = async {
                for number in 0..MANY {
                    sender.feed(numbered(number)).await.unwrap();
                }
                sender.flush();
            };
            let receiving = async {
                for number in 0..MANY {
                    assert_eq!(receiver.recv().await.unwrap(), numbered(number));
                }
            };
            tokio::join!(sending, receiving);
            // Neither end closes before the other has all.
            (sender, receiver)
        };
        let _ends = tokio::join!(send(dealer), send(accepted));
    }
}

#[tokio::test]
async fn the_peers_key_is_known_and_others_are_refused_in_words() {
    let drops = Drops::default();
    let allowed = Allowed::Keys(BTreeSet::from([secret(2).public()]));
    let (mut router, endpoint) = router(server(allowed), Limits::default(), &drops).await;
    let connect = |security| Dealer::connect(&endpoint, security, Limits::default());

    let (dealer, accepted) = tokio::join!(connect(client(2, 1)), router.accept());
    assert_eq!(dealer.unwrap().peer().key, Some(secret(1).public()));
    assert_eq!(accepted.unwrap().peer().key, Some(secret(2).public()));

    let refused = connect(client(3, 1)).await.unwrap_err();
    assert_eq!(refused.reason(), "refused by the peer");
    assert_eq!(refused.fault(), Fault::Configuration);
    let wrong = connect(client(2, 9)).await.unwrap_err();
    assert!(
        matches!(
            &wrong,
            Error::Ended {
                handshake: true,
                ..
            }
        ),
        "{wrong}"
    );
    assert!(wrong.hint().unwrap().contains("public key"), "{wrong}");
    let plain = connect(Security::Null).await.unwrap_err();
    assert_eq!(plain.reason(), "other security mechanism");
    // The caller may know it before it is counted.
    let mut changes = drops.changes();
    for reason in ["key not allowed", "wrong key", "other security mechanism"] {
        while drops.total(Hop::Exchange, reason) == 0 {
            changes.changed().await.unwrap();
        }
        assert_eq!(drops.total(Hop::Exchange, reason), 1, "{reason}");
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_holds_up_nobody_else_and_bounds_memory() {
    let limits = Limits {
        send_messages: 10,
        receive_messages: 10,
        ..Limits::default()
    };
    let (mut router, endpoint) = router(Security::Null, limits.clone(), &Drops::default()).await;
    let connect = || Dealer::connect(&endpoint, Security::Null, limits.clone());
    let (stalled, at_stalled) = tokio::join!(connect(), router.accept());
    let (live, at_live) = tokio::join!(connect(), router.accept());
    let (mut stalled, mut live) = (stalled.unwrap(), live.unwrap());
    let (mut to_stalled, mut to_live) = (at_stalled.unwrap(), at_live.unwrap());
    // Until the queues and the socket buffers are full, and this waits.
    let mut sent = 0_u32;
    loop {
        let message = Message::new(vec![0; 64 << 10]);
        tokio::select! {
            biased;
            done = to_stalled.send(message) => { done.unwrap(); sent += 1; }
            // All tasks have had their turns, and there is still no room.
            () = turns(100) => break,
        }
        assert!(sent < 10_000, "no back-pressure");
    }
    for number in 0..1_000 {
        to_live.send(numbered(number)).await.unwrap();
        assert_eq!(live.recv().await.unwrap(), numbered(number));
    }
    for _ in 0..sent {
        assert_eq!(stalled.recv().await.unwrap().bytes(), 64 << 10);
    }
}

/// So many turns of the runtime.
async fn turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_queued_when_an_end_is_dropped_still_arrives() {
    let (_router, mut dealer, mut accepted) = pair(Security::Null, Security::Null).await;
    for number in 0..500 {
        dealer.send(numbered(number)).await.unwrap();
    }
    drop(dealer);
    for number in 0..500 {
        assert_eq!(accepted.recv().await.unwrap(), numbered(number));
    }
    let end = accepted.recv().await.unwrap_err();
    assert!(
        matches!(
            end,
            Error::Ended {
                handshake: false,
                ..
            }
        ),
        "{end}"
    );
    assert!(accepted.send("more").await.is_err());
}

#[tokio::test]
async fn a_socket_that_is_dropped_ends_its_connections() {
    let (router, mut dealer, mut accepted) = pair(Security::Null, Security::Null).await;
    drop(router);
    assert!(accepted.recv().await.is_err());
    assert!(dealer.recv().await.is_err());
}

#[tokio::test]
async fn messages_above_the_limit_are_refused_at_both_ends() {
    let drops = Drops::default();
    let small = Limits {
        max_message_bytes: 1_000,
        max_received_bytes: 1_000,
        ..Limits::default()
    };
    let (mut router, endpoint) = router(Security::Null, small.clone(), &drops).await;
    let large = Dealer::connect(&endpoint, Security::Null, Limits::default());
    let (large, accepted) = tokio::join!(large, router.accept());
    let (mut large, mut accepted) = (large.unwrap(), accepted.unwrap());
    let too_large = accepted.send(vec![0; 1_001]).await.unwrap_err();
    assert_eq!(too_large.fault(), Fault::Caller);
    large.send(vec![0; 1_000]).await.unwrap();
    assert_eq!(accepted.recv().await.unwrap().bytes(), 1_000);
    large.send(vec![0; 1_001]).await.unwrap();
    let error = accepted.recv().await.unwrap_err();
    assert_eq!(
        (error.reason(), error.fault()),
        ("beyond a limit", Fault::Peer)
    );
    assert!(large.recv().await.is_err());
    let mut changes = drops.changes();
    while drops.total(Hop::Exchange, "beyond a limit") == 0 {
        changes.changed().await.unwrap();
    }
}

#[tokio::test]
async fn nothing_listens_is_said_so() {
    let (router, endpoint) = router(Security::Null, Limits::default(), &Drops::default()).await;
    drop(router);
    let refused = async {
        loop {
            let error = Dealer::connect(&endpoint, Security::Null, Limits::default()).await;
            let hint = error.as_ref().err().and_then(Error::hint);
            if hint.is_some_and(|hint| hint.contains(&endpoint)) {
                return error.unwrap_err();
            }
            // It listens for a moment longer.
            tokio::task::yield_now().await;
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(300), refused);
    assert_eq!(error.await.unwrap().fault(), Fault::Network);
}
