//! Goal: SOAP messages are EXI between ends that accept it, and text between all others.
//!
//! Method: both ends in one process over loopback; the handler notes how each request came, the client's answers have
//! their headers, and a raw server refuses.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use chappe_identity::Contact;
use chappe_soap::{Addressing, AddressingVersion, Envelope};
use chappe_transport::Drops;
use chappe_transport::http::{
    Client, ClientLimits, HeaderMap, Method, Request, Response, Server, ServerLimits, StatusCode,
    header,
};
use chappe_xml::{Element, Name};

const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The content coding of each request.
type Seen = Arc<Mutex<Vec<Option<String>>>>;

fn envelope(action: &'static str) -> Envelope {
    let values = (0..50).map(|number: i32| {
        Element::new(Name::new("urn:x", "value")).with_text(format!("10000000{number}"))
    });
    Envelope::new(Addressing::new(AddressingVersion::V200508, action))
        .with_body(Element::new(Name::new("urn:x", "Values")).with_children(values))
}

fn coding(headers: &HeaderMap) -> Option<String> {
    let coding = headers.get(header::CONTENT_ENCODING)?;
    coding.to_str().ok().map(str::to_owned)
}

/// A server that answers each message with itself.
fn serve(exi: bool) -> (Server, Seen) {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let handler = move |request: Request| {
        noted.lock().unwrap().push(coding(&request.headers));
        async move { Response::soap(&Envelope::parse(&request.body).unwrap()) }
    };
    let limits = ServerLimits {
        exi,
        body_bytes: 64 << 10,
        ..ServerLimits::default()
    };
    let server = Server::bind(LOOPBACK, limits, Drops::default(), handler).unwrap();
    (server, seen)
}

fn client(exi: bool) -> Client {
    Client::new(ClientLimits {
        exi,
        ..ClientLimits::default()
    })
}

fn contact(server: &Server) -> Contact {
    Contact::parse(&format!("http://{}/", server.local_addr()), 0).unwrap()
}

#[tokio::test]
async fn the_first_message_is_text_and_the_next_are_exi() {
    let (server, seen) = serve(true);
    let (client, to) = (client(true), contact(&server));
    for _ in 0..3 {
        let sent = envelope("urn:x/Ask");
        let answer = client.exchange_soap(&to, &sent).await.unwrap().unwrap();
        // Their parent has the declarations that the text needs.
        assert_eq!(answer.body[0].children, sent.body[0].children);
    }
    let exi = Some("exi".to_owned());
    assert_eq!(*seen.lock().unwrap(), [None, exi.clone(), exi]);
    let text = envelope("urn:x/Ask").to_text();
    let answer = client.post_text(&to, "urn:x/Ask", text).await.unwrap();
    assert_eq!(coding(&answer.headers).as_deref(), Some("exi"));
}

#[tokio::test]
async fn one_end_without_it_gets_text() {
    for (theirs, ours) in [(false, true), (true, false), (false, false)] {
        let (server, seen) = serve(theirs);
        let (client, to) = (client(ours), contact(&server));
        for _ in 0..2 {
            let text = envelope("urn:x/Ask").to_text();
            let answer = client.post_text(&to, "urn:x/Ask", text).await.unwrap();
            assert_eq!(coding(&answer.headers), None, "{theirs} {ours}");
        }
        assert_eq!(*seen.lock().unwrap(), [None, None], "{theirs} {ours}");
    }
}

#[tokio::test]
async fn status_415_leads_back_to_text() {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    // It claims to accept what it refuses.
    let handler = move |request: Request| {
        let coding = coding(&request.headers);
        noted.lock().unwrap().push(coding.clone());
        async move {
            let response = match coding {
                Some(_) => Response::empty(StatusCode::UNSUPPORTED_MEDIA_TYPE),
                None => Response::soap(&envelope("urn:x/Answer")),
            };
            response.with_header(header::ACCEPT_ENCODING, "exi".parse().unwrap())
        }
    };
    let limits = ServerLimits {
        exi: true,
        ..ServerLimits::default()
    };
    let server = Server::bind(LOOPBACK, limits, Drops::default(), handler).unwrap();
    let (client, to) = (client(true), contact(&server));
    for _ in 0..3 {
        let answer = client.exchange_soap(&to, &envelope("urn:x/Ask")).await;
        assert!(answer.unwrap().is_some());
    }
    let exi = Some("exi".to_owned());
    assert_eq!(*seen.lock().unwrap(), [None, exi, None, None]);
}

