//! Goal: client and server exchange requests as SOAP needs them.
//!
//! Method: both ends in one process over loopback: keep-alive is seen by the number of accepted
//! connections, one write by a raw socket, a stop by a request that is still answered.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::own_address;
use chappe_identity::Contact;
use chappe_soap::{Addressing, AddressingVersion, Envelope, Fault};
use chappe_transport::http::{
    Client, ClientLimits, Error, HeaderMap, Method, Request, Response, Server, ServerLimits,
    StatusCode, header,
};
use chappe_transport::{Drops, Hop};
use chappe_xml::{Element, Name};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const DEADLINE: Duration = Duration::from_secs(300);

fn contact(server: &Server, path: &str) -> Contact {
    Contact::parse(&format!("http://{}{path}", server.local_addr()), 0).unwrap()
}

/// Answers with what it was asked.
async fn echo(request: Request) -> Response {
    let head = format!("{} {} {:?} ", request.method, request.path, request.query);
    let body = [head.as_bytes(), &request.body].concat();
    Response::new(StatusCode::OK, "text/plain", body)
}

fn serve_echo() -> Server {
    Server::bind(LOOPBACK, ServerLimits::default(), Drops::default(), echo).unwrap()
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let server = serve_echo();
    let client = Client::default();
    for number in 0..20 {
        let to = contact(&server, &format!("/a?{number}"));
        let answer = client.get(&to).await.unwrap();
        let wanted = format!("GET /a Some(\"{number}\") ");
        assert_eq!(answer.body, wanted.as_bytes());
    }
    assert_eq!(server.state().accepted, 1);
    assert_eq!(server.state().requests, 20);
}

#[tokio::test]
async fn an_idle_connection_that_died_is_replaced() {
    let limits = ServerLimits {
        // Honest requests take less on the slowest machine.
        header_deadline: Duration::from_secs(1),
        ..ServerLimits::default()
    };
    let drops = Drops::default();
    let server = Server::bind(LOOPBACK, limits, drops.clone(), echo).unwrap();
    let client = Client::default();
    let to = contact(&server, "/");
    for _ in 0..3 {
        client.get(&to).await.unwrap();
        // The server ends the idle connection; that is no refusal.
        let ended = async {
            while server.state().connections > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, ended).await.unwrap();
    }
    assert_eq!(server.state().accepted, 3);
    assert_eq!(server.state().refused, 0, "{drops:?}");
}

#[tokio::test]
async fn chunked_and_gzip_requests_are_understood() {
    let server = serve_echo();
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    let request = "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\
        Connection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("POST /c None abcde"), "{answer}");

    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"packed").unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
    let body = encoder.finish().unwrap().into();
    let answer = Client::default()
        .request(&contact(&server, "/z"), Method::POST, headers, body)
        .await
        .unwrap();
    assert_eq!(answer.body, &b"POST /z None packed"[..]);
}

