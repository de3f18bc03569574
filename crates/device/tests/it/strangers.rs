//! Goal: a stranger's message never causes a connection to an address that is not the stranger's own.
//!
//! Method: a listener on the loopback that counts connections plays the victim. A stranger names it as transport
//! address in the answer to a Probe, as service in its metadata, and as sink in Subscribe. Afterwards the
//! listener has no connection.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use crate::common::*;
use chappe_device::client::{Found, Seen, Way};
use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::action;
use chappe_dpws::metadata::{
    Host, Hosted, Metadata, Relationship, ThisDevice, ThisModel, transfer_get_response,
};
use chappe_identity::Contact;
use chappe_soap::{EndpointReference, Envelope};
use chappe_transport::http::header::{CONTENT_TYPE, HeaderValue};
use chappe_transport::http::{
    Client, ClientLimits, HeaderMap, Method, Request, Response, Server, ServerLimits, StatusCode,
};
use chappe_transport::{Drops, Hop};
use chappe_xml::{Element, Name};

const EVENTING: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing";

/// A listener that must receive no connection.
struct Victim(TcpListener);

impl Victim {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.4.99:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn saw_no_connection(&self) {
        let seen = self.0.accept();
        assert!(seen.is_err(), "contacted by {seen:?}");
    }
}

fn found_at(from: &str, xaddrs: &[String]) -> Found {
    Found {
        endpoint: endpoint(),
        dialect: Dialect::V2009,
        types: vec![Dialect::V2009.device_type()],
        scopes: Vec::new(),
        xaddrs: xaddrs.to_vec(),
        metadata_version: 1,
        from: from.parse().unwrap(),
        way: Way::Discovery,
    }
}

#[tokio::test]
async fn a_transport_address_elsewhere_is_not_contacted() {
    let victim = Victim::new();
    let client = client(client_options());
    let xaddr = format!("http://{}/device", victim.address());
    // From the network and from the loopback: neither sender is the victim.
    for from in ["192.0.2.66:3702", "127.0.4.1:3702"] {
        let found = found_at(from, std::slice::from_ref(&xaddr));
        let error = client.describe(&found).await.unwrap_err();
        assert_eq!(error.reason(), "address refused");
        assert!(error.hint().is_some());
        assert!(!client.drops().about(&found.endpoint).is_empty());
    }
    assert_eq!(client.drops().total(Hop::Address, "address refused"), 2);
    victim.saw_no_connection();
}

/// Serves metadata whose service and WSDL are at the victim.
fn stranger(victim: SocketAddr, local: &str) -> Server {
    let answer = move |request: Request| async move {
        let asked = Envelope::parse(&request.body).unwrap();
        let hosted = Hosted {
            endpoints: vec![EndpointReference::new(format!("http://{victim}/service"))],
            types: vec![name("Thermometer")],
            service_id: "urn:service".into(),
        };
        let metadata = Metadata {
            this_model: Some(ThisModel {
                manufacturer: vec!["Stranger".into()],
                model_name: vec!["S".into()],
                ..ThisModel::default()
            }),
            this_device: Some(ThisDevice {
                friendly_name: vec!["stranger".into()],
                ..ThisDevice::default()
            }),
            relationship: Some(Relationship {
                host: Some(Host::default()),
                hosted: vec![hosted],
            }),
            ..Metadata::default()
        };
        Response::soap(&transfer_get_response(&asked, &metadata, "urn:uuid:1"))
    };
    let local = local.parse().unwrap();
    Server::bind(local, ServerLimits::default(), Drops::default(), answer).unwrap()
}

#[tokio::test]
async fn a_service_elsewhere_is_not_contacted_but_reported() {
    let victim = Victim::new();
    let server = stranger(victim.address(), "127.0.4.2:0");
    let client = client(client_options());
    let found = found_at(
        "127.0.4.2:3702",
        &[format!("http://{}/", server.local_addr())],
    );
    let description = in_time("described", client.describe(&found)).await.unwrap();
    assert_eq!(description.name(), "stranger");
    assert!(description.services.is_empty());
    let reasons: Vec<_> = description.notes.iter().map(|note| note.reason).collect();
    assert!(reasons.contains(&"service address refused"), "{reasons:?}");
    victim.saw_no_connection();
}

fn subscribe(to: &str, victim: &str) -> Envelope {
    let eventing = |local| Element::new(Name::new(EVENTING, local));
    let version = Dialect::V2009.addressing();
    let reference = EndpointReference::new(victim.to_owned());
    let notify_to = reference.to_element(version, Name::new(EVENTING, "NotifyTo"));
    let body = eventing("Subscribe").with_child(eventing("Delivery").with_child(notify_to));
    let to = EndpointReference::new(to.to_owned());
    chappe_dpws::exchange::request(version, &to, action::SUBSCRIBE, "urn:uuid:2").with_body(body)
}