#[tokio::test]
async fn another_program_at_the_address_gets_text() {
    let exi = Some("exi".to_owned());
    // The status of its page for EXI, and whether the message is sent again. It is not if it may have had its effect.
    for (status, again) in [
        (StatusCode::BAD_REQUEST, true),
        (StatusCode::NOT_IMPLEMENTED, true),
        (StatusCode::NOT_FOUND, false),
        (StatusCode::METHOD_NOT_ALLOWED, false),
        (StatusCode::CONFLICT, false),
        (StatusCode::TOO_MANY_REQUESTS, false),
        (StatusCode::INTERNAL_SERVER_ERROR, false),
    ] {
        for is_event in [false, true] {
            let seen = Seen::default();
            let noted = Arc::clone(&seen);
            let handler = move |request: Request| {
                let coding = coding(&request.headers);
                noted.lock().unwrap().push(coding.clone());
                async move {
                    match coding {
                        Some(_) => Response::empty(status),
                        None => Response::soap(&envelope("urn:x/Answer"))
                            .with_header(header::ACCEPT_ENCODING, "exi".parse().unwrap()),
                    }
                }
            };
            let limits = ServerLimits {
                exi: true,
                ..ServerLimits::default()
            };
            let server = Server::bind(LOOPBACK, limits, Drops::default(), handler).unwrap();
            let (client, to) = (client(true), contact(&server));
            let mut failed = Vec::new();
            for _ in 0..3 {
                let sent = envelope("urn:x/Ask");
                failed.push(match is_event {
                    true => {
                        let posted = client.post_text(&to, "urn:x/Ask", sent.to_text()).await;
                        !posted.unwrap().status.is_success()
                    }
                    false => client.exchange_soap(&to, &sent).await.is_err(),
                });
            }
            let what = format!("{status}, event: {is_event}");
            assert_eq!(failed, [false, !again, false], "{what}");
            let mut wanted = vec![None, exi.clone(), None];
            wanted.extend(again.then_some(None));
            assert_eq!(*seen.lock().unwrap(), wanted, "{what}");
        }
    }
}

#[tokio::test]
async fn large_values_arrive_both_ways() {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let handler = move |request: Request| {
        noted.lock().unwrap().push(coding(&request.headers));
        async move { Response::soap(&Envelope::parse(&request.body).unwrap()) }
    };
    let limits = ServerLimits {
        exi: true,
        ..ServerLimits::default()
    };
    let server = Server::bind(LOOPBACK, limits, Drops::default(), handler).unwrap();
    let (client, to) = (client(true), contact(&server));
    let value = |text: String| Element::new(Name::new("urn:x", "value")).with_text(text);
    let numbers = (0..8_000).map(|number: u64| value(format!("0.{}", number * 104_729 + 7)));
    let long =
        Element::new(Name::new("urn:x", "Values")).with_children([value("x".repeat(66_000))]);
    let many = Element::new(Name::new("urn:x", "Values")).with_children(numbers);
    for body in [long, many] {
        for _ in 0..2 {
            let addressing = Addressing::new(AddressingVersion::V200508, "urn:x/Ask");
            let sent = Envelope::new(addressing).with_body(body.clone());
            let answer = client.exchange_soap(&to, &sent).await.unwrap().unwrap();
            assert_eq!(answer.body[0].children, body.children);
        }
    }
    let exi = Some("exi".to_owned());
    assert_eq!(*seen.lock().unwrap(), [None, exi.clone(), exi.clone(), exi]);
}

#[tokio::test]
async fn what_is_no_exi_is_refused_with_what_is_accepted() {
    let (server, seen) = serve(true);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_ENCODING, "exi".parse().unwrap());
    let to = contact(&server);
    let body = Bytes::from_static(b"no exi");
    let client = Client::default();
    let answer = client.request(&to, Method::POST, headers, body).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(answer.headers[header::ACCEPT_ENCODING], "gzip, exi");
    assert!(seen.lock().unwrap().is_empty());
    assert_eq!(server.state().refused, 1);
}
