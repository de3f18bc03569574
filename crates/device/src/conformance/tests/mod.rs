//! Goal: each planted deviation is found as a violation of its clause; Chappe's own devices have none.
//!
//! Method: a device on its own loopback address; its answers, or the questions to it, are changed on their way
//! as a deviating device would have answered.

mod events;
mod messages;
mod tamper;

use std::time::Duration;

use chappe_dpws::hosting;
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_identity::Contact;
use chappe_soap::schema::{FlatField, FlatType, XsdType, to_schema};
use chappe_soap::wsdl::{Service, ServiceOperation};
use chappe_transport::Drops;
use chappe_xml::{Element, Name};
use tokio::task::LocalSet;

use super::wire::{Got, Network, Post, Posted, Wire};
use super::{Check, Options, Report, check};
use crate::tls::Mutual;
use crate::{DeviceHost, Fault, HostOptions, Key, Message, Selection};
use events::EVENTS;
use messages::MESSAGES;
use tamper::{Deviation, Stage, Tamper};

pub(super) const ENDPOINT: &str = "urn:uuid:0a6dc791-2be6-4991-9af1-454778a1917a";
const NAMESPACE: &str = "https://example.org/thermometer";
/// The actions of the events.
pub(super) const REPORT: &str = "https://example.org/thermometer/Thermometer/Report";
pub(super) const ALARM: &str = "https://example.org/thermometer/Thermometer/Alarm";

fn deviations() -> impl Iterator<Item = &'static Deviation> {
    MESSAGES.iter().chain(EVENTS)
}

fn name(local: &'static str) -> Name {
    Name::new(NAMESPACE, local)
}

/// A thermometer with two events.
fn thermometer(address: &str, dialects: Vec<chappe_dpws::Dialect>) -> DeviceHost {
    let celsius = FlatField::new(name("celsius"), XsdType::Double);
    let element = |local| FlatType {
        name: name(local),
        fields: vec![celsius.clone()],
        doc: None,
    };
    let service = Service {
        target_namespace: NAMESPACE.into(),
        name: "Thermometer".into(),
        operations: vec![
            ServiceOperation::event("Report", name("Report")),
            ServiceOperation::event("Alarm", name("Alarm")),
        ],
        schemas: vec![to_schema(NAMESPACE, &[element("Report"), element("Alarm")])],
        address: None,
    };
    let builder = DeviceHost::builder(ENDPOINT)
        .model(ThisModel {
            manufacturer: vec!["Example".into()],
            model_name: vec!["T1".into()],
            ..ThisModel::default()
        })
        .device(ThisDevice {
            friendly_name: vec!["window side".into()],
            ..ThisDevice::default()
        })
        .types([name("Sensor")])
        .scopes(["https://example.org/ward/3".to_owned()]);
    builder
        .service(hosting::HostedService::new(
            "https://example.org/thermometer/1",
            "/thermometer",
            service.to_wsdl(),
        ))
        .options(HostOptions {
            selection: Selection::Addresses(vec![address.parse().unwrap()]),
            app_max_delay: Duration::ZERO,
            dialects,
            ..HostOptions::default()
        })
        .start(Drops::default())
        .unwrap()
}

/// Sends both events forever.
async fn events(host: &DeviceHost) {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        for (action, local) in [(REPORT, "Report"), (ALARM, "Alarm")] {
            let celsius = Element::new(name("celsius")).with_text("21.5");
            let event = Element::new(name(local)).with_child(celsius);
            host.notify(action.to_owned(), event).await.unwrap();
        }
    }
}

fn options(host: &DeviceHost) -> Options {
    let contact = Contact::parse(&format!("http://{}/device", host.addresses()[0]), 0).unwrap();
    Options {
        endpoint: Some(ENDPOINT.to_owned()),
        // The device answers without a random delay.
        answers: Duration::from_secs(1),
        events: Duration::from_secs(1),
        ..Options::new(contact)
    }
}

fn violated(report: &Report) -> Vec<String> {
    let words = report.findings().map(|finding| {
        let (clause, problem) = (finding.clause.id, &finding.problem);
        format!(
            "{clause}: {problem} (sent {}, came {})",
            finding.sent, finding.came
        )
    });
    words.collect()
}

/// The network with a deviation on the way.
struct Tampered {
    network: Network,
    deviation: &'static Deviation,
}

impl Wire for Tampered {
    async fn post(&mut self, post: &Post) -> Result<Got, String> {
        let mut asked = post.clone();
        if let Tamper::Question(change) = self.deviation.tamper {
            change(&mut asked.body);
        }
        let got = self.network.post(&asked).await?;
        match self.deviation.tamper {
            Tamper::Answer(change) => change(post, got),
            _ => Ok(got),
        }
    }