#[tokio::test]
async fn a_sink_elsewhere_is_refused_and_never_notified() {
    let victim = Victim::new();
    let drops = Drops::default();
    let options = host_options("127.0.4.3");
    let host = thermometer(&endpoint(), options)
        .start(drops.clone())
        .unwrap();
    let service = format!("http://{}/thermometer", host.addresses()[0]);
    let contact = Contact::parse(&service, 0).unwrap();
    let limits = ClientLimits {
        local_address: Some("127.0.4.4".parse().unwrap()),
        ..ClientLimits::default()
    };
    let asker = Client::new(limits);
    for elsewhere in [
        format!("http://{}/sink", victim.address()),
        "http://169.254.169.254/latest".to_owned(),
        "http://localhost/".to_owned(),
    ] {
        let request = subscribe(&service, &elsewhere);
        let answer = asker
            .exchange_soap(&contact, &request)
            .await
            .unwrap()
            .unwrap();
        assert!(answer.fault().is_some(), "{elsewhere} was granted");
    }
    assert_eq!(drops.total(Hop::Event, "subscription refused"), 3);
    host.notify(REPORT, report(1)).await.unwrap();
    host.stop().await;
    victim.saw_no_connection();
}

/// A forged Bye does not remove a device that still listens.
#[tokio::test]
async fn a_forged_bye_removes_no_device() {
    let endpoint = endpoint();
    let options = host_options("127.0.4.5");
    let host = thermometer(&endpoint, options)
        .start(Drops::default())
        .unwrap();
    let client = client(client_options());
    described(&client, &endpoint).await;
    let mut discovery = client.listen();
    let mut drops = client.drops().changes();
    let bye = bye_of(&endpoint);
    let socket = multicaster("127.0.4.6");
    socket.send_to(bye.as_bytes(), &group().into()).unwrap();
    let dropped = async {
        while client.drops().total(Hop::Discovery, "bye not believed") == 0 {
            drops.changed().await.unwrap();
        }
    };
    in_time("the drop", dropped).await;
    assert!(
        client
            .known()
            .iter()
            .any(|found| found.endpoint == endpoint)
    );
    let host = Arc::new(host);
    drop(Arc::into_inner(host));
    // The first reported end is the real one.
    let gone = async {
        loop {
            if let Some(Seen::Gone { endpoint: gone, .. }) = discovery.next().await
                && gone == endpoint
            {
                return;
            }
        }
    };
    in_time("gone", gone).await;
}

/// A flood of forged Byes causes one probe of the device, not a flood of connections.
#[tokio::test]
async fn many_forged_byes_are_verified_once() {
    let endpoint = endpoint();
    let host = thermometer(&endpoint, host_options("127.0.4.7"));
    let host = host.start(Drops::default()).unwrap();
    let client = client(client_options());
    described(&client, &endpoint).await;
    let mut drops = client.drops().changes();
    let socket = multicaster("127.0.4.8");
    for _ in 0..50 {
        let bye = bye_of(&endpoint);
        socket.send_to(bye.as_bytes(), &group().into()).unwrap();
    }
    let dropped = async {
        while client.drops().total(Hop::Discovery, "bye not believed") == 0 {
            drops.changed().await.unwrap();
        }
    };
    in_time("the drop", dropped).await;
    assert_eq!(client.drops().total(Hop::Discovery, "bye not believed"), 1);
    assert!(
        client
            .drops()
            .total(Hop::Discovery, "claim not looked into")
            >= 1
    );
    assert!(
        client
            .known()
            .iter()
            .any(|found| found.endpoint == endpoint)
    );
    host.stop().await;
}

