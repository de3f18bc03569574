//! Goal: calls, answers and events are signed, and what is not signed by the right peer has no effect, at a device
//! and at a client.
//!
//! Method: host and client in one process over the loopback, with certificates of the tests of `chappe-identity`; a
//! device played by the test, which signs what it should not; thousands of changed messages to a device.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chappe_device::client::{Delivery, HostedService};
use chappe_device::{ClientOptions, HostOptions};
use chappe_dpws::eventing::message::{Expiration, Subscribe, SubscribeResponse, action};
use chappe_dpws::exi::ServiceSchema;
use chappe_dpws::{Dialect, exchange};
use chappe_identity::{CertificateName, Contact};
use chappe_soap::schema::Schemas;
use chappe_soap::security::{Admitted, Mode};
use chappe_soap::wsdl::Wsdl;
use chappe_soap::{AddressingVersion, EndpointReference, Envelope};
use chappe_transport::Drops;
use chappe_transport::http::{
    Client, ClientLimits, HeaderMap, Method, Request, Response, Server, ServerLimits, StatusCode,
    header,
};
use chappe_transport::signatures::{SignatureFiles, Signatures, Signing, random_urn};
use chappe_xml::{Element, Limits};
use fastrand::Rng;

use crate::common::*;
use crate::mutation::Material;

/// Mutants of each run of the tests; `of_all_mutants_to_a_device_none_is_accepted` tries 10,000.
const SAMPLE: u64 = 200;
const VERSION: AddressingVersion = AddressingVersion::V200508;

fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../identity/tests/certificates")
}

/// The signatures of a program with this certificate.
fn signatures(folder: &Path, name: &str) -> Arc<Signatures> {
    let text = |file: &str| std::fs::read_to_string(certificates().join(file)).unwrap();
    let (chain, key) = (
        folder.join(format!("{name}.pem")),
        folder.join(format!("{name}.key")),
    );
    let own = text(&format!("{name}.pem")) + &text("intermediate.pem");
    std::fs::write(&chain, own).unwrap();
    std::fs::write(&key, text(&format!("{name}.key"))).unwrap();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, owner_only).unwrap();
    let files = SignatureFiles {
        authorities: certificates().join("root.pem"),
        revocation_lists: Some(certificates().join("root.crl")),
        certificate: Some((chain, key)),
        replays: Some(folder.join(format!("{name}.replays"))),
        ..SignatureFiles::default()
    };
    Arc::new(Signatures::open(&files).unwrap())
}

fn signing(signatures: &Arc<Signatures>, mode: Mode) -> Option<Signing> {
    let signatures = Arc::clone(signatures);
    Some(Signing { signatures, mode })
}

fn signing_client(signatures: &Arc<Signatures>, mode: Mode) -> ClientOptions {
    ClientOptions {
        signing: signing(signatures, mode),
        event_signing: signing(signatures, mode),
        liveness_period: None,
        ..client_options()
    }
}

fn signing_host(address: &str, signatures: &Arc<Signatures>, mode: Mode) -> HostOptions {
    HostOptions {
        signing: signing(signatures, mode),
        ..host_options(address)
    }
}

fn limit(celsius: &str) -> Element {
    Element::new(name("Limit"))
        .with_child(Element::new(name("celsius")).with_text(celsius.to_owned()))
}

