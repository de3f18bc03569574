//! Goal: a device and its client talk with TLS alone, know each other by their certificates, and say which certificate
//! is not accepted and why. Method: both on the loopback, with certificates of their keys and from files.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use chappe_device::client::{Delivery, Description, Found};
use chappe_device::tls::{Files, Mutual};
use chappe_device::{
    ClientOptions, Device, DeviceClient, DeviceHost, Error, Fault, HostOptions, Key, Message,
    Requester, Service,
};
use chappe_transport::Drops;
use chappe_transport::http::ServerLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{DEADLINE, LIMIT, REPORT};
use crate::common::{client_options, endpoint, found, host_options, in_time, report, thermometer};

fn key() -> Key {
    chappe_identity::Key::from_seed(chappe_transport::seed().unwrap()).into()
}

/// What trusts the other.
fn trusting(own: Mutual, other: &Mutual) -> Mutual {
    own.trust(other.fingerprint().into_iter().collect())
}

fn device(at: &str, endpoint: &str, tls: &Mutual) -> DeviceHost {
    let options = HostOptions {
        tls: Some(tls.security()),
        ..host_options(at)
    };
    let device = thermometer(endpoint, options);
    device.start(Drops::default()).unwrap()
}

fn client(tls: &Mutual) -> DeviceClient {
    let options = ClientOptions {
        tls: Some(tls.security()),
        plain: false,
        ..client_options()
    };
    DeviceClient::start(options, Drops::default()).unwrap()
}

async fn describe(client: &DeviceClient, endpoint: &str) -> Result<Description, Error> {
    let found = found(client, endpoint).await;
    in_time("described", client.describe(&found)).await
}

/// The error of a client that trusts as `tls` says, of a device with this certificate and endpoint.
async fn refused(at: &str, endpoint: &str, device_tls: &Mutual, tls: &Mutual) -> Error {
    let host = device(at, endpoint, device_tls);
    let client = client(tls);
    let error = describe(&client, endpoint).await.unwrap_err();
    client.close().await;
    host.stop().await;
    error
}

/// A certificate from a file, which is its own authority, and that file.
fn from_file(folder: &Path, name: &str, uri: &str, hosts: &[&str]) -> Files {
    let path = folder.join(format!("{name}.pem"));
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    chappe_device::tls::Server::self_signed(&path, name, uri, &hosts).unwrap();
    Files {
        certificate: Some(path.clone()),
        authorities: Some(path),
        ..Files::default()
    }
}

#[tokio::test]
async fn both_ends_know_each_other_by_certificates_of_their_keys() {
    let (own, other) = (key(), key());
    let server = trusting(own.tls(&[]), &other.tls(&[]));
    let tls = trusting(other.tls(&[]), &server);
    let host = device("127.0.3.1", own.endpoint(), &server);
    assert!(host.announcement().addresses[0].starts_with("https://127.0.3.1:"));
    let client = client(&tls);
    let description = describe(&client, own.endpoint()).await.unwrap();
    assert!(description.contact.to_string().starts_with("https://"));
    let service = &description.services[0];
    assert!(service.contact.to_string().starts_with("https://"));
    let asked = report(7);
    let answer = client.call(service, LIMIT, asked).await.unwrap();
    assert!(answer.is_some());
    let mut events = client.subscribe(service, &[]).await.unwrap();
    let granted = in_time("granted", events.next()).await;
    assert!(
        matches!(granted, Some(Delivery::Subscribed { .. })),
        "{granted:?}"
    );
    host.notify(REPORT, report(8)).await.unwrap();
    let event = in_time("an event", events.next()).await;
    assert!(
        matches!(event, Some(Delivery::Notification(_))),
        "{event:?}"
    );
    drop(events);
    client.close().await;
    host.stop().await;
}

/// What an operation learned of its requester.
#[derive(Message, Debug, PartialEq)]
struct Asker {
    fingerprint: Option<String>,
    endpoint: Option<String>,
    subject: Option<String>,
}

