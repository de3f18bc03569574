//! Goal: a device that multicast does not reach is found, described and called through a discovery proxy; clients notice
//! that the proxy is gone and that it is back; subscribers are told of devices that come and leave; a stranger's Bye
//! ends nothing.
//! Method: proxy, device and client in this process on loopback addresses, the client and the proxy without any
//! multicast.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{client, client_options, endpoint, host_options, in_time, thermometer};
use chappe_device::client::{Found, ProxyUse, Search, Seen, Way};
use chappe_device::host::ProxyAddress;
use chappe_device::proxy::ProxyNews;
use chappe_device::tls::{Mutual, Usage};
use chappe_device::{
    ClientOptions, DeviceClient, DeviceHost, DiscoveryProxy, HostOptions, Key, ProxyOptions,
    Selection,
};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::{Content, Message, Target};
use chappe_identity::Contact;
use chappe_soap::EndpointReference;
use chappe_transport::Drops;
use chappe_transport::http::{Client, ClientLimits};

/// Pause between two looks at a state; reason: the limit is that of `in_time`.
const POLL: Duration = Duration::from_millis(20);

fn proxy_at(listen: SocketAddr) -> DiscoveryProxy {
    let options = ProxyOptions {
        selection: Selection::Nowhere,
        listen: Some(listen),
        ..ProxyOptions::new(endpoint())
    };
    DiscoveryProxy::start(options, Drops::default()).unwrap()
}

fn contact_of(proxy: &DiscoveryProxy) -> Contact {
    let address = proxy.address().unwrap();
    Contact::parse(&format!("http://{address}/"), 0).unwrap()
}

fn registered_at(proxy: &Contact, address: &str, dialects: &[Dialect]) -> DeviceHost {
    let options = HostOptions {
        proxies: vec![ProxyAddress::Http(proxy.clone())],
        dialects: dialects.to_vec(),
        ..host_options(address)
    };
    thermometer(&endpoint(), options)
        .start(Drops::default())
        .unwrap()
}

fn client_of(proxy: &Contact) -> DeviceClient {
    client(ClientOptions {
        selection: Selection::Nowhere,
        proxies: vec![proxy.clone()],
        ..client_options()
    })
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let polling = async {
        while !is_so() {
            tokio::time::sleep(POLL).await;
        }
    };
    in_time(what, polling).await;
}

fn use_of(client: &DeviceClient) -> ProxyUse {
    client.proxies()[0].clone()
}

/// The device as the proxy names it.
async fn found(client: &DeviceClient, endpoint: &str) -> Found {
    let known = || {
        let mut known = client.known().into_iter();
        known.find(|found| found.endpoint == endpoint)
    };
    until("found", || known().is_some()).await;
    known().unwrap()
}

