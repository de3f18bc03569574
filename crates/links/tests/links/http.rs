//! Push and pull over real HTTP on loopback, with servers that stop and restart.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chappe_links::http::{
    Credential, KeptSubscription, PullRequest, SubscriptionAnswer, SubscriptionRequest,
};
use chappe_links::serialization::{Document, SchemaId};
use chappe_links::*;
use chappe_log::{Commit, Level, Options};
use chappe_sim::SimDisk;
use chappe_stream::*;

use crate::full_queue::narrow;
use crate::host::{Node, PATIENCE, append, assert_same, element, link, schema, until};
use crate::server::{Server, serve, serve_contact};

const FORMS: [Serialization; 3] = [
    Serialization::Xml,
    Serialization::Postcard,
    Serialization::MessagePack,
];

/// A reader that calls from this address.
fn reader(address: &str) -> Reader {
    Reader {
        address: Some(address.parse().expect("an address")),
        key: None,
        account: None,
    }
}

/// Subscribes the contact point at this address to stream `a`.
async fn subscribe(origin: &Node, address: SocketAddr, start: LinkStart) -> SubscriptionAnswer {
    let request = SubscriptionRequest {
        stream: "a".into(),
        contact_point: format!("http://{address}/here"),
        fingerprint: None,
        after: None,
        earlier: Vec::new(),
        start,
        serialization: Serialization::Xml,
    };
    let reader = reader("127.0.0.1:9");
    let made = origin.links.http_subscribe(&request, &reader).await;
    made.expect("made")
}

/// A subscriber that received one pushed element of `a`, and the origin that further elements have
/// to name; its own origin is silent.
struct Pushed {
    subscriber: Node,
    secret: String,
    schema: SchemaId,
    epoch: Epoch,
    _origin: Node,
    _servers: [Server; 2],
}

impl Pushed {
    async fn once() -> Self {
        let (origin, subscriber) = (Node::new(1), Node::new(2));
        let log = origin.stream("a", 1);
        let server = serve(&origin.links, None).await;
        let contact = serve_contact(&subscriber).await;
        let config = link(LinkKind::HttpPush, server.url(), &["a"]);
        subscriber.links.add(config).expect("added");
        subscriber.wait_for("a", 1).await;
        origin.links.close();
        let kept = origin.host.kept.lock().unwrap().remove(0);
        let secret = kept.contact_point.rsplit('/').next().expect("a secret");
        Self {
            secret: secret.to_owned(),
            schema: SchemaId::of(&log.schema()),
            epoch: kept.after.epoch,
            subscriber,
            _origin: origin,
            _servers: [server, contact],
        }
    }
}

#[tokio::test]
async fn a_pulled_stream_resumes_after_each_end_of_the_server() {
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
        assert_eq!(status.streams[0].received, 90);
        assert_eq!(status.streams[0].lost.len(), 0);
        assert!(status.reconnects >= 1);
    }
}