#[tokio::test]
async fn calls_and_events_are_signed_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let (device, own) = (
        signatures(folder.path(), "p256"),
        signatures(folder.path(), "rsa"),
    );
    for mode in [Mode::Accepted, Mode::Required] {
        let (endpoint, drops) = (endpoint(), Drops::default());
        let host = thermometer(&endpoint, signing_host("127.0.2.60", &device, mode))
            .start(drops.clone())
            .unwrap();
        let client = client(signing_client(&own, mode));
        let description = described(&client, &endpoint).await;
        assert!(description.notes.is_empty(), "{:?}", description.notes);
        // QNames in text keep their namespaces.
        assert!(description.types.contains(&name("Sensor")));
        let signer = description.signer.as_ref().unwrap().to_string();
        assert!(signer.starts_with("O=Ward 3,CN=p256;issuer="), "{signer}");
        let service = description.service_of(LIMIT).unwrap();
        assert_eq!(service.signer, description.signer);
        let answer = client.call(service, LIMIT, limit("38.5")).await.unwrap();
        let answer = answer.unwrap();
        assert_eq!(answer.child(&name("celsius")).unwrap().text(), "38.5");
        let unknown = client.call(service, "urn:none", limit("1")).await;
        assert_eq!(unknown.unwrap_err().reason(), "fault");
        let mut subscription = subscribed(&client, service).await;
        for event in 0..5 {
            host.notify(REPORT, report(event)).await.unwrap();
            let delivery = in_time("event", subscription.next()).await.unwrap();
            assert_eq!(number(&delivery), event);
        }
        drop(subscription);
        client.close().await;
        host.stop().await;
        // Clients of other tests may have asked, without a signature.
        let all = drops.entries();
        let is_bare = |detail: &str| detail == "the message is not signed";
        let mut refused = all.iter().filter(|drop| drop.reason == "signature");
        assert!(refused.all(|drop| is_bare(&drop.detail)), "{all:?}");
    }
}

#[tokio::test]
async fn a_device_that_requires_signatures_answers_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, drops) = (endpoint(), Drops::default());
    let device = signatures(folder.path(), "p256");
    let host = thermometer(
        &endpoint,
        signing_host("127.0.2.61", &device, Mode::Required),
    )
    .start(drops.clone())
    .unwrap();
    let client = client(client_options());
    let found = found(&client, &endpoint).await;
    let refused = in_time("described", client.describe(&found)).await;
    assert_eq!(refused.unwrap_err().reason(), "fault");
    let all = drops.entries();
    assert!(all.iter().any(|drop| drop.reason == "signature"), "{all:?}");
    host.stop().await;
}

#[tokio::test]
async fn a_client_that_requires_signatures_reads_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = endpoint();
    let host = thermometer(&endpoint, host_options("127.0.2.62"));
    let host = host.start(Drops::default()).unwrap();
    let own = signatures(folder.path(), "rsa");
    let strict = client(signing_client(&own, Mode::Required));
    let found = found(&strict, &endpoint).await;
    let refused = in_time("described", strict.describe(&found))
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), "signature", "{refused}");
    assert!(refused.hint().unwrap().contains("does not sign"));
    strict.close().await;
    let lenient = client(signing_client(&own, Mode::Accepted));
    let description = described(&lenient, &endpoint).await;
    assert_eq!(description.signer, None);
    lenient.close().await;
    host.stop().await;
}

/// A device played by the test: it grants subscriptions, with answers that it signs as it is told.
struct Played {
    server: Server,
    /// The address for events of the newest subscription.
    sink: Arc<Mutex<Option<String>>>,
}

impl Played {
    /// `relates_to` makes the identifier that an answer relates to.
    fn start(
        by: Arc<Signatures>,
        relates_to: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let sink = Arc::new(Mutex::new(None));
        let (given, relates_to) = (Arc::clone(&sink), Arc::new(relates_to));
        let answer = move |request: Request| {
            let (by, given, relates_to) = (by.clone(), given.clone(), relates_to.clone());
            async move {
                let request = Envelope::parse(&request.body).unwrap();
                if request.addressing.action != action::SUBSCRIBE {
                    return Response::empty(StatusCode::ACCEPTED);
                }
                let body = request.body().unwrap();
                let subscribe = Subscribe::from_element(VERSION, body).unwrap();
                *given.lock().unwrap() = Some(subscribe.notify_to.unwrap().address.to_string());
                let granted = SubscribeResponse {
                    manager: EndpointReference::new("http://127.0.2.63:9/manager"),
                    expires: Expiration::After(Duration::from_secs(600)),
                    tree: None,
                };
                let urn = random_urn().unwrap();
                let mut answer = exchange::reply(&request, action::SUBSCRIBE_RESPONSE, urn);
                let id = answer.addressing.relates_to.take().unwrap_or_default();
                answer.addressing.relates_to = Some(relates_to(&id).into());
                let answer = answer.with_body(granted.to_element(VERSION));
                let text = by.sign(&answer.to_element()).unwrap().unwrap();
                Response::new(StatusCode::OK, "application/soap+xml", text)
            }
        };
        let at = "127.0.2.63:0".parse().unwrap();
        let server = Server::bind(at, ServerLimits::default(), Drops::default(), answer);
        let server = server.unwrap();
        Self { server, sink }
    }