#[tokio::test]
async fn a_device_is_used_through_a_proxy_that_dies_and_returns() {
    let proxy = proxy_at("127.0.0.1:0".parse().unwrap());
    let contact = contact_of(&proxy);
    let host = registered_at(&contact, "127.0.8.1", &Dialect::ALL);
    until("registered", || proxy.state().devices == 1).await;
    let client = client_of(&contact);
    let mut seen = client.discover().await.unwrap();
    let found = found(&client, host.endpoint()).await;
    assert_eq!(found.way, Way::Proxy);
    let description = in_time("described", client.describe(&found)).await.unwrap();
    assert_eq!(description.found.endpoint, host.endpoint());
    let search = Search {
        types: vec![Dialect::V2005.device_type()],
        ..Search::default()
    };
    let number = client.search(&search).await.unwrap();
    loop {
        match in_time("matched", seen.next()).await.unwrap() {
            Seen::Match { id, endpoint } if id == number => {
                assert_eq!(endpoint, host.endpoint());
                break;
            }
            _ => {}
        }
    }
    until("used", || use_of(&client).answers).await;
    drop(proxy);
    until("gone", || !use_of(&client).answers).await;
    // At the same address, without a memory: the device registers again.
    let again = in_time("listening again", async {
        loop {
            let options = ProxyOptions {
                selection: Selection::Nowhere,
                listen: Some(contact.address),
                ..ProxyOptions::new(endpoint())
            };
            match DiscoveryProxy::start(options, Drops::default()) {
                Ok(proxy) => break proxy,
                // Its former connections may still close.
                Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    })
    .await;
    until("back", || use_of(&client).answers).await;
    until("registered again", || again.state().devices == 1).await;
    client.close().await;
    host.stop().await;
    until("gone with its Bye", || again.state().devices == 0).await;
}

#[tokio::test]
async fn a_strangers_bye_is_news_and_ends_nothing() {
    let proxy = proxy_at("127.0.0.1:0".parse().unwrap());
    let contact = contact_of(&proxy);
    let mut news = proxy.news();
    let host = registered_at(&contact, "127.0.8.2", &[Dialect::V2009]);
    let registered = in_time("news", news.recv()).await.unwrap();
    let ProxyNews::Registered(found) = registered else {
        panic!("{registered:?}");
    };
    assert_eq!(found.endpoint, host.endpoint());
    let bye = Message {
        dialect: Dialect::V2009,
        message_id: "urn:m:1".into(),
        relates_to: None,
        to: None,
        reply_to: None,
        sequence: None,
        content: Content::Bye(Target {
            endpoint: EndpointReference::new(host.endpoint().to_owned()),
            ..Target::default()
        }),
    };
    let stranger = Client::new(ClientLimits {
        local_address: Some("127.0.8.66".parse().unwrap()),
        ..ClientLimits::default()
    });
    let bye = bye.to_envelope(&[]);
    let posted = stranger.post_soap(&contact, &bye);
    in_time("refused", posted).await.unwrap_err();
    let told = in_time("news", news.recv()).await.unwrap();
    assert!(matches!(told, ProxyNews::Bye { .. }), "{told:?}");
    assert_eq!(proxy.state().devices, 1);
    host.stop().await;
    until("gone", || proxy.state().devices == 0).await;
    proxy.stop().await;
}

/// The form of IHE SDPi: all messages by HTTPS, certificates at both ends, presence by WS-Eventing.
#[tokio::test]
async fn devices_register_by_https_and_a_certified_proxy_is_asked() {
    let seed = || chappe_transport::seed().unwrap();
    let keys = [(); 3].map(|()| Key::from(chappe_identity::Key::from_seed(seed())));
    // The device's certificate names its endpoint.
    let named = keys[1].endpoint().to_owned();
    let [of_proxy, of_device, of_client] = keys.map(|key| key.tls(&[]));
    let trusted: Vec<_> = [&of_proxy, &of_device, &of_client]
        .iter()
        .filter_map(|one| one.fingerprint())
        .collect();
    let [of_proxy, of_device, of_client] =
        [of_proxy, of_device, of_client].map(|one| one.trust(trusted.clone()));
    let options = ProxyOptions {
        selection: Selection::Nowhere,
        listen: Some("127.0.0.1:0".parse().unwrap()),
        tls: Some(of_proxy.security()),
        plain: false,
        ..ProxyOptions::new(endpoint())
    };
    let proxy = DiscoveryProxy::start(options, Drops::default()).unwrap();
    let url = format!("https://{}/", proxy.address().unwrap());
    let contact = Contact::parse(&url, 0).unwrap();
    let options = HostOptions {
        proxies: vec![ProxyAddress::Http(contact.clone())],
        tls: Some(of_device.security()),
        ..host_options("127.0.8.3")
    };
    let host = thermometer(&named, options);
    let host = host.start(Drops::default()).unwrap();
    until("registered", || proxy.state().devices == 1).await;
    let client = client(ClientOptions {
        selection: Selection::Nowhere,
        proxies: vec![contact],
        tls: Some(of_client.security()),
        plain: false,
        ..client_options()
    });
    let found = found(&client, host.endpoint()).await;
    assert!(found.xaddrs[0].starts_with("https://"), "{found:?}");
    in_time("described", client.describe(&found)).await.unwrap();
    client.close().await;
    host.stop().await;
}

/// How a client uses a proxy that announces itself, and shows a certificate for the usage or not.
async fn heard(address: &str, usage: &Usage, is_shown: bool, is_asked: bool) -> (ProxyUse, Drops) {
    let seed = || chappe_transport::seed().unwrap();
    let keys = [(); 2].map(|()| Key::from(chappe_identity::Key::from_seed(seed())));
    let [of_proxy, of_client] = keys;
    let of_proxy = of_proxy.tls(match is_shown {
        true => std::slice::from_ref(usage),
        false => &[],
    });
    let of_client = of_client.tls(&[]);
    let pinned = |one: &Mutual| one.fingerprint().into_iter().collect();
    let of_client = of_client
        .trust(pinned(&of_proxy))
        .proxy_usages(match is_asked {
            true => vec![usage.clone()],
            false => Vec::new(),
        });
    let of_proxy = of_proxy.trust(pinned(&of_client));
    let drops = Drops::default();
    let options = ClientOptions {
        tls: Some(of_client.security()),
        ..client_options()
    };
    let client = DeviceClient::start(options, drops.clone()).unwrap();
    let options = ProxyOptions {
        selection: Selection::Addresses(vec![address.parse().unwrap()]),
        listen: Some(format!("{address}:0").parse().unwrap()),
        tls: Some(of_proxy.security()),
        plain: false,
        ..ProxyOptions::new(endpoint())
    };
    let proxy = DiscoveryProxy::start(options, Drops::default()).unwrap();
    let at = proxy.address().unwrap();
    let one = || {
        let mut all = client.proxies().into_iter();
        all.find(|one| one.contact.address == at)
    };
    until("heard", || one().is_some_and(|one| one.answers)).await;
    let refused = || {
        drops
            .entries()
            .iter()
            .any(|drop| drop.detail.contains("usage"))
    };
    until("judged", || {
        !is_asked || refused() || one().is_some_and(|one| one.is_trusted)
    })
    .await;
    let one = one().unwrap();
    client.close().await;
    proxy.stop().await;
    (one, drops)
}

#[tokio::test]
async fn a_proxy_that_announces_itself_is_trusted_only_by_the_usage_of_its_certificate() {
    // Of the numbers for documentation (RFC 5612).
    let usage: Usage = "1.3.6.1.4.1.32473.1".parse().unwrap();
    for (address, is_shown, is_asked) in [
        ("127.0.8.4", true, true),
        ("127.0.8.5", false, true),
        ("127.0.8.6", true, false),
    ] {
        let (one, drops) = heard(address, &usage, is_shown, is_asked).await;
        let is_trusted = is_shown && is_asked;
        let got = (one.is_trusted, one.is_certified);
        assert_eq!(
            got,
            (is_trusted, is_trusted),
            "{address}: {:?}",
            drops.entries()
        );
    }
}
