//! Push and pull over real HTTP on loopback, with servers that end and begin again.

use chappe_stream::*;
use chappe_wrappers::links::http::SubscriptionRequest;
use chappe_wrappers::links::*;

use crate::host::{Node, append, assert_same, element, link, schema};
use crate::server::serve;

const FORMS: [Serialization; 3] = [
    Serialization::Xml,
    Serialization::Postcard,
    Serialization::MessagePack,
];

#[tokio::test]
async fn a_pulled_stream_is_the_same_and_goes_on_after_each_end_of_the_server() {
    for form in FORMS {
        let (origin, subscriber) = (Node::new(1), Node::new(2));
        let log = origin.stream("ward.a", 50);
        let server = serve(&origin.links, None).await;
        let mut config = link(LinkKind::HttpPull, server.url(), &["ward.*"]);
        config.serialization = Some(form);
        config.as_prefix = Some("far".into());
        subscriber.links.add(config).expect("added");
        let copy = subscriber.wait_for("far.ward.a", 50).await;
        assert_same(&log, &copy);
        let address = server.address;
        drop(server);
        append(&log, 50..80);
        let _server = serve(&origin.links, Some(address)).await;
        append(&log, 80..90);
        let copy = subscriber.wait_for("far.ward.a", 90).await;
        assert_same(&log, &copy);
        let status = subscriber.links.show("test").expect("there");
        assert_eq!(status.streams[0].counts.received, 90);
        assert_eq!(status.streams[0].counts.lost.len(), 0);
        assert!(status.reconnects >= 1);
    }
}

#[tokio::test]
async fn a_pushed_stream_is_the_same_and_goes_on_after_each_end_of_either_server() {
    for form in FORMS {
        let (origin, subscriber) = (Node::new(1), Node::new(2));
        let log = origin.stream("ward.a", 40);
        let server = serve(&origin.links, None).await;
        let contact = serve(&subscriber.links, None).await;
        *subscriber.host.contact.lock().unwrap() = Some(contact.url());
        let mut config = link(LinkKind::HttpPush, server.url(), &["ward.a"]);
        config.serialization = Some(form);
        subscriber.links.add(config).expect("added");
        let copy = subscriber.wait_for("ward.a", 40).await;
        assert_same(&log, &copy);
        // The contact point is away for a while.
        let address = contact.address;
        drop(contact);
        append(&log, 40..60);
        let _contact = serve(&subscriber.links, Some(address)).await;
        let copy = subscriber.wait_for("ward.a", 60).await;
        assert_same(&log, &copy);
        // The origin forgets all its subscriptions.
        origin.links.close();
        append(&log, 60..70);
        subscriber.links.remove("test").expect("there");
        let config = link(LinkKind::HttpPush, server.url(), &["ward.a"]);
        subscriber.links.add(config).expect("added");
        let copy = subscriber.wait_for("ward.a", 70).await;
        assert_same(&log, &copy);
    }
}

#[tokio::test]
async fn a_changed_schema_and_lost_elements_are_told() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 30);
    log.log().trim(11).expect("queued").await.expect("trimmed");
    let server = serve(&origin.links, None).await;
    let config = link(LinkKind::HttpPull, server.url(), &["a"]);
    subscriber.links.add(config).expect("added");
    let copy = subscriber.wait_for("a", 20).await;
    assert_same(&log, &copy);
    let mut wider = schema("v", FieldType::Integer);
    wider
        .fields
        .push(schema("w", FieldType::Text).fields.remove(0));
    log.set_schema(&wider).expect("changes");
    let mut both = element(Value::Integer(30));
    both.values.push(Value::Text("<wide>".into()));
    log.append(&[both]).expect("queued").await.expect("stored");
    let copy = subscriber.wait_for("a", 21).await;
    assert_same(&log, &copy);
    let stored = subscriber
        .store
        .existing("a")
        .expect("reads")
        .expect("there");
    assert_eq!(stored.schema(), wider);
}

#[tokio::test]
async fn a_subscriber_that_is_ahead_of_a_restored_origin_says_so() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 30);
    let server = serve(&origin.links, None).await;
    let config = link(LinkKind::HttpPull, server.url(), &["a"]);
    subscriber.links.add(config.clone()).expect("added");
    subscriber.wait_for("a", 30).await;
    subscriber.links.remove("test").expect("there");
    drop((server, log));
    // Another node with a stream of the same name, as after a disk was lost.
    let origin = Node::new(3);
    let log = origin.stream("a", 5);
    let server = serve(&origin.links, None).await;
    let config = LinkConfig {
        address: server.url(),
        ..config
    };
    subscriber.links.add(config).expect("added");
    let copy = subscriber.wait_for("a", 35).await;
    assert_same(&log, &copy[30..]);
    let told = |notice: &LinkNotice| matches!(notice, LinkNotice::Rollback { kept: None, .. });
    assert_eq!(subscriber.notices().iter().filter(|it| told(it)).count(), 1);
}