/// Forged Hellos, with the device's own address or another one, leave a subscription as it is.
#[tokio::test]
async fn forged_hellos_leave_a_subscription_alone() {
    let victim = Victim::new();
    let endpoint = endpoint();
    let host = thermometer(&endpoint, host_options("127.0.4.10"));
    let host = host.start(Drops::default()).unwrap();
    let client = client(client_options());
    let description = described(&client, &endpoint).await;
    let mut subscription = subscribed(&client, &description.services[0]).await;
    let known = || {
        let mut known = client.known().into_iter();
        known.find(|found| found.endpoint == endpoint).unwrap()
    };
    let before = known();
    let elsewhere = format!("http://{}/device", victim.address());
    let xaddrs = [before.xaddrs[0].clone(), elsewhere];
    let socket = multicaster("127.0.4.11");
    for event in 0..20 {
        for n in 0..10_i64 {
            let hello = hello_of(
                &endpoint,
                &xaddrs[usize::from(n % 2 == 0)],
                10 * event + n + 1,
            );
            socket.send_to(hello.as_bytes(), &group().into()).unwrap();
        }
        host.notify(REPORT, report(event)).await.unwrap();
        // Neither an end nor another subscription in between.
        let delivery = in_time("event", subscription.next()).await.unwrap();
        assert_eq!(number(&delivery), event);
    }
    assert_eq!(known().xaddrs, before.xaddrs);
    victim.saw_no_connection();
    host.stop().await;
}

/// A Hello with the device's own address as its sender, which everybody on the link can forge, does not replace the
/// address at which the device still listens.
#[tokio::test]
async fn a_forged_sender_moves_no_device() {
    let server = stranger(Victim::new().address(), "127.0.4.12:0");
    let client = client(client_options());
    let xaddr = format!("http://{}/", server.local_addr());
    let found = found_at("127.0.4.12:3702", std::slice::from_ref(&xaddr));
    client.learn(found.clone()).await;
    in_time("described", client.describe(&found)).await.unwrap();
    let mut drops = client.drops().changes();
    let hello = hello_of(&found.endpoint, "http://127.0.4.12:9/device", 1);
    let socket = multicaster("127.0.4.12");
    socket.send_to(hello.as_bytes(), &group().into()).unwrap();
    let dropped = async {
        while client.drops().total(Hop::Discovery, "move not believed") == 0 {
            drops.changed().await.unwrap();
        }
    };
    in_time("the drop", dropped).await;
    let known = client.known().into_iter();
    let known = known.filter(|one| one.endpoint == found.endpoint);
    assert_eq!(known.map(|one| one.xaddrs).collect::<Vec<_>>(), [[xaddr]]);
}

/// A page in a browser cannot make its visitor's browser command a device: requests that it may send without
/// preflight are refused.
#[tokio::test]
async fn a_message_not_sent_as_soap_is_refused() {
    let drops = Drops::default();
    let options = host_options("127.0.4.9");
    let host = thermometer(&endpoint(), options)
        .start(drops.clone())
        .unwrap();
    let to = format!("http://{}/thermometer", host.addresses()[0]);
    let contact = Contact::parse(&to, 0).unwrap();
    let asker = Client::default();
    for kind in [Some("text/plain"), Some("text/xml"), None] {
        let mut headers = HeaderMap::new();
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        let body = subscribe(&to, "http://127.0.4.9:9/").to_text().into();
        let answer = asker.request(&contact, Method::POST, headers, body);
        let answer = answer.await.unwrap();
        assert_eq!(
            answer.status,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{kind:?}"
        );
    }
    assert_eq!(drops.total(Hop::Http, "not sent as SOAP"), 3);
    host.stop().await;
}

fn group() -> SocketAddr {
    "239.255.255.250:3702".parse().unwrap()
}

fn multicaster(address: &str) -> socket2::Socket {
    let socket = std::net::UdpSocket::bind((address, 0)).unwrap();
    let socket = socket2::Socket::from(socket);
    socket
        .set_multicast_if_v4(&address.parse().unwrap())
        .unwrap();
    socket
}

fn bye_of(endpoint: &str) -> String {
    announcement("Bye", endpoint, "", 9)
}

fn hello_of(endpoint: &str, xaddr: &str, number: i64) -> String {
    let content = format!("<d:XAddrs>{xaddr}</d:XAddrs><d:MetadataVersion>1</d:MetadataVersion>");
    announcement("Hello", endpoint, &content, number)
}

fn announcement(kind: &str, endpoint: &str, content: &str, number: i64) -> String {
    let dialect = Dialect::V2009;
    let discovery = dialect.discovery();
    let seed = chappe_transport::seed_number().unwrap();
    format!(
        "<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope' \
         xmlns:a='http://www.w3.org/2005/08/addressing' xmlns:d='{discovery}'><s:Header>\
         <a:Action>{discovery}/{kind}</a:Action><a:MessageID>urn:uuid:{seed}</a:MessageID>\
         <a:To>{}</a:To><d:AppSequence InstanceId='4294967295' MessageNumber='{number}'/></s:Header>\
         <s:Body><d:{kind}><a:EndpointReference><a:Address>{endpoint}</a:Address>\
         </a:EndpointReference>{content}</d:{kind}></s:Body></s:Envelope>",
        dialect.multicast_to()
    )
}