    /// Its service, of which the client knows that this certificate signs.
    fn service(&self, signer: &CertificateName) -> HostedService {
        let address = format!("http://{}/thermometer", self.server.local_addr());
        HostedService {
            id: "thermometer".into(),
            types: Vec::new(),
            contact: Contact::parse(&address, 0).unwrap(),
            endpoint: EndpointReference::new(address),
            dialect: Dialect::V2009,
            wsdl: Wsdl::default(),
            schemas: Schemas::default(),
            documents: Vec::new(),
            exi_schema: ServiceSchema::new([]),
            unread: None,
            signer: Some(signer.clone()),
        }
    }
}

/// The name of the certificate that signs for `signatures`.
fn name_of(signatures: &Signatures, judge: &Signatures) -> CertificateName {
    let text = signed_event(signatures, "urn:nobody", 0);
    let admitted = judge.admit(
        text.as_bytes(),
        Mode::Required,
        Limits::default(),
        Vec::new(),
    );
    match admitted.unwrap() {
        Admitted::Signed(verified) => verified.signer(),
        Admitted::Unsigned => panic!("not signed"),
    }
}

fn event(to: &str, number: i64) -> Envelope {
    let urn = random_urn().unwrap();
    let to = EndpointReference::new(to.to_owned());
    exchange::request(VERSION, &to, REPORT, urn).with_body(report(number))
}

fn signed_event(by: &Signatures, to: &str, number: i64) -> String {
    let envelope = event(to, number).to_element();
    by.sign(&envelope).unwrap().unwrap()
}

async fn post(to: &str, text: String) -> u16 {
    let contact = Contact::parse(to, 0).unwrap();
    let mut headers = HeaderMap::new();
    let kind = "application/soap+xml".parse().unwrap();
    headers.insert(header::CONTENT_TYPE, kind);
    let client = Client::new(ClientLimits::default());
    let answer = client.request(&contact, Method::POST, headers, text.into());
    in_time("posted", answer).await.unwrap().status.as_u16()
}

#[tokio::test]
async fn events_count_once_and_from_their_device() {
    let folder = tempfile::tempdir().unwrap();
    let (device, other) = (
        signatures(folder.path(), "p256"),
        signatures(folder.path(), "rsa"),
    );
    let own_folder = tempfile::tempdir().unwrap();
    let own = signatures(own_folder.path(), "rsa");
    let played = Played::start(device.clone(), str::to_owned);
    for mode in [Mode::Accepted, Mode::Required] {
        let client = client(signing_client(&other, mode));
        let service = played.service(&name_of(&device, &own));
        let actions = [REPORT.to_owned()];
        let mut subscription = client.subscribe(&service, &actions).await.unwrap();
        let granted = in_time("subscribed", subscription.next()).await.unwrap();
        assert!(
            matches!(granted, Delivery::Subscribed { .. }),
            "{granted:?}"
        );
        let sink = played.sink.lock().unwrap().clone().unwrap();
        let first = signed_event(&device, &sink, 1);
        let elsewhere = format!("{sink}0");
        let changed = first.replace(">1<", ">9<");
        assert_ne!(changed, first);
        let attempts = [
            ("unsigned", event(&sink, 9).to_text(), 400),
            ("of another device", signed_event(&other, &sink, 9), 400),
            (
                "for another sink",
                signed_event(&device, &elsewhere, 9),
                400,
            ),
            ("changed", changed, 400),
            ("as it was signed", first.clone(), 202),
            ("a replay", first, 400),
            ("the next", signed_event(&device, &sink, 2), 202),
        ];
        for (what, text, status) in attempts {
            assert_eq!(post(&sink, text).await, status, "{what}");
        }
        for expected in [1, 2] {
            let delivery = in_time("event", subscription.next()).await.unwrap();
            assert_eq!(number(&delivery), expected);
        }
        subscription.close();
        client.close().await;
    }
}

