//! Goal: everything that a peer can prolong has a limit, is counted by its reason, and delays no other peer.
//!
//! Method: misbehaving raw sockets against a server with small limits over loopback; after each of them an honest client
//! is answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chappe_identity::Contact;
use chappe_transport::http::{Client, Request, Response, Server, ServerLimits, StatusCode};
use chappe_transport::{Drops, Hop};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const DEADLINE: Duration = Duration::from_secs(300);

fn serve(limits: ServerLimits) -> (Server, Drops) {
    let drops = Drops::default();
    let handler = |_: Request| async { Response::new(StatusCode::OK, "text/plain", "fine") };
    let server = Server::bind(LOOPBACK, limits, drops.clone(), handler).unwrap();
    (server, drops)
}

async fn is_answered(server: &Server) {
    let to = Contact::parse(&format!("http://{}/", server.local_addr()), 0).unwrap();
    assert_eq!(Client::default().get(&to).await.unwrap().body, "fine");
}

/// The bytes that the server sends until it ends the connection.
async fn answer_to(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    // It may be refused before it has been read completely.
    let _ = stream.write_all(bytes).await;
    read_all(&mut stream).await
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    // A reset also ends the connection.
    let _ = tokio::time::timeout(DEADLINE, reading)
        .await
        .expect("the connection ends");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn slow_headers_and_bodies_end_and_delay_no_peer() {
    let (server, drops) = serve(ServerLimits {
        // Honest requests take less, even on the slowest machine.
        header_deadline: Duration::from_secs(2),
        body_deadline: Duration::from_secs(2),
        ..ServerLimits::default()
    });
    let mut slow = Vec::new();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHos"[..],
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        slow.push(stream);
    }
    // Half-open: connected, without a byte.
    slow.push(TcpStream::connect(server.local_addr()).await.unwrap());
    is_answered(&server).await;
    for stream in &mut slow {
        read_all(stream).await;
    }
    assert_eq!(drops.total(Hop::Http, "header too slow"), 1);
    assert_eq!(drops.total(Hop::Http, "body too slow"), 2);
    // The idle one is not counted.
    assert_eq!(server.state().refused, 3, "{drops:?}");
    is_answered(&server).await;
}

#[tokio::test]
async fn large_headers_and_bodies_are_refused() {
    let (server, drops) = serve(ServerLimits {
        header_bytes: 8 << 10,
        body_bytes: 1_000,
        ..ServerLimits::default()
    });
    let head = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(20_000)
    );
    let answer = answer_to(&server, head.as_bytes()).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    assert_eq!(drops.total(Hop::Http, "header too large"), 1);

    let announced = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n";
    let answer = answer_to(&server, announced).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let chunk = "x".repeat(2_000);
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n{chunk}\r\n0\r\n\r\n"
    );
    let answer = answer_to(&server, chunked.as_bytes()).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
        "{answer}"
    );
    assert_eq!(drops.total(Hop::Http, "body too large"), 2);
    is_answered(&server).await;
}

#[tokio::test]
async fn large_bodies_wait_for_room_and_small_ones_do_not() {
    const BODY: usize = 256 << 10;
    let (active, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // Room for one body, packed and unpacked, which is room for two plain ones.
    let limits = ServerLimits {
        body_bytes: BODY,
        bodies_bytes: 0,
        body_deadline: DEADLINE,
        ..ServerLimits::default()
    };
    let pair = Arc::new(tokio::sync::Barrier::new(2));
    let (counted, most) = (Arc::clone(&active), Arc::clone(&peak));
    let handler = move |request: Request| {
        let (active, peak, pair) = (counted.clone(), most.clone(), pair.clone());
        async move {
            if request.body.len() > 64 << 10 {
                let now = active.fetch_add(1, Ordering::Relaxed) + 1;
                peak.fetch_max(now, Ordering::Relaxed);
                pair.wait().await;
                active.fetch_sub(1, Ordering::Relaxed);
            }
            Response::new(StatusCode::OK, "text/plain", "fine")
        }
    };
    let server = Server::bind(LOOPBACK, limits, Drops::default(), handler).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {BODY}\r\n\r\n"
    );
    let whole = Arc::new([head.into_bytes(), vec![b'x'; BODY]].concat());
    let server = Arc::new(server);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (server, whole) = (Arc::clone(&server), Arc::clone(&whole));
        asking.spawn(async move { answer_to(&server, &whole).await });
    }
    for _ in 0..12 {
        is_answered(&server).await;
    }
    for answer in asking.join_all().await {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(peak.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn other_protocols_are_refused() {
    let (server, drops) = serve(ServerLimits::default());
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls"[..],
        b"hello there\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        answer_to(&server, bytes).await;
    }
    assert_eq!(drops.total(Hop::Http, "not HTTP"), 3, "{drops:?}");
    let odd = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx";
    assert!(answer_to(&server, odd).await.starts_with("HTTP/1.1 415"));
    is_answered(&server).await;
}

#[tokio::test]
async fn one_peer_cannot_take_all_connections() {
    let (server, drops) = serve(ServerLimits {
        connections_per_peer: 2,
        ..ServerLimits::default()
    });
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        held.push(stream);
    }
    // A request in progress is answered: the longest waiting connection is displaced.
    let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(answer_to(&server, request).await.ends_with("fine"));
    assert_eq!(read_all(&mut held[0]).await, "");
    assert_eq!(
        drops.total(Hop::Http, "too many connections of one peer"),
        1
    );
    // Another peer is still answered.
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.1.8:0".parse().unwrap()).unwrap();
    let mut other = other.connect(server.local_addr()).await.unwrap();
    other.write_all(request).await.unwrap();
    assert!(read_all(&mut other).await.ends_with("fine"));
    drop(held);
}