/// An answer that leaves in two small writes costs 40 ms with a peer that acknowledges late.
#[tokio::test]
async fn an_answer_arrives_in_one_piece() {
    let server = serve_echo();
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    for _ in 0..50 {
        stream
            .write_all(b"GET /p HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let mut buffer = [0; 1024];
        let read = stream.read(&mut buffer).await.unwrap();
        let text = std::str::from_utf8(&buffer[..read]).unwrap();
        assert!(text.ends_with("GET /p None "), "{text}");
        assert!(text.to_lowercase().contains("content-length: "), "{text}");
    }
}

fn envelope(action: &'static str) -> Envelope {
    Envelope::new(Addressing::new(AddressingVersion::V200508, action))
        .with_body(Element::new(Name::new("urn:x", "Body")))
}

#[tokio::test]
async fn soap_messages_faults_and_silence() {
    let handler = |request: Request| async move {
        let got = Envelope::parse(&request.body).unwrap();
        let content_type = request.headers[header::CONTENT_TYPE].to_str().unwrap();
        assert!(content_type.starts_with("application/soap+xml"));
        assert!(content_type.contains(&*got.addressing.action));
        match &*got.addressing.action {
            "urn:x/Ask" => Response::soap(&envelope("urn:x/Answer")),
            "urn:x/Tell" => Response::empty(StatusCode::ACCEPTED),
            "urn:x/Page" => Response::new(StatusCode::NOT_FOUND, "text/html", "<p>no</p>"),
            "urn:x/Text" => Response::new(StatusCode::OK, "text/html", "hello"),
            _ => {
                let fault = Fault::sender(Name::new("urn:x", "Wrong"), "wrong").to_element();
                let addressing = got.addressing.reply("urn:x/fault");
                Response::soap(&Envelope::new(addressing).with_body(fault))
            }
        }
    };
    let drops = Drops::default();
    let server = Server::bind(LOOPBACK, ServerLimits::default(), drops, handler).unwrap();
    let client = Client::default();
    let to = contact(&server, "/");
    let answer = client.post_soap(&to, &envelope("urn:x/Ask")).await.unwrap();
    assert_eq!(answer.unwrap().addressing.action, "urn:x/Answer");
    let silence = client
        .post_soap(&to, &envelope("urn:x/Tell"))
        .await
        .unwrap();
    assert!(silence.is_none());
    let fault = client
        .post_soap(&to, &envelope("urn:x/Bad"))
        .await
        .unwrap_err();
    let Error::Fault { fault, .. } = fault else {
        panic!("{fault}")
    };
    assert!(fault.subcode.unwrap().is("urn:x", "Wrong"));
    let page = client.post_soap(&to, &envelope("urn:x/Page")).await;
    assert!(matches!(page, Err(Error::Status { .. })));
    let text = client.post_soap(&to, &envelope("urn:x/Text")).await;
    assert!(matches!(text, Err(Error::Soap { .. })));
}

#[tokio::test]
async fn a_stop_lets_a_running_request_finish() {
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&entered), Arc::clone(&leave));
    let handler = move |_: Request| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        async move {
            tell.notify_one();
            wait.notified().await;
            Response::new(StatusCode::OK, "text/plain", "done")
        }
    };
    let drops = Drops::default();
    // Nobody else takes the port when it has stopped.
    let own = (own_address(), 0).into();
    let server = Server::bind(own, ServerLimits::default(), drops, handler).unwrap();
    let to = contact(&server, "/");
    let asking = tokio::spawn({
        let to = to.clone();
        async move { Client::default().get(&to).await }
    });
    entered.notified().await;
    let stopping = tokio::spawn(server.stop(DEADLINE));
    leave.notify_one();
    assert_eq!(asking.await.unwrap().unwrap().body, "done");
    stopping.await.unwrap();
    let refused = Client::default().get(&to).await.unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused}");
    assert!(refused.hint().unwrap().contains("nothing listens"));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = serve_echo();
    let location = format!("http://{}/stolen", target.local_addr());
    let handler = move |_: Request| {
        let response = Response::empty(StatusCode::TEMPORARY_REDIRECT)
            .with_header(header::LOCATION, location.parse().unwrap());
        async move { response }
    };
    let drops = Drops::default();
    let server = Server::bind(LOOPBACK, ServerLimits::default(), drops, handler).unwrap();
    let answer = Client::default().get(&contact(&server, "/")).await;
    assert!(matches!(answer, Err(Error::Status { .. })));
    assert_eq!(target.state().accepted, 0);
}

#[tokio::test]
async fn a_client_comes_from_the_address_it_was_given() {
    let handler = |request: Request| async move {
        Response::new(StatusCode::OK, "text/plain", request.peer.ip().to_string())
    };
    let drops = Drops::default();
    let server = Server::bind(LOOPBACK, ServerLimits::default(), drops, handler).unwrap();
    let limits = ClientLimits {
        local_address: Some("127.0.1.9".parse().unwrap()),
        ..ClientLimits::default()
    };
    let answer = Client::new(limits)
        .get(&contact(&server, "/"))
        .await
        .unwrap();
    assert_eq!(answer.body, "127.0.1.9");
}

#[tokio::test]
async fn answers_beyond_a_limit_are_not_read() {
    let handler = |request: Request| async move {
        match request.path.as_str() {
            "/large" => Response::new(StatusCode::OK, "text/plain", vec![b'x'; 100_000]),
            "/bomb" => {
                let best = flate2::Compression::best();
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), best);
                encoder.write_all(&vec![0; 1 << 20]).unwrap();
                Response::new(StatusCode::OK, "text/plain", encoder.finish().unwrap())
                    .with_header(header::CONTENT_ENCODING, "gzip".parse().unwrap())
            }
            _ => std::future::pending().await,
        }
    };
    let drops = Drops::default();
    let limits = ServerLimits {
        answer_deadline: Duration::from_millis(50),
        ..ServerLimits::default()
    };
    let server = Server::bind(LOOPBACK, limits, drops.clone(), handler).unwrap();
    let limits = ClientLimits {
        body_bytes: 50_000,
        ..ClientLimits::default()
    };
    let client = Client::new(limits);
    for path in ["/large", "/bomb"] {
        let answer = client.get(&contact(&server, path)).await;
        assert!(matches!(answer, Err(Error::TooLarge { .. })), "{path}");
    }
    let late = client.get(&contact(&server, "/never")).await.unwrap_err();
    let Error::Status { status, .. } = late else {
        panic!("{late}")
    };
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(drops.total(Hop::Http, "answer too slow"), 1);
}