/// The certificate of the requester, as the operation sees it.
fn asker() -> Asker {
    let requester = Requester::current().unwrap();
    let certificate = requester.certificate;
    let text = |it: &dyn ToString| it.to_string();
    Asker {
        fingerprint: certificate.as_ref().map(|it| text(&it.fingerprint())),
        endpoint: certificate
            .as_ref()
            .and_then(|it| it.endpoint().map(str::to_owned)),
        subject: certificate
            .as_ref()
            .and_then(|it| it.subject().map(|subject| text(subject))),
    }
}

#[tokio::test]
async fn an_operation_learns_whose_certificate_asks() {
    let folder = tempfile::tempdir().unwrap();
    let own = key();
    let (first, second) = (key(), key());
    let of_file = Files {
        authorities: None,
        ..from_file(folder.path(), "monitor", "urn:x:y", &[])
    };
    let of_file = of_file.load("", "").unwrap();
    let mut server = own.tls(&[]).optional_clients();
    for other in [&first.tls(&[]), &second.tls(&[]), &of_file] {
        server = trusting(server, other);
    }
    let mut service = Service::new("https://example.org/asked", "Asked");
    service.operation("Who", async |(): ()| Ok::<_, Fault>(asker()));
    // Also after the operation has waited, in a task of its own.
    service.operation("WhoLater", async |(): ()| {
        tokio::task::yield_now().await;
        Ok::<_, Fault>(asker())
    });
    let endpoint = own.endpoint().to_owned();
    let device = Device::new(own)
        .model("Example", "A1")
        .name("asked")
        .service(service)
        .options(host_options("127.0.3.10"))
        .tls(&server);
    let device = device.start().await.unwrap();
    let name = |key: &Key| Some(key.endpoint().to_owned());
    let subject = |text: &str| Some(format!("CN={text}"));
    let shown = |tls: &Mutual| tls.fingerprint().map(|it| format!("sha256:{it}"));
    for (tls, endpoint_of, subject) in [
        (first.tls(&[]), name(&first), subject(first.endpoint())),
        (second.tls(&[]), name(&second), subject(second.endpoint())),
        (of_file, None, subject("monitor")),
        (Mutual::anonymous(), None, None),
    ] {
        let expected = Asker {
            fingerprint: shown(&tls),
            endpoint: endpoint_of,
            subject,
        };
        let client = client(&trusting(tls, &server));
        let description = describe(&client, &endpoint).await.unwrap();
        for operation in ["Who", "WhoLater"] {
            let service = &description.services[0];
            let answer = client.invoke::<_, Asker, Infallible>(service, operation, &());
            assert_eq!(answer.await.unwrap(), expected);
        }
        client.close().await;
    }
    device.stop().await;
}

