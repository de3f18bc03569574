//! Goal: HTTP and PUB deliver exactly the log's elements, however large they are and whenever the
//! schema changes. Method: elements that are too large for one document, together or alone; a
//! schema with a renamed field between the reading of elements and their sending.

use chappe_links::http::{PullBody, PullRequest};
use chappe_links::serialization::{DOCUMENT_BYTES_MAX, Document, Structure};
use chappe_links::*;
use chappe_stream::*;

use crate::host::{Node, append, assert_same, element, link, schema};
use crate::server::{serve, serve_contact};

const FORMS: [Serialization; 3] = [
    Serialization::Xml,
    Serialization::Postcard,
    Serialization::MessagePack,
];

fn append_texts(log: &StreamLog, texts: &[String]) {
    for text in texts {
        let element = element(Value::Text(text.clone()));
        let appended = log.append(&[element]).expect("queued");
        appended.wait().expect("stored");
    }
}

/// 260 elements, 256 of which exceed a document.
fn large(log: &StreamLog) -> usize {
    let size = DOCUMENT_BYTES_MAX / 240;
    let texts: Vec<_> = (0..260).map(|n| format!("{n:size$}")).collect();
    append_texts(log, &texts);
    texts.len()
}

#[tokio::test]
async fn large_elements_are_pulled_and_pushed_in_every_serialization() {
    for kind in [LinkKind::HttpPull, LinkKind::HttpPush] {
        for form in FORMS {
            let (origin, subscriber) = (Node::new(1), Node::new(2));
            let log = origin.empty("a", &schema("v", FieldType::Text));
            let count = large(&log);
            let server = serve(&origin.links, None).await;
            let _contact = serve_contact(&subscriber).await;
            let mut config = link(kind, server.url(), &["a"]);
            config.serialization = Some(form);
            subscriber.links.add(config).expect("added");
            let copy = subscriber.wait_for("a", count).await;
            assert_same(&log, &copy);
        }
    }
}

#[tokio::test]
async fn an_element_that_no_document_takes_is_named_as_lost() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.empty("a", &schema("v", FieldType::Text));
    // Each of these characters takes five bytes of XML.
    let long = "&".repeat(RECORD_BYTES_MAX - 200);
    append_texts(&log, &["before".into(), long, "after".into()]);
    let server = serve(&origin.links, None).await;
    let config = link(LinkKind::HttpPull, server.url(), &["a"]);
    subscriber.links.add(config).expect("added");
    let copy = subscriber.wait_for("a", 2).await;
    let numbers: Vec<_> = copy.iter().map(|it| it.origin.unwrap().sequence).collect();
    assert_eq!(numbers, [1, 3]);
    let lost = subscriber.host.lost.lock().unwrap().clone();
    let expected = [(("a".to_owned(), LossReason::TooLarge), 1)];
    assert_eq!(lost, expected.into());
}

/// The next elements of a pull, each with the name and the value of its first field.
async fn pulled(
    form: Serialization,
    body: &mut PullBody,
    structure: &mut Option<Structure>,
    until: u64,
) -> Vec<(u64, String, Value)> {
    let mut all: Vec<(u64, String, Value)> = Vec::new();
    while all.last().is_none_or(|(number, ..)| *number < until) {
        let bytes = body.next().await.expect("a part");
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (document, used) = form.decode(rest).expect("a document");
            rest = &rest[used..];
            match document {
                Document::Structure(reported) => *structure = Some(reported),
                Document::Elements(elements) => {
                    let structure = structure.as_ref().expect("announced before");
                    assert_eq!(elements.schema.version, structure.version);
                    for element in elements.clone().shape(&structure.schema).expect("fits") {
                        let name = structure.schema.fields[0].name.clone();
                        let number = element.position.sequence;
                        all.push((number, name, element.values[0].clone()));
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
    all
}

#[tokio::test]
async fn elements_read_before_a_schema_change_keep_their_names() {
    for form in FORMS {
        let origin = Node::new(1);
        let log = origin.stream("a", 600);
        let request = PullRequest {
            stream: "a".into(),
            serialization: Some(form),
            ..PullRequest::default()
        };
        let reader = Reader {
            address: Some("127.0.0.1:9".parse().expect("an address")),
            key: None,
            account: None,
        };
        let mut body = origin.links.http_pull(&request, &reader).expect("answered");
        let mut structure = None;
        let mut all = pulled(form, &mut body, &mut structure, 256).await;
        // The field is renamed, and has another type.
        log.set_schema(&schema("w", FieldType::Integer))
            .expect("changes");
        append(&log, 600..610);
        all.extend(pulled(form, &mut body, &mut structure, 610).await);
        assert_eq!(all.len(), 610);
        for (number, name, value) in all {
            let expected = if number <= 600 { "v" } else { "w" };
            assert_eq!(name, expected, "{form:?}, {number}");
            assert_eq!(value, Value::Integer(number as i64 - 1), "{form:?}");
        }
    }
}
