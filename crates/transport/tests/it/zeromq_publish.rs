//! Goal: publications reach who subscribed, in this process, on TCP and through a proxy; the slow
//! lose, counted; questions get their answers.
//! Method: all ends in one runtime over loopback; waiting is for what the sockets say, never time.

use std::time::Duration;

use crate::common::own_address;
use bytes::Bytes;
use chappe_transport::zeromq::{
    Dropping, Limits, Message, Proxy, Publisher, Reply, Request, Security, Subscriber,
    SubscriberLink,
};
use chappe_transport::{Drops, Hop};

async fn publisher(limits: Limits, drops: &Drops) -> (Publisher, String) {
    // A port of it is still free when it is taken again.
    let own = format!("tcp://{}:0", own_address());
    let bound = Publisher::bind(&own, Security::Null, limits, drops.clone());
    let publisher = bound.await.unwrap();
    let endpoint = publisher.local_endpoint().unwrap().to_string();
    (publisher, endpoint)
}

async fn subscriber(endpoint: &str, prefixes: &[&'static str]) -> Subscriber {
    let prefixes = prefixes.iter().copied();
    let (limits, drops) = (Limits::default(), Drops::default());
    let connecting = Subscriber::connect(endpoint, prefixes, Security::Null, limits, drops);
    connecting.await.unwrap()
}

/// Until exactly these prefixes are subscribed.
async fn until_subscribed(publisher: &Publisher, prefixes: &[&str]) {
    let mut changes = publisher.changes();
    while publisher.subscriptions() != prefixes {
        changes.changed().await.unwrap();
    }
}

fn frames(message: &Message) -> Vec<Bytes> {
    message.frames().cloned().collect()
}

#[tokio::test]
async fn everyone_gets_what_begins_with_their_prefixes_once() {
    let (publisher, endpoint) = publisher(Limits::default(), &Drops::default()).await;
    assert!(!publisher.wants(b"room/1"));
    let mut rooms = subscriber(&endpoint, &["room", "room/"]).await;
    let mut here = publisher.subscribe_here();
    here.subscribe("room/2");
    until_subscribed(&publisher, &["room", "room/", "room/2"]).await;
    assert!(publisher.wants(b"room/1") && !publisher.wants(b"roof"));
    assert_eq!(publisher.publish("roof", [Bytes::from("x")]), 0);
    assert_eq!(publisher.publish("room/1", [Bytes::from("a")]), 1);
    assert_eq!(publisher.publish("room/2", [Bytes::from("b")]), 2);
    assert_eq!(publisher.publish("room", []), 1);
    assert_eq!(frames(&rooms.recv().await), ["room/1", "a"]);
    assert_eq!(frames(&rooms.recv().await), ["room/2", "b"]);
    assert_eq!(frames(&rooms.recv().await), ["room"]);
    assert_eq!(frames(&here.recv().await), ["room/2", "b"]);

    rooms.cancel("room").await;
    rooms.subscribe("z").await;
    until_subscribed(&publisher, &["room/", "room/2", "z"]).await;
    drop(here);
    until_subscribed(&publisher, &["room/", "z"]).await;
    drop(rooms);
    until_subscribed(&publisher, &[]).await;
    assert!(publisher.subscribers().is_empty());
}

#[tokio::test]
async fn the_slow_lose_counted_and_the_others_do_not() {
    const MANY: usize = 5_000;
    for dropping in [Dropping::Newest, Dropping::Oldest] {
        let drops = Drops::default();
        let limits = Limits {
            send_messages: 100,
            dropping,
            ..Limits::default()
        };
        let (publisher, endpoint) = publisher(limits, &drops).await;
        let mut slow = publisher.subscribe_here();
        slow.subscribe("");
        let mut live = subscriber(&endpoint, &["t"]).await;
        until_subscribed(&publisher, &["", "t"]).await;
        for number in 0..MANY {
            publisher.publish("t", [Bytes::from(number.to_string())]);
            assert_eq!(live.recv().await.last(), &number.to_string());
        }
        let states = publisher.subscribers();
        let of_slow = states.iter().find(|it| it.address.is_none()).unwrap();
        let of_live = states.iter().find(|it| it.address.is_some()).unwrap();
        assert_eq!((of_slow.matched, of_slow.dropped), (5_000, 4_900));
        assert_eq!((of_live.matched, of_live.dropped), (5_000, 0));
        assert_eq!(publisher.dropped(), 4_900);
        assert_eq!(drops.total(Hop::Exchange, "subscriber too slow"), 4_900);
        assert_eq!(drops.entries().len(), 1, "told once");
        let first = slow.recv().await;
        let kept = match dropping {
            Dropping::Newest => "0",
            Dropping::Oldest => "4900",
        };
        assert_eq!(first.last(), kept);
    }
}

#[tokio::test]
async fn a_proxy_forwards_subscriptions_up_and_messages_down() {
    let (origin, at_origin) = publisher(Limits::default(), &Drops::default()).await;
    let (relay, at_relay) = publisher(Limits::default(), &Drops::default()).await;
    let upstream = subscriber(&at_origin, &[]).await;
    let proxy = Proxy::new(&relay, [upstream]);
    let mut far = subscriber(&at_relay, &["a"]).await;
    until_subscribed(&origin, &["a"]).await;
    assert_eq!(origin.publish("b", []), 0);
    assert_eq!(origin.publish("a1", [Bytes::from("x")]), 1);
    assert_eq!(frames(&far.recv().await), ["a1", "x"]);
    // A publisher in the relay's process needs no proxy.
    relay.clone().publish("a2", []);
    assert_eq!(frames(&far.recv().await), ["a2"]);
    drop(far);
    until_subscribed(&origin, &[]).await;
    drop(proxy);
}

#[tokio::test]
async fn a_subscriber_comes_back_with_its_subscriptions() {
    let (first, endpoint) = publisher(Limits::default(), &Drops::default()).await;
    let mut subscriber = subscriber(&endpoint, &["a"]).await;
    until_subscribed(&first, &["a"]).await;
    drop(first);
    let mut link = subscriber.link();
    while !matches!(*link.borrow_and_update(), SubscriberLink::Broken(_)) {
        link.changed().await.unwrap();
    }
    subscriber.subscribe("b").await;
    let again = loop {
        let (limits, drops) = (Limits::default(), Drops::default());
        match Publisher::bind(&endpoint, Security::Null, limits, drops).await {
            Ok(again) => break again,
            // The port is free again in a moment.
            Err(_) => tokio::task::yield_now().await,
        }
    };
    until_subscribed(&again, &["a", "b"]).await;
    again.publish("b", []);
    assert_eq!(subscriber.recv().await.first(), "b");
}

#[tokio::test]
async fn questions_are_answered_and_late_answers_are_nobody_elses() {
    let (limits, drops) = (Limits::default(), Drops::default());
    let bound = Reply::bind("tcp://127.0.0.1:0", Security::Null, limits.clone(), drops);
    let mut reply = bound.await.unwrap();
    let endpoint = reply.local_endpoint().to_string();
    let mut request = Request::connect(&endpoint, Security::Null, limits)
        .await
        .unwrap();
    let patience = Duration::from_secs(300);

    let (answer, ()) = tokio::join!(request.ask("one", patience), async {
        let asked = reply.recv().await.unwrap();
        assert_eq!(asked.question.first(), "one");
        asked.answer(Message::from_frames(["1", ""]).unwrap());
    });
    assert_eq!(frames(&answer.unwrap()), ["1", ""]);

    let late = request.ask("two", Duration::ZERO).await.unwrap_err();
    assert_eq!(late.reason(), "no answer in time");
    let (answer, ()) = tokio::join!(request.ask("three", patience), async {
        loop {
            let asked = reply.recv().await.unwrap();
            let answer = asked.question.first().clone();
            let last = answer == "three";
            asked.answer(answer);
            if last {
                return;
            }
        }
    });
    assert_eq!(answer.unwrap().first(), "three");

    let (answer, ()) = tokio::join!(request.ask("four", patience), async {
        drop(reply.recv().await.unwrap());
    });
    assert!(
        answer.is_err(),
        "a question that is dropped ends the connection"
    );
}