    async fn get(&mut self, url: &str) -> Result<Got, String> {
        let mut got = self.network.get(url).await?;
        if let Tamper::Document(change) = self.deviation.tamper {
            change(&mut got);
        }
        Ok(got)
    }

    async fn multicast(&mut self, questions: &[String], window: Duration) -> Vec<Vec<String>> {
        let mut asked = questions.to_vec();
        if let Tamper::Question(change) = self.deviation.tamper {
            asked.iter_mut().for_each(change);
        }
        let mut answers = self.network.multicast(&asked, window).await;
        if let Tamper::Datagrams(change) = self.deviation.tamper {
            for (question, answers) in questions.iter().zip(&mut answers) {
                change(question, answers);
            }
        }
        answers
    }

    async fn posted(&mut self, window: Duration) -> Option<Posted> {
        let mut posted = self.network.posted(window).await?;
        if let Tamper::Notification(change) = self.deviation.tamper {
            change(&mut posted);
        }
        Some(posted)
    }

    fn sink(&self) -> &str {
        self.network.sink()
    }

    fn on_link(&self) -> bool {
        self.network.on_link()
    }
}

/// Runs the stage of the check in which a deviation shows.
async fn run(options: &Options, deviation: &'static Deviation) -> Report {
    let network = Network::open(options.device.clone(), None).unwrap();
    let mut wire = Tampered { network, deviation };
    let mut check = Check::new(options, &mut wire).unwrap();
    let services = check.description().await.unwrap();
    match deviation.stage {
        Stage::Description => {}
        Stage::Messaging => check.messaging().await,
        Stage::HttpProbe => check.probe_by_http().await,
        Stage::Eventing => check.eventing(&services).await,
        Stage::Discovery => check.discovery().await,
    }
    check.report
}

async fn found_in(stages: &'static [Stage], address: &'static str) {
    let host = thermometer(address, vec![chappe_dpws::Dialect::V2009]);
    let options = options(&host);
    let all = LocalSet::new();
    let mut missed = Vec::new();
    let checks = async {
        // In parallel only where a check mostly waits: the device limits the questions of one host.
        let chosen: Vec<&'static Deviation> = deviations()
            .filter(|deviation| stages.contains(&deviation.stage))
            .collect();
        let together = if stages == [Stage::Eventing] { 8 } else { 1 };
        for some in chosen.chunks(together) {
            let mut running = Vec::new();
            for &deviation in some {
                let options = options.clone();
                let task = async move { run(&options, deviation).await };
                running.push((deviation, tokio::task::spawn_local(task)));
            }
            for (deviation, task) in running {
                let report = task.await.unwrap();
                let mut findings = report.findings();
                if !findings.any(|finding| finding.clause.id == deviation.clause) {
                    missed.push((deviation.clause, violated(&report)));
                }
            }
        }
    };
    all.run_until(async {
        tokio::select! {
            () = checks => {}
            () = events(&host) => {}
        }
    })
    .await;
    assert!(missed.is_empty(), "{missed:#?}");
    host.stop().await;
}

#[test]
fn there_are_forty_deviations_and_more() {
    assert!(deviations().count() >= 40, "{}", deviations().count());
    let known = |id| super::CLAUSES.iter().any(|clause| clause.id == id);
    for deviation in deviations() {
        assert!(known(deviation.clause), "{}", deviation.clause);
    }
}

#[tokio::test]
async fn deviations_of_metadata_and_messages_are_found() {
    found_in(
        &[Stage::Description, Stage::Messaging, Stage::HttpProbe],
        "127.0.41.1",
    )
    .await;
}

#[tokio::test]
async fn deviations_of_discovery_are_found() {
    found_in(&[Stage::Discovery], "127.0.41.2").await;
}

#[tokio::test]
async fn deviations_of_events_are_found() {
    found_in(&[Stage::Eventing], "127.0.41.3").await;
}

#[tokio::test]
async fn a_device_of_either_dialect_has_no_finding() {
    use chappe_dpws::Dialect;
    for (dialect, address) in [
        (Dialect::V2009, "127.0.41.4"),
        (Dialect::V2005, "127.0.41.5"),
    ] {
        let host = thermometer(address, vec![dialect]);
        let options = Options {
            dialect: Some(dialect),
            ..options(&host)
        };
        let report = tokio::select! {
            report = check(&options) => report.unwrap(),
            () = events(&host) => unreachable!(),
        };
        assert!(
            violated(&report).is_empty(),
            "{dialect:?} {:#?}",
            violated(&report)
        );
        assert!(report.notes.is_empty(), "{dialect:?} {:?}", report.notes);
        let unseen = report.clauses().filter(|(_, state)| state.is_none());
        let unseen: Vec<_> = unseen.map(|(clause, _)| clause.id).collect();
        // The answer to SOAP 1.1 is in SOAP 1.1, which has no header Upgrade; 2004/08 marks no parameters.
        let usual = ["SOAP-1-5.4.7-upgrade", "WSA-SOAP-3.3-marked"];
        assert!(
            unseen.iter().all(|id| usual.contains(id)),
            "{dialect:?} {unseen:?}"
        );
        host.stop().await;
    }
}