#[tokio::test]
async fn a_certificate_that_nobody_trusts_is_named() {
    let own = key();
    let server = own.tls(&[]);
    let error = refused("127.0.3.2", own.endpoint(), &server, &Mutual::anonymous()).await;
    let fingerprint = server.fingerprint().unwrap().to_string();
    assert!(
        error.to_string().contains("no certificate is trusted here"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains(&fingerprint));
    let other = trusting(Mutual::anonymous(), &key().tls(&[]));
    let error = refused("127.0.3.2", own.endpoint(), &server, &other).await;
    assert!(error.to_string().contains(&fingerprint), "{error}");
}

#[tokio::test]
async fn a_client_that_the_device_does_not_know_learns_why() {
    let (own, other, stranger) = (key(), key(), key());
    let server = trusting(own.tls(&[]), &other.tls(&[]));
    let without = trusting(Mutual::anonymous(), &server);
    let error = refused("127.0.3.3", own.endpoint(), &server, &without).await;
    assert!(
        error.to_string().contains("demands a certificate"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("give a certificate"));
    let strange = trusting(stranger.tls(&[]), &server);
    let error = refused("127.0.3.3", own.endpoint(), &server, &strange).await;
    assert!(
        error.to_string().contains("does not trust the certificate"),
        "{error}"
    );
}

#[tokio::test]
async fn a_certificate_of_another_device_is_refused_even_if_it_is_trusted() {
    let (own, other) = (key(), key());
    let theirs = other.tls(&[]);
    let tls = trusting(Mutual::anonymous(), &theirs);
    let error = refused("127.0.3.4", own.endpoint(), &theirs, &tls).await;
    let text = error.to_string();
    assert!(
        text.contains("that of another device") && text.contains(other.endpoint()),
        "{text}"
    );
}

#[tokio::test]
async fn certificates_of_an_authority_prove_the_endpoint_or_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let own = endpoint();
    for (name, uri, hosts, is_proven) in [
        ("endpoint", own.as_str(), &[][..], true),
        ("address", "urn:x:y", &["127.0.3.5"][..], true),
        ("neither", "urn:x:y", &["127.0.3.99"][..], false),
    ] {
        let files = from_file(folder.path(), name, uri, hosts);
        let server = Files {
            authorities: None,
            ..files.clone()
        };
        let host = device("127.0.3.5", &own, &server.load("", "").unwrap());
        let trust = Files {
            certificate: None,
            ..files
        };
        let client = client(&trust.load("", "").unwrap());
        let described = describe(&client, &own).await.map(drop);
        match is_proven {
            true => described.unwrap(),
            false => {
                let error = described.unwrap_err().to_string();
                assert!(error.contains("it is not for \"127.0.3.5\""), "{error}");
                let any = Files {
                    any_name: true,
                    ..trust.clone()
                };
                let client = self::client(&any.load("", "").unwrap());
                describe(&client, &own).await.unwrap();
                client.close().await;
            }
        }
        let roles = Files {
            usages: vec!["1.2.840.10004.20701.1.1".parse().unwrap()],
            ..trust
        };
        let error = refused_by(&roles.load("", "").unwrap(), &own).await;
        assert!(error.contains("usage 1.2.840.10004.20701.1.1"), "{error}");
        client.close().await;
        host.stop().await;
    }
}

/// The error of a client of a running device.
async fn refused_by(tls: &Mutual, endpoint: &str) -> String {
    let client = client(tls);
    let error = describe(&client, endpoint).await.unwrap_err();
    client.close().await;
    error.to_string()
}

#[tokio::test]
async fn nothing_falls_back_to_plain_http() {
    let own = key();
    let server = own.tls(&[]);
    let host = device("127.0.3.6", own.endpoint(), &server);
    let client = client(&trusting(Mutual::anonymous(), &server));
    let secured = found(&client, own.endpoint()).await;
    // One who forges a Hello adds an address without TLS.
    let mixed = Found {
        xaddrs: [
            vec!["http://127.0.3.6:9/x".to_owned()],
            secured.xaddrs.clone(),
        ]
        .concat(),
        ..secured.clone()
    };
    let description = client.describe(&mixed).await.unwrap();
    assert!(description.contact.to_string().starts_with("https://"));
    let plain = Found {
        xaddrs: vec!["http://127.0.3.6:9/x".to_owned()],
        ..secured
    };
    let error = client.describe(&plain).await.unwrap_err().to_string();
    assert!(error.contains("TLS is demanded"), "{error}");
    // Without a certificate there are no events, and none over plain HTTP.
    let error = client
        .subscribe(&description.services[0], &[])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoCertificate), "{error}");
    client.close().await;
    host.stop().await;
}

#[tokio::test]
async fn a_name_is_resolved_where_a_certificate_proves_it() {
    let folder = tempfile::tempdir().unwrap();
    let own = endpoint();
    let files = from_file(folder.path(), "named", "urn:x:y", &["localhost"]);
    let tls = files.load("", "").unwrap();
    let host = device(
        "127.0.0.1",
        &own,
        &Files {
            authorities: None,
            ..files
        }
        .load("", "")
        .unwrap(),
    );
    let port = host.addresses()[0].port();
    let client = client(&tls);
    let mut named = found(&client, &own).await;
    named.xaddrs = vec![format!("https://localhost:{port}/device")];
    let description = client.describe(&named).await.unwrap();
    assert_eq!(description.contact.proof.name.as_deref(), Some("localhost"));
    named.xaddrs = vec![format!("https://no-such-host.invalid:{port}/device")];
    let error = client.describe(&named).await.unwrap_err().to_string();
    assert!(error.contains("cannot be resolved"), "{error}");
    named.xaddrs = vec![format!("http://localhost:{port}/device")];
    let error = client.describe(&named).await.unwrap_err().to_string();
    assert!(error.contains("not a literal IP address"), "{error}");
    client.close().await;
    host.stop().await;
}