#[tokio::test]
async fn slow_connections_of_many_peers_keep_no_peer_out() {
    let (server, drops) = serve(ServerLimits {
        connections: 8,
        requests: 1,
        ..ServerLimits::default()
    });
    let mut held = Vec::new();
    for number in 0..24_u8 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let source = SocketAddr::from(([127, 0, 2, number % 6], 0));
        socket.bind(source).unwrap();
        let mut stream = socket.connect(server.local_addr()).await.unwrap();
        let begun: &[u8] = match number % 3 {
            0 => b"",
            1 => b"GET / HTTP/1.1\r\nHos",
            _ => b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
        };
        stream.write_all(begun).await.unwrap();
        held.push(stream);
        is_answered(&server).await;
    }
    assert!(server.state().connections <= 9, "{:?}", server.state());
    assert!(drops.total(Hop::Http, "too many connections") >= 16);
}

#[tokio::test]
async fn requests_in_flight_are_bounded() {
    let drops = Drops::default();
    let (entered, mut enter) = tokio::sync::mpsc::channel(1);
    let handler = move |_: Request| {
        let entered = entered.clone();
        async move {
            let _ = entered.send(()).await;
            std::future::pending::<Response>().await
        }
    };
    let limits = ServerLimits {
        requests: 1,
        ..ServerLimits::default()
    };
    let server = Server::bind(LOOPBACK, limits, drops.clone(), handler).unwrap();
    let mut first = TcpStream::connect(server.local_addr()).await.unwrap();
    first
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    enter.recv().await.unwrap();
    let answer = answer_to(&server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(drops.total(Hop::Http, "too many requests"), 1);
}

/// A client that reads no answers would make the server hold as many as it has connections.
#[tokio::test]
async fn unread_answers_are_bounded_for_each_peer() {
    /// More than the buffers of both sockets hold.
    const ANSWER_BYTES: usize = 32 << 20;
    let drops = Drops::default();
    let handler = |_: Request| async {
        Response::new(StatusCode::OK, "text/plain", vec![b'a'; ANSWER_BYTES])
    };
    let limits = ServerLimits {
        // An answer that is larger than the share of a peer takes all of the share.
        body_bytes: 1 << 20,
        bodies_bytes: 8 << 20,
        write_deadline: DEADLINE,
        ..ServerLimits::default()
    };
    let server = Server::bind(LOOPBACK, limits, drops.clone(), handler).unwrap();
    let ask = async |from: [u8; 4]| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        let mut stream = socket.connect(server.local_addr()).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        stream
    };
    let mut unread = ask([127, 0, 0, 1]).await;
    unread.peek(&mut [0]).await.unwrap();
    let refused = read_all(&mut ask([127, 0, 0, 1]).await).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused:.80}");
    assert_eq!(drops.total(Hop::Http, "too many unread answers"), 1);
    let other = read_all(&mut ask([127, 0, 0, 2]).await).await;
    assert!(other.starts_with("HTTP/1.1 200") && other.len() > ANSWER_BYTES);
    assert!(read_all(&mut unread).await.len() > ANSWER_BYTES);
    let again = read_all(&mut ask([127, 0, 0, 1]).await).await;
    assert!(again.starts_with("HTTP/1.1 200"), "{again:.80}");
}