#[tokio::test]
async fn a_pushed_stream_resumes_after_each_end_of_either_server() {
    for form in FORMS {
        let (origin, subscriber) = (Node::new(1), Node::new(2));
        let log = origin.stream("ward.a", 40);
        let server = serve(&origin.links, None).await;
        let contact = serve_contact(&subscriber).await;
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
        // The origin loses all its subscriptions.
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
async fn a_changed_schema_and_lost_elements_are_reported() {
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
    // Another node with a stream of the same name, as after the loss of a disk.
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
    let reported = |notice: &LinkNotice| matches!(notice, LinkNotice::Rollback { kept: None, .. });
    assert_eq!(
        subscriber
            .notices()
            .iter()
            .filter(|it| reported(it))
            .count(),
        1
    );
}

#[tokio::test]
async fn strangers_contact_points_get_nothing() {
    let origin = Node::new(1);
    origin.stream("a", 3);
    let other = serve(&Node::new(2).links, None).await;
    let [reader, far] = ["127.0.0.1:9", "192.0.2.9:9"].map(reader);
    let request = |stream: &str, contact_point: String| SubscriptionRequest {
        stream: stream.into(),
        contact_point,
        fingerprint: None,
        after: None,
        earlier: Vec::new(),
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
        // Its own address, but in plain text.
        (
            request("a", "http://192.0.2.9:80/".into()),
            &far,
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
    assert_eq!(origin.drops().len(), 5);
    assert!(
        origin.drops()[3].contains("clear text"),
        "{:?}",
        origin.drops()
    );
}

#[tokio::test]
async fn a_contact_point_accepts_only_its_subscriptions() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    origin.stream("a", 3);
    let server = serve(&origin.links, None).await;
    let _contact = serve_contact(&subscriber).await;
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
async fn refused_elements_become_dead_letters_and_order_is_kept() {
    let origin = Node::new(1);
    let log = origin.stream("a", 6);
    let (mut seen, address, accepts) = foreign_contact_point().await;
    subscribe(&origin, address, LinkStart::First).await;
    let mut numbers = Vec::new();
    while numbers.len() < 6 {
        let body = next(&mut seen).await;
        if let Some(rest) = body.split("type=\"integer\">").nth(1) {
            let value = rest.split('<').next().expect("a value");
            numbers.push(value.parse::<i64>().expect("a number"));
        }
    }
    // 2 is deferred once; 3 is refused until the cause is removed.
    assert_eq!(numbers, [0, 1, 2, 2, 3, 4]);
    append(&log, 6..7);
    // 5, 6: the elements refused before them are letters now.
    for value in ["5", "6"] {
        let body = next(&mut seen).await;
        assert!(body.contains(&format!(">{value}<")), "{body}");
    }
    let peer = origin.links.peers().remove(0);
    assert_eq!((peer.refused, peer.sent_again, peer.stalls), (1, 1, 1));
    let letters = || {
        origin
            .links
            .dead_letters("http-push", 0, 10)
            .expect("reads")
    };
    let letter = letters().remove(0);
    assert_eq!(letters().len(), 1);
    assert!(letter.text.contains("status 422"), "{}", letter.text);
    assert!(!letter.text.contains("/here"), "the path is a secret");
    assert_eq!(letter.contact, Some(address.to_string()));
    let fourth = log.newest(4).expect("reads").remove(0).position;
    assert_eq!(letter.origin, Some(fourth));
    // It is still refused.
    let again = origin.links.send_again("http-push", letter.number).await;
    assert!(
        matches!(again, Err(LinkError::StillDead { .. })),
        "{again:?}"
    );
    let refused = structure_then(&mut seen).await;
    assert!(refused.contains(">3<"), "{refused}");
    accepts.store(true, Ordering::Relaxed);
    let again = origin.links.send_again("http-push", letter.number).await;
    again.expect("taken now");
    let taken = structure_then(&mut seen).await;
    assert!(taken.contains(">3<"), "{taken}");
    assert!(letters().is_empty());
    let again = origin.links.send_again("http-push", letter.number).await;
    assert_eq!(again, Err(LinkError::NoLetter(letter.number)));
}

/// The log's queue is full when a contact point refuses an element: the subscription waits until
/// the element is a dead letter, and sends nothing before that.
#[tokio::test]
async fn a_full_queue_loses_no_dead_letter() {
    let options = Options {
        commit: Commit::Caller,
        batch_bytes: 4_096,
        queue_bytes: 4_096,
        ..Options::default()
    };
    let origin = Node::with(options, SimDisk::new(1), 1, LinksConfig::default());
    let log = origin.empty("a", &schema("v", FieldType::Integer));
    let elements: Vec<_> = (0..6).map(|n| element(Value::Integer(n))).collect();
    drop(log.append(&elements).expect("queued"));
    let filler = origin.empty("filler", &schema("v", FieldType::Text));
    // A new stream is committed at once, with everything queued, so this one is created first.
    let store = origin.store.store();
    let letters = store.stream("dead-letters/http-push", Level::Power, b"");
    letters.expect("made");
    store.commit().expect("stored");
    let text = element(Value::Text("x".repeat(100)));
    while filler.append(std::slice::from_ref(&text)).is_ok() {}
    let (mut seen, address, _) = foreign_contact_point().await;
    subscribe(&origin, address, LinkStart::First).await;
    while !next(&mut seen).await.contains(">3<") {}
    // 2 was deferred once, which is the first wait; the letter of 3 is the second.
    let waits = async {
        while origin.links.peers()[0].stalls < 2 && origin.drops().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waits).await;
    waited.expect("within the time");
    assert_eq!(origin.drops(), [""; 0]);
    assert_eq!(origin.links.peers()[0].refused, 0, "it is kept nowhere yet");
    assert!(seen.try_recv().is_err(), "nothing is sent after it");
    // The disk works again.
    let stored = async {
        while origin.links.peers()[0].refused < 1 {
            store.commit().expect("stored");
            tokio::task::yield_now().await;
        }
    };
    let stored = tokio::time::timeout(PATIENCE, stored).await;
    stored.expect("within the time");
    let letters = origin.links.dead_letters("http-push", 0, 10);
    let letters = letters.expect("reads");
    assert_eq!(letters.len(), 1);
    assert!(
        letters[0].text.contains("status 422"),
        "{}",
        letters[0].text
    );
    while !next(&mut seen).await.contains(">5<") {}
}

/// The request after the structure.
async fn structure_then(seen: &mut tokio::sync::mpsc::UnboundedReceiver<String>) -> String {
    let structure = next(seen).await;
    assert!(structure.starts_with("<structure"), "{structure}");
    next(seen).await
}

async fn next(seen: &mut tokio::sync::mpsc::UnboundedReceiver<String>) -> String {
    let request = tokio::time::timeout(PATIENCE, seen.recv()).await;
    request.expect("within the time").expect("a request")
}

#[tokio::test]
async fn subscriptions_by_contact_point_outlive_the_origin() {
    let origin = Node::new(1);
    let log = origin.stream("a", 3);
    let (mut seen, address, _) = foreign_contact_point().await;
    let answer = subscribe(&origin, address, LinkStart::New).await;
    let last = log.newest(1).expect("reads").remove(0).position;
    assert_eq!(answer.after, Some(last.to_string()));
    assert!(next(&mut seen).await.contains("confirm"));
    origin.links.close();
    // Elements appended while it is away are not lost, although nothing was sent before.
    append(&log, 10..12);
    let kept = origin.host.kept.lock().unwrap().clone();
    assert_eq!(kept.len(), 1);
    let links = Links::new(
        origin.host.clone(),
        origin.store.clone(),
        LinksConfig::default(),
        ZeromqConfig::default(),
    );
    links.http_restore(kept);
    for wanted in ["<structure", ">10<", ">11<"] {
        let body = next(&mut seen).await;
        assert!(body.contains(wanted), "{body}");
    }
    // The id alone neither renews nor ends it.
    for secret in ["", "0", &answer.id] {
        let stranger = Credential::Secret(secret);
        let renewed = links.http_renew(&answer.id, stranger);
        assert_eq!(renewed.expect_err("refused").status, 403);
        let ended = links.http_end(&answer.id, stranger);
        assert_eq!(ended.expect_err("refused").status, 403);
    }
    let own = Credential::Secret(&answer.secret);
    let renewed = links.http_renew(&answer.id, own);
    assert_eq!(
        renewed.expect("the same subscription").secret,
        answer.secret
    );
    links
        .http_renew(&answer.id, Credential::Operator)
        .expect("the operator may");
    // It is stored before the links end too, with its read position.
    let newest = log.newest(1).expect("reads").remove(0).position;
    let reached = || origin.host.kept.lock().unwrap().first().map(|it| it.after) == Some(newest);
    origin.wait_until(reached).await;
    links.http_end(&answer.id, own).expect("there");
    origin
        .wait_until(|| origin.host.kept.lock().unwrap().is_empty())
        .await;
}

#[tokio::test]
async fn a_stranger_cannot_be_restored_as_a_contact_point() {
    let origin = Node::new(1);
    let log = origin.stream("a", 1);
    let kept = |contact_point: &str, stream: &str| KeptSubscription {
        account: None,
        id: "0".into(),
        secret: "1".into(),
        stream: stream.into(),
        contact_point: contact_point.into(),
        fingerprint: None,
        reader: "127.0.0.1:9".parse().expect("an address"),
        after: log.position_of(0),
        serialization: Serialization::Xml,
    };
    let edited = vec![
        kept("http://192.0.2.7/", "a"),
        kept("http://127.0.0.1:9/", "b"),
    ];
    origin.links.http_restore(edited);
    assert!(origin.links.peers().is_empty());
    let drops = origin.drops();
    assert!(
        drops[1].starts_with("subscription not restored: "),
        "{drops:?}"
    );
    assert_eq!(
        drops.len(),
        3,
        "the first is counted by the policy too: {drops:?}"
    );
}

#[tokio::test]
async fn an_origin_reports_the_lag_of_its_reader() {
    for form in FORMS {
        let origin = Node::new(1);
        let log = origin.stream("a", 600);
        let reader = reader("127.0.0.1:9");
        let request = PullRequest {
            stream: "a".into(),
            serialization: Some(form),
            ..PullRequest::default()
        };
        let mut body = origin.links.http_pull(&request, &reader).expect("answered");
        let (mut had, mut lags) = (0, Vec::new());
        while had < 600 {
            let bytes = body.next().await.expect("a part");
            let (mut rest, mut reported) = (&bytes[..], None);
            while !rest.is_empty() {
                let (document, used) = form.decode(rest).expect("a document");
                rest = &rest[used..];
                if let Document::Elements(elements) = document {
                    had += elements.elements.len() as u64;
                    reported = Some(elements.last);
                }
            }
            let lag = reported.expect("elements").map_or(0, |last| last - had);
            assert_eq!(origin.links.peers()[0].lag_elements, 600 - had);
            lags.push(lag);
        }
        assert_eq!(lags, [344, 88, 0]);
        drop(log);
    }
}

#[tokio::test]
async fn a_misfit_is_a_dead_letter_until_the_cause_is_removed() {
    let pushed = Pushed::once().await;
    let (subscriber, secret) = (&pushed.subscriber, &*pushed.secret);
    let (id, epoch) = (pushed.schema, pushed.epoch);
    let document = |number: u64, kind: &str, value: &str| {
        format!(
            "<stream-element stream=\"a\" epoch=\"{epoch}\" number=\"{number}\" timestamp=\"1\" \
             schema=\"{id}\" version=\"0\" last=\"9\">\
             <field name=\"v\" type=\"{kind}\">{value}</field></stream-element>\n"
        )
    };
    let give = |body: String| {
        let links = subscriber.links.clone();
        async move {
            let body = body.as_bytes();
            links
                .http_take("test", secret, "application/xml", body)
                .await
        }
    };
    give(document(2, "text", "two")).await.expect("taken");
    give(document(3, "integer", "3")).await.expect("taken");
    give(document(2, "text", "two"))
        .await
        .expect("it is there already");
    let status = subscriber.links.show("test").expect("there");
    assert_eq!((status.dead_letters, status.lag_elements), (1, Some(6)));
    assert_eq!(status.streams[0].refused["schema"], 1);
    assert_eq!(status.streams[0].repeated, 1);
    assert!(status.streams[0].lost.is_empty(), "it is not lost");
    assert_eq!(status.held_bytes, 0);
    assert!(status.bytes_received > 0);
    let letter = subscriber
        .links
        .dead_letters("test", 0, 9)
        .expect("reads")
        .remove(0);
    let again = || subscriber.links.send_again("test", letter.number);
    let still = again().await.expect_err("still an integer");
    assert!(matches!(still, LinkError::StillDead { .. }), "{still}");
    // The origin changes the field's type; then the letter fits.
    let text = schema("v", FieldType::Text);
    let structure = format!(
        "<structure stream=\"a\" schema=\"{}\" version=\"1\">\
         <field name=\"v\" type=\"text\" unit=\"Cel\"/></structure>\n",
        SchemaId::of(&text)
    );
    give(structure).await.expect("taken");
    again().await.expect("fits now");
    let copy = subscriber.wait_for("a", 3).await;
    assert_eq!(copy[2].values, [Value::Text("two".into())]);
    assert_eq!(
        subscriber.links.show("test").expect("there").dead_letters,
        0
    );
    let error = again().await.expect_err("the letter was sent");
    assert_eq!(error, LinkError::NoLetter(letter.number));
}

/// An origin that is killed sends again the elements since it last stored a subscription's
/// position. A stream at a level below `power` has a new epoch after each crash.
#[tokio::test]
async fn repeated_elements_of_an_earlier_epoch_are_stored_once() {
    let pushed = Pushed::once().await;
    let (subscriber, secret) = (&pushed.subscriber, &*pushed.secret);
    let (id, epoch) = (pushed.schema, pushed.epoch.0);
    let give = |turn: u64, number: u64| {
        let epoch = Epoch(epoch + turn);
        let body = format!(
            "<stream-element stream=\"a\" epoch=\"{epoch}\" number=\"{number}\" timestamp=\"1\" \
             schema=\"{id}\" version=\"0\"><field name=\"v\" type=\"integer\">{number}</field>\
             </stream-element>\n"
        );
        let links = subscriber.links.clone();
        async move {
            let taken = links.http_take("test", secret, "application/xml", body.as_bytes());
            taken.await.expect("taken");
        }
    };
    // It crashes twice, and continues in another epoch; then it sends everything again.
    let sent = [(0, 2), (0, 3), (1, 4), (2, 5), (2, 6)];
    for (turn, number) in sent.into_iter().chain(sent) {
        give(turn, number).await;
    }
    let lost = format!(
        "<lost stream=\"a\" epoch=\"{}\" from=\"3\" next=\"4\" reason=\"corrupt\"/>\n",
        Epoch(epoch)
    );
    let links = &subscriber.links;
    let taken = links.http_take("test", secret, "application/xml", lost.as_bytes());
    taken.await.expect("taken");
    give(2, 7).await;
    let numbers = |copy: Vec<StreamElement>| -> Vec<u64> {
        copy.iter()
            .map(|it| it.origin.expect("from there").sequence)
            .collect()
    };
    assert_eq!(
        numbers(subscriber.wait_for("a", 7).await),
        [1, 2, 3, 4, 5, 6, 7]
    );
    let counts = subscriber.links.show("test").expect("there").streams[0].clone();
    assert_eq!((counts.repeated, counts.rollbacks), (5, 0));
    assert!(counts.lost.is_empty(), "{:?}", counts.lost);
    // An origin that was really rolled back has an unknown epoch.
    give(3, 6).await;
    assert_eq!(numbers(subscriber.wait_for("a", 8).await)[7], 6);
    assert_eq!(
        subscriber.links.show("test").expect("there").streams[0].rollbacks,
        1
    );
}

/// A contact point of another program, which accepts 2 the second time, and 3 once it may.
async fn foreign_contact_point() -> (
    tokio::sync::mpsc::UnboundedReceiver<String>,
    SocketAddr,
    Arc<AtomicBool>,
) {
    let accepts = Arc::new(AtomicBool::new(false));
    let (accepting, early) = (accepts.clone(), AtomicBool::new(true));
    let (receiver, address) = contact_point_that(move |body| {
        if body.contains(">3<") && !accepting.load(Ordering::Relaxed) {
            "422 No"
        } else if body.contains(">2<") && early.swap(false, Ordering::Relaxed) {
            "503 Later"
        } else {
            "204 Stored"
        }
    })
    .await;
    (receiver, address, accepts)
}

/// A contact point of another program that confirms and gives these responses: plain HTTP driven by
/// the test.
async fn contact_point_that(
    answers: impl Fn(&str) -> &'static str + Send + Sync + 'static,
) -> (tokio::sync::mpsc::UnboundedReceiver<String>, SocketAddr) {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("listens");
    let address = listener.local_addr().expect("an address");
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let answers = Arc::new(answers);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (sender, answers) = (sender.clone(), answers.clone());
            tokio::spawn(async move {
                let mut stream = tokio::io::BufReader::new(stream);
                loop {
                    let (mut length, mut line) = (0, String::new());
                    while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
                        let lower = line.to_ascii_lowercase();
                        if let Some(value) = lower.strip_prefix("content-length:") {
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
                        let length = confirmed.len();
                        format!("200 OK\r\nContent-Length: {length}\r\n\r\n{confirmed}")
                    } else {
                        format!("{}\r\nContent-Length: 0\r\n\r\n", answers(&body))
                    };
                    let _ = sender.send(body);
                    let answer = format!("HTTP/1.1 {answer}");
                    let sent = stream.get_mut().write_all(answer.as_bytes()).await;
                    sent.expect("sent");
                }
            });
        }
    });
    (receiver, address)
}

/// A receiver that restarts has lost the structure, and may need a while to accept it.
#[tokio::test]
async fn a_contact_point_that_forgets_the_structure_again_and_again_misses_nothing() {
    const SCRIPT: [(&str, &str); 8] = [
        ("<structure", "204 Stored"),
        ("<stream-element", "409 Unknown"),
        ("<structure", "503 Later"),
        ("<stream-element", "409 Unknown"),
        ("<structure", "204 Stored"),
        ("<stream-element", "503 Later"),
        ("<stream-element", "409 Unknown"),
        ("<structure", "204 Stored"),
    ];
    let origin = Node::new(1);
    let log = origin.stream("a", 2);
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let (mut requests, address) = contact_point_that(move |body| {
        let Some((begins, answer)) = SCRIPT.get(turn.load(Ordering::Relaxed)) else {
            return "204 Stored";
        };
        // A retry that is early waits.
        if !body.starts_with(begins) {
            return "503 Later";
        }
        turn.fetch_add(1, Ordering::Relaxed);
        answer
    })
    .await;
    subscribe(&origin, address, LinkStart::First).await;
    let last = async { while !requests.recv().await.expect("there").contains(">1<") {} };
    tokio::time::timeout(PATIENCE, last)
        .await
        .expect("the second element comes");
    let letters = origin.links.dead_letters("http-push", 0, 9).expect("reads");
    assert_eq!(letters, []);
    drop(log);
}

#[tokio::test]
async fn a_zeromq_port_is_distinguished_from_an_http_port() {
    let subscriber = Node::new(1);
    let limits = chappe_transport::zeromq::Limits::default();
    let router = chappe_transport::zeromq::Router::bind(
        "tcp://127.0.0.1:0",
        chappe_transport::zeromq::Security::Null,
        limits,
        chappe_transport::Drops::default(),
    );
    let router = router.await.expect("bound");
    let address = router.local_endpoint().to_string().replace("tcp:", "http:");
    let config = link(LinkKind::HttpPull, address, &["a"]);
    subscriber.links.add(config).expect("added");
    let status = || subscriber.links.show("test").expect("there");
    subscriber
        .wait_until(|| status().last_error.is_some())
        .await;
    let (error, hint) = (status().last_error, status().hint);
    assert!(
        error
            .as_ref()
            .is_some_and(|it| it.contains("answer in HTTP")),
        "{error:?}"
    );
    assert!(
        hint.as_ref().is_some_and(|it| it.contains("tcp://")),
        "{hint:?}"
    );
}

/// The subscriber's log is written only when the test does it.
#[tokio::test]
async fn documents_that_are_pulled_are_stored_together() {
    for form in FORMS {
        let (origin, subscriber) = (Node::new(1), narrow(1 << 20));
        let log = origin.stream("a", 600);
        let server = serve(&origin.links, None).await;
        let mut config = link(LinkKind::HttpPull, server.url(), &["a"]);
        config.serialization = Some(form);
        subscriber.links.add(config).expect("added");
        let queued = async {
            let assigned = || Some(subscriber.store.existing("a").ok()??.log().assigned());
            while assigned() != Some(600) {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        let queued = tokio::time::timeout(std::time::Duration::from_secs(20), queued).await;
        queued.expect("all are on their way before the first is stored");
        let status = subscriber.links.show("test").expect("there");
        assert_eq!(status.streams[0].acknowledged, 0);
        assert_eq!(status.lag_elements, None, "the connection may hold more");
        assert!(status.held_bytes > 0);
        subscriber.store.store().commit().expect("written");
        let copy = subscriber.wait_for("a", 600).await;
        assert_same(&log, &copy);
    }
}

#[tokio::test]
async fn a_contact_point_that_says_so_gets_many_elements_in_a_request() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 600);
    let server = serve(&origin.links, None).await;
    let contact = serve(&subscriber.links, None).await;
    *subscriber.host.contact.lock().unwrap() = Some(contact.url());
    let config = link(LinkKind::HttpPush, server.url(), &["a"]);
    subscriber.links.add(config).expect("added");
    let copy = subscriber.wait_for("a", 600).await;
    assert_same(&log, &copy);
    // The log returns 256 at once: the confirmation, the structure, 1, 255, 256 and 88 elements.
    assert_eq!(contact.requests.load(Ordering::Relaxed), 6);
}

#[tokio::test]
async fn of_several_elements_in_a_request_only_the_refused_one_is_a_dead_letter() {
    let origin = Node::new(1);
    let log = origin.stream("a", 6);
    let (mut seen, address) = contact_point_that(|body| match body.contains(">3<") {
        true => "422 No",
        false => "204 Stored\r\nchappe-elements-max: 10",
    })
    .await;
    let reader = Reader {
        address: Some("127.0.0.1:9".parse().expect("an address")),
        key: None,
        account: None,
    };
    let request = SubscriptionRequest {
        stream: "a".into(),
        contact_point: format!("http://{address}/here"),
        fingerprint: None,
        after: None,
        earlier: Vec::new(),
        start: LinkStart::First,
        serialization: Serialization::Xml,
    };
    let made = origin.links.http_subscribe(&request, &reader).await;
    made.expect("made");
    let mut counts = Vec::new();
    while counts.len() < 6 {
        match next(&mut seen).await.matches("</stream-element>").count() {
            0 => {}
            count => counts.push(count),
        }
    }
    assert_eq!(counts, [1, 5, 2, 3, 1, 2]);
    let letters = origin.links.dead_letters("http-push", 0, 9).expect("reads");
    let fourth = log.newest(3).expect("reads").remove(0).position;
    let refused: Vec<_> = letters.iter().map(|letter| letter.origin).collect();
    assert_eq!(refused, [Some(fourth)]);
}

#[tokio::test]
async fn an_element_too_large_for_a_record_is_a_dead_letter() {
    let pushed = Pushed::once().await;
    let (subscriber, secret) = (&pushed.subscriber, &*pushed.secret);
    let epoch = pushed.epoch;
    let text = schema("v", FieldType::Text);
    let id = SchemaId::of(&text);
    let mut body = format!(
        "<structure stream=\"a\" schema=\"{id}\" version=\"1\">\
         <field name=\"v\" type=\"text\" unit=\"Cel\"/></structure>\n"
    );
    for (number, bytes) in [(2, 1), (3, RECORD_BYTES_MAX + 1), (4, 1)] {
        let value = "x".repeat(bytes);
        body += &format!(
            "<stream-element stream=\"a\" epoch=\"{epoch}\" number=\"{number}\" timestamp=\"1\" \
             schema=\"{id}\" version=\"1\"><field name=\"v\" type=\"text\">{value}</field>\
             </stream-element>\n"
        );
    }
    let links = &subscriber.links;
    for _ in 0..2 {
        let taken = links.http_take("test", secret, "application/xml", body.as_bytes());
        taken.await.expect("taken");
    }
    let copy = subscriber.wait_for("a", 3).await;
    let numbers: Vec<u64> = copy.iter().map(|it| it.origin.unwrap().sequence).collect();
    assert_eq!(numbers, [1, 2, 4]);
    let status = links.show("test").expect("there");
    assert_eq!(status.dead_letters, 1);
    assert_eq!(status.streams[0].refused["too_large"], 1);
    assert!(status.streams[0].lost.is_empty());
    let letters = links.dead_letters("test", 0, 9).expect("reads");
    assert_eq!(letters[0].reason, DeadLetterReason::TooLarge);
    assert_eq!(letters[0].origin.unwrap().sequence, 3);
}

#[tokio::test]
async fn a_subscription_of_an_idle_stream_ends_with_its_lease() {
    let config = LinksConfig {
        lease: Duration::from_millis(200),
        ..LinksConfig::default()
    };
    let origin = Node::on(SimDisk::new(1), 1, config);
    origin.stream("a", 1);
    let (_seen, address, _accepts) = foreign_contact_point().await;
    subscribe(&origin, address, LinkStart::New).await;
    let links = &origin.links;
    assert_eq!(links.peers().len(), 1);
    until("the subscription ends", || links.peers().is_empty()).await;
    links.close();
    assert!(origin.host.kept.lock().unwrap().is_empty());
}