#[derive(Message)]
struct Period {
    #[unit("s")]
    seconds: f64,
}

#[derive(Message)]
struct Temperature {
    #[unit("Cel")]
    celsius: f64,
}

#[derive(Fault)]
enum Refused {
    OutOfRange,
}

/// Checks a device of Rust types, with this TLS of its own and of the check.
async fn typed(address: &str, tls: Option<(Mutual, Mutual)>, key: Key) -> Report {
    let mut service = crate::Service::new(NAMESPACE, "Thermometer");
    let temperature = service.event::<Temperature>("Temperature");
    let high = service.event::<Temperature>("High");
    service.operation("SetPeriod", async |asked: Period| match asked.seconds {
        0.1..=60.0 => Ok(asked),
        _ => Err(Refused::OutOfRange),
    });
    service.one_way("Restart", async |(): ()| {});
    let endpoint = key.endpoint().to_owned();
    let device = crate::Device::new(key)
        .model("Example", "T1")
        .name("window side")
        .scopes(["https://example.org/ward/3"])
        .service(service)
        .options(HostOptions {
            selection: Selection::Addresses(vec![address.parse().unwrap()]),
            app_max_delay: Duration::ZERO,
            tls: tls.as_ref().map(|(device, _)| device.security()),
            ..HostOptions::default()
        });
    let device = device.start().await.unwrap();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let at = device.host().addresses()[0];
    let contact = Contact::parse(&format!("{scheme}://{at}/device"), 0).unwrap();
    let options = Options {
        endpoint: Some(endpoint),
        tls: tls.map(|(_, check)| check.security()),
        answers: Duration::from_secs(1),
        events: Duration::from_secs(1),
        ..Options::new(contact)
    };
    let sending = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            for event in [&temperature, &high] {
                event.send(Temperature { celsius: 21.5 }).await.unwrap();
            }
        }
    };
    let report = tokio::select! {
        report = check(&options) => report.unwrap(),
        () = sending => unreachable!(),
    };
    device.stop().await;
    report
}

fn key(seed: u8) -> Key {
    chappe_identity::Key::from_seed([seed; 32]).into()
}

#[tokio::test]
async fn a_device_of_rust_types_has_no_finding_with_and_without_tls() {
    let pinned = |one: &Mutual| one.fingerprint().into_iter().collect();
    let own = key(1).tls(&[]);
    let other = key(2).tls(&[]).trust(pinned(&own));
    let own = own.trust(pinned(&other));
    for (address, tls) in [("127.0.41.7", None), ("127.0.41.8", Some((own, other)))] {
        let report = typed(address, tls, key(1)).await;
        assert!(violated(&report).is_empty(), "{:#?}", violated(&report));
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        let unseen = report.clauses().filter(|(_, state)| state.is_none());
        let unseen: Vec<_> = unseen.map(|(clause, _)| clause.id).collect();
        assert_eq!(unseen, ["SOAP-1-5.4.7-upgrade"], "{address}");
    }
}

#[tokio::test]
async fn events_of_a_device_with_tls_need_a_certificate() {
    let own = key(3).tls(&[]);
    let other = Mutual::anonymous().trust(own.fingerprint().into_iter().collect());
    let report = typed("127.0.41.9", Some((own, other)), key(3)).await;
    assert!(violated(&report).is_empty(), "{:#?}", violated(&report));
    assert!(
        report.notes[0].contains("events are not checked"),
        "{:?}",
        report.notes
    );
}

#[tokio::test]
async fn a_device_that_is_not_there_is_an_error() {
    let free = tokio::net::TcpListener::bind("127.0.41.6:0").await.unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    let contact = Contact::parse(&format!("http://{at}/device"), 0).unwrap();
    let failed = check(&Options::new(contact)).await;
    assert!(failed.unwrap_err().to_string().contains("Get"));
}

#[tokio::test]
async fn a_device_that_never_answers_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.41.7:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let contact = Contact::parse(&format!("http://{at}/device"), 0).unwrap();
    let options = Options {
        limit: Duration::from_millis(300),
        ..Options::new(contact)
    };
    let failed = check(&options).await.unwrap_err();
    assert!(matches!(failed, crate::Error::Silent(_)), "{failed}");
}