#[tokio::test]
async fn strangers_contact_points_get_nothing() {
    let origin = Node::new(1);
    origin.stream("a", 3);
    let other = serve(&Node::new(2).links, None).await;
    let reader = Reader {
        address: Some("127.0.0.1:9".parse().expect("an address")),
        key: None,
    };
    let far = Reader {
        address: Some("192.0.2.9:9".parse().expect("an address")),
        key: None,
    };
    let request = |stream: &str, contact_point: String| SubscriptionRequest {
        stream: stream.into(),
        contact_point,
        after: None,
        start: LinkStart::First,
        serialization: Serialization::Xml,
    };
    let here = format!("{}/api/v1/exchange/contact-points/a/b", other.url());
    let cases = [
        (
            request("a", here.clone()),
            &reader,
            "contact point not confirmed",
        ),
        (request("a", here), &far, "contact point refused"),
        (
            request("a", "http://192.0.2.7/".into()),
            &reader,
            "contact point refused",
        ),
        (
            request("a", "ftp://127.0.0.1/".into()),
            &reader,
            "contact point refused",
        ),
        (request("b", other.url()), &reader, "unknown stream"),
    ];
    for (request, reader, reason) in cases {
        let refusal = origin.links.http_subscribe(&request, reader).await;
        assert_eq!(refusal.expect_err("refused").reason, reason);
    }
    assert!(origin.links.peers().is_empty());
    assert_eq!(origin.drops().len(), 4);
}

#[tokio::test]
async fn a_contact_point_takes_only_what_it_asked_for() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    origin.stream("a", 3);
    let server = serve(&origin.links, None).await;
    let contact = serve(&subscriber.links, None).await;
    *subscriber.host.contact.lock().unwrap() = Some(contact.url());
    let config = link(LinkKind::HttpPush, server.url(), &["a"]);
    subscriber.links.add(config).expect("added");
    subscriber.wait_for("a", 3).await;
    let xml = "application/xml";
    let take = |link, secret, form, body: &'static str| {
        let links = subscriber.links.clone();
        async move { links.http_take(link, secret, form, body.as_bytes()).await }
    };
    for (link, secret) in [("test", ""), ("test", "0"), ("other", "0")] {
        let refusal = take(link, secret, xml, "<alive/>")
            .await
            .expect_err("refused");
        assert_eq!(
            (refusal.status, refusal.reason),
            (404, "unknown contact point")
        );
    }
    assert_eq!(subscriber.wait_for("a", 3).await.len(), 3);
}

#[tokio::test]
async fn what_a_foreign_contact_point_refuses_is_a_dead_letter_and_order_is_kept() {
    let origin = Node::new(1);
    let log = origin.stream("a", 6);
    let (foreign, address) = foreign_contact_point().await;
    let reader = Reader {
        address: Some("127.0.0.1:9".parse().expect("an address")),
        key: None,
    };
    let request = SubscriptionRequest {
        stream: "a".into(),
        contact_point: format!("http://{address}/here"),
        after: None,
        start: LinkStart::First,
        serialization: Serialization::Xml,
    };
    origin
        .links
        .http_subscribe(&request, &reader)
        .await
        .expect("made");
    let mut numbers = Vec::new();
    let mut seen = foreign;
    while numbers.len() < 6 {
        let body = seen.recv().await.expect("a request");
        if let Some(rest) = body.split("type=\"integer\">").nth(1) {
            let value = rest.split('<').next().expect("a value");
            numbers.push(value.parse::<i64>().expect("a number"));
        }
    }
    // 2 is said to come later once; 3 is refused for ever.
    assert_eq!(numbers, [0, 1, 2, 2, 3, 4]);
    append(&log, 6..7);
    let letters = loop {
        let letters = origin
            .links
            .dead_letters("http-push", 0, 10)
            .expect("reads");
        if !letters.is_empty() {
            break letters;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(letters.len(), 1);
    assert!(
        letters[0].text.contains("status 422"),
        "{}",
        letters[0].text
    );
    origin.links.discard("http-push", None).expect("done");
}

/// A contact point of another program: plain HTTP by hand.
async fn foreign_contact_point() -> (
    tokio::sync::mpsc::UnboundedReceiver<String>,
    std::net::SocketAddr,
) {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("listens");
    let address = listener.local_addr().expect("an address");
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut later = true;
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = tokio::io::BufReader::new(stream);
            loop {
                let (mut length, mut line) = (0, String::new());
                while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().expect("a length");
                    }
                    line.clear();
                }
                if line.is_empty() {
                    break;
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await.expect("a body");
                let body = String::from_utf8(body).expect("text");
                let answer = if body.contains("\"confirm\"") {
                    let confirmed = body.replace("confirm", "confirmed");
                    format!(
                        "200 OK\r\nContent-Length: {}\r\n\r\n{confirmed}",
                        confirmed.len()
                    )
                } else if body.contains(">3<") {
                    "422 No\r\nContent-Length: 0\r\n\r\n".into()
                } else if body.contains(">2<") && std::mem::take(&mut later) {
                    "503 Later\r\nContent-Length: 0\r\n\r\n".into()
                } else {
                    "204 Stored\r\n\r\n".into()
                };
                let _ = sender.send(body);
                let answer = format!("HTTP/1.1 {answer}");
                stream
                    .get_mut()
                    .write_all(answer.as_bytes())
                    .await
                    .expect("sent");
            }
        }
    });
    (receiver, address)
}
