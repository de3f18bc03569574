//! Goal: a publisher goes on, and a subscriber has each element once, when elements cannot be samples, when the cursor of the
//! publisher is lost, when a reader was away, and when a stranger confirms what there is not.
//! Method: publishers and subscribers without logs, each with a participant of its own, on loopback.

#![cfg(cyclone)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chappe_dds::topics::{
    AnyPublication, AnySubscription, DdsConfig, Publisher, Reached, RefusedElement, Reports,
    StreamNow, Subscriber, Topics,
};
use chappe_dds::types::idl;
use chappe_log::Level;
use chappe_stream::{
    Epoch, Field, FieldType, Position, Quality, StreamElement, StreamSchema, Timestamp, Value,
};
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(240);

/// Reasons and details of what was dropped.
type Drops = Arc<Mutex<Vec<(&'static str, String)>>>;

fn topics(test: u32, key: &str) -> (Arc<Topics>, Drops) {
    let drops = Drops::default();
    let kept = drops.clone();
    let reports = Reports {
        notice: Box::new(|_| {}),
        dropped: Box::new(move |reason, _, detail| kept.lock().unwrap().push((reason, detail))),
    };
    // Below 101 its ports are below the ephemeral range.
    let domain = 1 + (std::process::id().wrapping_mul(7) + test * 53) % 100;
    let config = DdsConfig {
        domain: u16::try_from(domain).unwrap(),
        ..DdsConfig::default()
    };
    (
        Arc::new(Topics::new(config, key.to_owned(), reports).unwrap()),
        drops,
    )
}

fn topic(test: u32) -> String {
    format!("chappe/test/topics/{test}/{}", std::process::id())
}

/// Late readers get what is there, so that nothing depends on when who is discovered.
const KEPT: &str = "qos = { durability = \"transient_local\" }";

fn schema() -> Arc<StreamSchema> {
    Arc::new(StreamSchema {
        fields: vec![Field {
            name: "value".to_owned(),
            field_type: FieldType::Integer,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    })
}

fn at(epoch: u64, sequence: u64) -> Position {
    let epoch = Epoch(epoch);
    Position { epoch, sequence }
}

fn element(sequence: u64, value: i64) -> StreamElement {
    StreamElement {
        position: at(1, sequence),
        source_time: Timestamp(1),
        receive_time: Timestamp(1),
        key: None,
        values: vec![Value::Integer(value)],
        quality: Quality::Good,
        origin: None,
    }
}

fn now(last: u64) -> Option<StreamNow> {
    Some(StreamNow {
        schema: (*schema()).clone(),
        level: Level::Power,
        last,
    })
}

/// A publisher of a stream with elements up to this number.
fn publisher(topics: &Arc<Topics>, test: u32, delivered: Option<Position>, last: u64) -> Publisher {
    let text = format!(
        "topic = \"{}\"\nacknowledge = \"stored\"\nstalled_after_s = 1\n{KEPT}\n",
        topic(test)
    );
    let publication = toml::from_str(&text).unwrap();
    let publisher = topics.publisher(publication, "a", delivered, move || now(last));
    publisher.unwrap()
}

/// A subscriber that has elements up to these.
fn subscriber(topics: &Arc<Topics>, test: u32, reached: Vec<Position>) -> Subscriber {
    subscriber_of(topics, test, &schema(), reached)
}

fn subscriber_of(
    topics: &Arc<Topics>,
    test: u32,
    schema: &StreamSchema,
    reached: Vec<Position>,
) -> Subscriber {
    let text = format!("topic = \"{}\"\n{KEPT}\n", topic(test));
    let subscription = toml::from_str(&text).unwrap();
    let reached = Reached::new(reached);
    let subscriber = topics.subscriber(subscription, "a", schema, reached, || Timestamp(1));
    subscriber.unwrap()
}

/// Publishes these elements until the last one is delivered. Returns the refused ones.
async fn publish(publisher: &mut Publisher, elements: Vec<StreamElement>) -> Vec<RefusedElement> {
    let last = elements.last().map(|element| element.position);
    let (mut refused, mut delivered) = (Vec::new(), None);
    let mut left = elements.as_slice();
    while delivered != last {
        while publisher.has_room() && !left.is_empty() {
            let (some, rest) = left.split_at(left.len().min(64));
            publisher.take(&schema(), some);
            left = rest;
        }
        let advance = publisher.advance().await.unwrap();
        refused.extend(advance.refused);
        delivered = advance.delivered.or(delivered);
    }
    refused
}

/// Receives up to this number, as if each batch were stored at once. Returns all numbers up to it.
async fn receive(subscriber: &mut Subscriber, last: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.last() < Some(&last) {
        let batch = subscriber.next().await.unwrap();
        let origins = batch.iter().map(|element| element.origin.unwrap().sequence);
        numbers.extend(origins);
        subscriber.stored();
    }
    numbers.retain(|number| *number <= last);
    numbers
}

/// Receives for ever.
async fn store(subscriber: &mut Subscriber) -> std::convert::Infallible {
    loop {
        subscriber.next().await.unwrap();
        subscriber.stored();
    }
}

/// Receives for ever, and stores nothing: its first confirmation remains.
async fn confirm(subscriber: &mut Subscriber) -> std::convert::Infallible {
    loop {
        subscriber.next().await.unwrap();
    }
}

/// A runtime; publishers and subscribers are made within it.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

fn block_on<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let bounded = async { tokio::time::timeout(PATIENCE, future).await };
    runtime.block_on(bounded).expect("it ends in time")
}

#[test]
fn any_number_of_elements_that_cannot_be_samples_may_follow_each_other() {
    const REFUSED: u64 = 10_000;
    let runtime = runtime();
    let _entered = runtime.enter();
    let (here, _) = topics(1, "here");
    let text = format!("topic = \"{}\"\nidl = \"a.idl\"\nreaders = 0\n", topic(1));
    let publication: AnyPublication = toml::from_str(&text).unwrap();
    let mut types = idl("a.idl", "struct A { octet value; };", &mut |_| {
        Err(String::new())
    })
    .unwrap();
    let of = types.pop().unwrap();
    let published = here.any_publisher(&publication, &of, "a", None, || now(REFUSED + 2));
    let mut publisher = published.unwrap();
    let refused = block_on(&runtime, async {
        let mut elements = vec![element(1, 1)];
        elements.extend((2..REFUSED + 2).map(|sequence| element(sequence, 300)));
        elements.push(element(REFUSED + 2, 2));
        publish(&mut publisher, elements).await
    });
    let numbers = refused.iter().map(|one| one.position.sequence);
    assert!(numbers.eq(2..REFUSED + 2));
}

#[test]
fn a_publisher_that_has_lost_its_cursor_goes_on_after_what_readers_have() {
    const STORED: u64 = 20_000;
    let runtime = runtime();
    let _entered = runtime.enter();
    let ((here, _), (there, drops)) = (topics(2, "here"), topics(2, "there"));
    let mut subscriber = subscriber(&there, 2, vec![at(1, STORED)]);
    let mut publisher = publisher(&here, 2, None, STORED + 1);
    let elements = (1..=STORED + 1).map(|sequence| element(sequence, 0));
    block_on(&runtime, async {
        tokio::select! {
            _ = publish(&mut publisher, elements.collect()) => {}
            never = store(&mut subscriber) => match never {},
        }
    });
    assert_eq!(subscriber.reached().newest(), Some(at(1, STORED + 1)));
    assert!(drops.lock().unwrap().is_empty());
}

#[test]
fn a_reader_that_was_away_goes_on_and_reports_what_it_missed() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let (here, _) = topics(3, "here");
    let (one, _) = topics(3, "one");
    let (away, _) = topics(3, "away");
    let mut one = subscriber(&one, 3, vec![at(1, 200)]);
    let mut away = subscriber(&away, 3, vec![at(1, 100)]);
    let mut publisher = publisher(&here, 3, Some(at(1, 200)), 210);
    let (of_one, of_away) = block_on(&runtime, async {
        // One at a time: each is delivered to one of them before the next is published.
        let publishing = async {
            for sequence in 201.. {
                publish(&mut publisher, vec![element(sequence, 0)]).await;
            }
        };
        let receiving = async { tokio::join!(receive(&mut one, 210), receive(&mut away, 210)) };
        tokio::select! {
            () = publishing => unreachable!("it does not end"),
            both = receiving => both,
        }
    });
    assert!(of_one.iter().copied().eq(201..=210), "{of_one:?}");
    assert!(of_away.iter().copied().eq(201..=210), "{of_away:?}");
    assert_eq!((one.take_missing(), away.take_missing()), (0, 100));
    assert_eq!(away.take_missing(), 0);
}

#[test]
fn a_confirmation_of_what_there_is_not_holds_up_nothing() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let (here, _) = topics(4, "here");
    let ((one, _), (stranger, _)) = (topics(4, "one"), topics(4, "stranger"));
    let mut stranger = subscriber(&stranger, 4, vec![at(7, 1_000_000)]);
    let mut one = subscriber(&one, 4, vec![at(1, 1)]);
    let mut publisher = publisher(&here, 4, Some(at(1, 1)), 9);
    let elements = (2..10).map(|sequence| element(sequence, 0)).collect();
    block_on(&runtime, async {
        tokio::select! {
            _ = publish(&mut publisher, elements) => {}
            never = confirm(&mut stranger) => match never {},
            never = store(&mut one) => match never {},
        }
    });
}