#[tokio::test]
async fn idle_and_half_open_handshakes_are_bounded_in_count_and_time() {
    let own = key();
    let server = own.tls(&[]);
    let options = HostOptions {
        tls: Some(server.security()),
        server: ServerLimits {
            connections: 64,
            connections_per_peer: 64,
            header_deadline: Duration::from_millis(500),
            ..host_options("127.0.3.7").server
        },
        ..host_options("127.0.3.7")
    };
    let host = thermometer(own.endpoint(), options)
        .start(Drops::default())
        .unwrap();
    let address = host.addresses()[0];
    let mut idle = Vec::new();
    for number in 0..1_000 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if number % 2 == 0 {
            // The start of a ClientHello.
            let _ = stream.write_all(&[22, 3, 1, 2, 0, 1]).await;
        }
        idle.push(stream);
    }
    let client = client(&trusting(Mutual::anonymous(), &server));
    describe(&client, own.endpoint()).await.unwrap();
    // Each ends: displaced by a later one, or because its time is over.
    for mut stream in idle {
        let ended = tokio::time::timeout(DEADLINE, stream.read(&mut [0; 64])).await;
        assert!(
            !matches!(ended.unwrap(), Ok(1..)),
            "the device sent something"
        );
    }
    let drops = host.drops().entries();
    let has = |reason: &str| drops.iter().any(|drop| drop.reason == reason);
    assert!(has("too many connections of one peer"), "{drops:?}");
    client.close().await;
    host.stop().await;
}

#[tokio::test]
async fn plain_http_at_a_device_with_tls_is_refused() {
    let own = key();
    let host = device("127.0.3.8", own.endpoint(), &own.tls(&[]));
    let mut stream = TcpStream::connect(host.addresses()[0]).await.unwrap();
    stream
        .write_all(b"GET /device HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    // The connection may end with a reset, because the request is not read.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 400"));
    assert!(
        host.drops()
            .entries()
            .iter()
            .any(|drop| drop.reason == "no TLS")
    );
    host.stop().await;
}

#[tokio::test]
async fn a_subscriber_without_tls_gets_the_reason() {
    let own = key();
    let other = key();
    let server = trusting(own.tls(&[]), &other.tls(&[]));
    let host = device("127.0.3.9", own.endpoint(), &server);
    let client = client(&trusting(other.tls(&[]), &server));
    let description = describe(&client, own.endpoint()).await.unwrap();
    let service = &description.services[0];
    let subscribe = chappe_dpws::eventing::message::action::SUBSCRIBE;
    let body = subscribe_body("http://127.0.0.1:9/sink");
    let error = client.call(service, subscribe, body).await.unwrap_err();
    assert!(error.to_string().contains("only to https"), "{error}");
    client.close().await;
    host.stop().await;
}

/// The body of a Subscribe with this address of the sink.
fn subscribe_body(sink: &str) -> chappe_xml::Element {
    use chappe_xml::{Element, Name};
    const EVENTING: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing";
    let address = Element::new(Name::new("http://www.w3.org/2005/08/addressing", "Address"));
    let notify_to = Element::new(Name::new(EVENTING, "NotifyTo"));
    let delivery = Element::new(Name::new(EVENTING, "Delivery"));
    Element::new(Name::new(EVENTING, "Subscribe"))
        .with_child(delivery.with_child(notify_to.with_child(address.with_text(sink.to_owned()))))
}