#[tokio::test]
async fn an_answer_to_another_request_grants_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (device, other) = (
        signatures(folder.path(), "p256"),
        signatures(folder.path(), "rsa"),
    );
    let own_folder = tempfile::tempdir().unwrap();
    let own = signatures(own_folder.path(), "rsa");
    let signer = name_of(&device, &own);
    let swapped = Played::start(device.clone(), |_| "urn:uuid:another".to_owned());
    let foreign = Played::start(other.clone(), str::to_owned);
    for played in [swapped, foreign] {
        let client = client(signing_client(&own, Mode::Accepted));
        let service = played.service(&signer);
        let actions = [REPORT.to_owned()];
        let mut subscription = client.subscribe(&service, &actions).await.unwrap();
        let delivery = in_time("refused", subscription.next()).await.unwrap();
        let Delivery::Trouble { detail, .. } = &delivery else {
            panic!("{delivery:?}")
        };
        assert!(detail.contains("not accepted"), "{detail}");
    }
}

/// Sends changed calls to a device; returns how often its operation ran.
async fn calls_of_mutants(address: &str, mutants: u64) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let device = signatures(folder.path(), "p256");
    let callers = signatures(folder.path(), "rsa");
    let (endpoint, calls) = (endpoint(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let options = signing_host(address, &device, Mode::Required);
    let host = thermometer(&endpoint, options).operation(LIMIT, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok(Some(Element::new(name("LimitResponse")))) }
    });
    let host = host.start(Drops::default()).unwrap();
    let to = format!("http://{}/thermometer", host.addresses()[0]);
    let request = |by: &Signatures, celsius| {
        let to = EndpointReference::new(to.clone());
        let urn = random_urn().unwrap();
        let request = exchange::request(VERSION, &to, LIMIT, urn).with_body(limit(celsius));
        by.sign(&request.to_element()).unwrap().unwrap()
    };
    let documents = vec![
        request(&callers, "70"),
        request(&callers, "71"),
        request(&device, "72"),
    ];
    let base64 = |file: &str| {
        let text = std::fs::read_to_string(certificates().join(file)).unwrap();
        text.lines()
            .filter(|line| !line.starts_with("---"))
            .collect()
    };
    let tokens = [
        "stranger.pem",
        "expired.pem",
        "plain.pem",
        "root.pem",
        "p256.pem",
    ]
    .map(base64);
    let material = Material {
        documents: documents.clone(),
        tokens: tokens.to_vec(),
    };
    for document in documents {
        assert_eq!(post(&to, document).await, 200);
    }
    let originals = calls.load(Ordering::SeqCst);
    for seed in 0..mutants {
        let mut rng = Rng::with_seed(seed);
        let original = &material.documents[rng.usize(..material.documents.len())];
        let mutant = material.mutant(&mut rng, original);
        let status = post(&to, mutant.clone()).await;
        assert_ne!(status, 200, "seed {seed}:\n{mutant}");
    }
    host.stop().await;
    calls.load(Ordering::SeqCst) - originals
}

#[tokio::test]
async fn of_a_sample_of_mutants_to_a_device_none_is_accepted() {
    assert_eq!(calls_of_mutants("127.0.2.64", SAMPLE).await, 0);
}

#[tokio::test]
#[ignore = "takes 78 s; `check/peers signatures` runs it"]
async fn of_all_mutants_to_a_device_none_is_accepted() {
    assert_eq!(calls_of_mutants("127.0.2.65", 10_000).await, 0);
}