#[test]
fn elements_with_other_fields_are_refused_and_named_at_both_ends() {
    let runtime = runtime();
    let (here, _) = topics(5, "here");
    let (there, drops) = topics(5, "there");
    block_on(&runtime, async {
        let mut publisher = publisher(&here, 5, None, 3);
        let mut other = (*schema()).clone();
        // Of the same size, so that its bytes could be read as this type.
        other.fields[0].field_type = FieldType::Double;
        let mut subscriber = subscriber_of(&there, 5, &other, Vec::new());
        let publishing = async {
            let elements = (1..=3).map(|n| element(n, n as i64)).collect();
            publish(&mut publisher, elements).await;
        };
        let named = async {
            loop {
                let writers = here.participant().map(|it| it.writers).unwrap_or_default();
                let mut ends = writers.iter().flat_map(|it| it.end.mismatched.clone());
                let refused = there.status().subscriptions[0].other_fields;
                if let (Some(text), 3..) = (ends.next(), refused) {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let text = tokio::select! {
            text = named => text,
            () = publishing => panic!("nobody stores them"),
            elements = subscriber.next() => panic!("{elements:?}"),
        };
        let words = "has other fields: value: announced as double, expected integer";
        assert!(text.ends_with(words), "{text}");
    });
    let drops = drops.lock().unwrap();
    let (reason, detail) = &drops[0];
    assert_eq!(*reason, "other fields");
    assert!(
        detail.ends_with(": value: announced as integer, expected double"),
        "{detail}"
    );
}

#[test]
fn a_topic_of_a_chappe_node_is_read_by_a_reader_of_any_type() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let ((here, _), (there, _)) = (topics(6, "here"), topics(6, "there"));
    let text = format!("topic = \"{}\"\n{KEPT}\n", topic(6));
    let subscription: AnySubscription = toml::from_str(&text).unwrap();
    let mut subscriber = there
        .any_subscriber(subscription, None, "any", || Timestamp(1))
        .unwrap();
    let mut publisher = publisher(&here, 6, None, 1);
    let batch = block_on(&runtime, async {
        tokio::select! {
            _ = publish(&mut publisher, vec![element(1, 7)]) => panic!("nobody confirms it"),
            batch = subscriber.next() => batch.unwrap(),
        }
    });
    let schema = batch.schema.unwrap();
    let field = schema.fields.iter().position(|it| it.name == "value");
    assert_eq!(batch.elements[0].values[field.unwrap()], Value::Integer(7));
}
