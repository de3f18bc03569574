//! Goal: strangers who stall, flood or send garbage use few resources and keep no other peer out.
//! Method: raw TCP to bound sockets with small limits, next to a legitimate peer.

use std::time::Duration;

use chappe_transport::zeromq::{Dealer, Error, Limits, Router, Security};
use chappe_transport::{Drops, Hop};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The greeting of NULL, and the READY of a DEALER.
const HELLO: [&[u8]; 3] = [
    b"\xFF\0\0\0\0\0\0\0\x01\x7F\x03\x01NULL",
    &[0; 48],
    b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER",
];

async fn router(limits: Limits, drops: &Drops) -> (Router, String, String) {
    let bound = Router::bind("tcp://127.0.0.1:0", Security::Null, limits, drops.clone());
    let router = bound.await.unwrap();
    let endpoint = router.local_endpoint().to_string();
    let address = endpoint.trim_start_matches("tcp://").to_owned();
    (router, endpoint, address)
}

async fn until(drops: &Drops, reason: &'static str, count: u64) {
    let mut changes = drops.changes();
    while drops.total(Hop::Exchange, reason) < count {
        changes.changed().await.unwrap();
    }
}

#[tokio::test]
async fn silent_connections_are_displaced_and_keep_no_peer_out() {
    let drops = Drops::default();
    let limits = Limits {
        connections: 8,
        connections_per_address: 8,
        handshakes_per_address_per_s: 1_000,
        ..Limits::default()
    };
    let (mut router, endpoint, address) = router(limits.clone(), &drops).await;
    let connect = || Dealer::connect(&endpoint, Security::Null, limits.clone());
    let (first, at_first) = tokio::join!(connect(), router.accept());
    let (mut first, mut at_first) = (first.unwrap(), at_first.unwrap());
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    // One slot is the first peer's, seven belong to the latest connections.
    until(&drops, "too many connections", 33).await;
    let (second, at_second) = tokio::join!(connect(), router.accept());
    let (_second, _at_second) = (second.unwrap(), at_second.unwrap());
    first.send("still here").await.unwrap();
    assert_eq!(at_first.recv().await.unwrap().first(), "still here");
}

#[tokio::test]
async fn new_connections_of_one_address_are_paced() {
    let drops = Drops::default();
    let limits = Limits {
        handshakes_per_address_per_s: 3,
        ..Limits::default()
    };
    let (_router, _, address) = router(limits, &drops).await;
    let mut streams = Vec::new();
    while drops.total(Hop::Exchange, "too many new connections") == 0 {
        streams.push(TcpStream::connect(&address).await.unwrap());
    }
}

#[tokio::test]
async fn a_slow_handshake_ends_in_time() {
    let drops = Drops::default();
    let limits = Limits {
        handshake_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let (_router, _, address) = router(limits, &drops).await;
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(&HELLO[0][..5]).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert_eq!(answer.len(), 64, "a greeting, and then the end");
    until(&drops, "handshake too slow", 1).await;
}

#[tokio::test]
async fn a_size_alone_reserves_nothing_and_too_large_a_size_is_refused() {
    let drops = Drops::default();
    let (mut router, _, address) = router(Limits::default(), &drops).await;
    for (bytes, reason) in [
        // Before the handshake: a command of 2049 bytes.
        (&[4 | 2, 0, 0, 0, 0, 0, 0, 8, 1][..], "beyond a limit"),
        // A message before the handshake; reserved flags; another protocol.
        (&[0, 1, 1][..], "ZMTP broken"),
        (&[0x88][..], "ZMTP broken"),
    ] {
        let before = drops.total(Hop::Exchange, reason);
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream
            .write_all(&[HELLO[0], HELLO[1], bytes].concat())
            .await
            .unwrap();
        until(&drops, reason, before + 1).await;
    }
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    until(&drops, "not ZMTP 3", 1).await;

    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(&HELLO.concat()).await.unwrap();
    let mut peer = router.accept().await.unwrap();
    stream
        .write_all(&[2, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF])
        .await
        .unwrap();
    let error = peer.recv().await.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    until(&drops, "beyond a limit", 2).await;
}

#[tokio::test]
async fn a_peer_that_never_pauses_does_not_starve_others() {
    let drops = Drops::default();
    let (mut router, endpoint, address) = router(Limits::default(), &drops).await;
    let connect = Dealer::connect(&endpoint, Security::Null, Limits::default());
    let (dealer, accepted) = tokio::join!(connect, router.accept());
    let (mut dealer, mut accepted) = (dealer.unwrap(), accepted.unwrap());
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(&HELLO.concat()).await.unwrap();
    let mut talker = router.accept().await.unwrap();
    let flood = tokio::spawn(async move {
        let messages = [0_u8; 64 << 10];
        while stream.write_all(&messages).await.is_ok() {}
    });
    let taking = tokio::spawn(async move { while talker.recv().await.is_ok() {} });
    let exchange = async {
        for number in 0..30_u32 {
            dealer.send(number.to_be_bytes().to_vec()).await.unwrap();
            assert_eq!(
                accepted.recv().await.unwrap().first()[..],
                number.to_be_bytes()
            );
        }
    };
    tokio::time::timeout(Duration::from_secs(300), exchange)
        .await
        .unwrap();
    flood.abort();
    taking.abort();
}

#[tokio::test]
async fn idle_connections_and_messages_without_end_give_way() {
    let drops = Drops::default();
    let limits = Limits {
        connections_per_address: 2,
        displaces_idle: true,
        message_time: Some(Duration::from_millis(500)),
        ..Limits::default()
    };
    let (mut router, endpoint, address) = router(limits.clone(), &drops).await;
    let connect = || Dealer::connect(&endpoint, Security::Null, limits.clone());
    let (active, at_active) = tokio::join!(connect(), router.accept());
    let (mut active, at_active) = (active.unwrap(), at_active.unwrap());
    let (_idle, at_idle) = tokio::join!(connect(), router.accept());
    let (_sender, mut at_active) = at_active.split();
    active.send("first").await.unwrap();
    assert_eq!(at_active.recv().await.unwrap().first(), "first");
    // The idle connection ends for one more, although the active one is older.
    let (newcomer, at_newcomer) = tokio::join!(connect(), router.accept());
    let (newcomer, _at_newcomer) = (newcomer.unwrap(), at_newcomer.unwrap());
    assert!(at_idle.unwrap().recv().await.is_err());
    active.send("second").await.unwrap();
    assert_eq!(at_active.recv().await.unwrap().first(), "second");
    drop(newcomer);
    // A frame of a mebibyte of which a part arrives.
    let mut endless = TcpStream::connect(&address).await.unwrap();
    endless.write_all(&HELLO.concat()).await.unwrap();
    let (_sender, mut at_endless) = router.accept().await.unwrap().split();
    let head = [&[0x02][..], &(1_u64 << 20).to_be_bytes(), b"a part"].concat();
    endless.write_all(&head).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), at_endless.recv()).await;
    let error = ended.expect("it ends").unwrap_err();
    assert!(error.to_string().contains("message_time_s"), "{error}");
}
