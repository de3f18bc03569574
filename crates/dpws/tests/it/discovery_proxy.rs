//! Goal: a discovery proxy answers for those that registered, believes nobody about what another sender
//! registered, and amplifies nothing.
//!
//! Method: messages as datagrams and as requests by HTTP to the real machine, on virtual time; a seeded crowd of
//! liars against a model that knows who registered first.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::network::{host, interface, sender_host_only};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::proxy::{AMPLIFICATION_MAX, Command, Config, Event, Request};
use chappe_dpws::discovery::{
    AppSequence, Content, DropReason, Inbound, Message, Outbound, Probe, Proxy, Target,
};
use chappe_dpws::exchange::Reply;
use chappe_machine::{Harness, Input, Output};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Name, Str};

const OWN: &str = "urn:uuid:00000000-0000-4000-8000-000000000001";
const XADDR: &str = "http://192.0.2.200:8474/";

/// A proxy with the messages that it got.
struct Site {
    proxy: Harness<Proxy>,
    messages: u64,
}

type Outputs = Vec<Output<Outbound, Event>>;

impl Site {
    fn new(configure: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(OWN, 1, 7);
        let address = "192.0.2.200".parse().expect("an address");
        config.interfaces = vec![(interface(1, address), vec![XADDR.into()])];
        config.app_max_delay = Duration::ZERO;
        configure(&mut config);
        let proxy = Harness::new(Proxy::new(config, sender_host_only), 7);
        let mut site = Self { proxy, messages: 0 };
        let outputs = site.input(Input::Command(Command::Start));
        assert!(matches!(&outputs[0], Output::Transmit(hello) if hello.to.ip().is_multicast()));
        // The copies of its Hello.
        site.pass(Duration::from_secs(2));
        site
    }

    fn input(&mut self, input: Input<Inbound, Command>) -> Outputs {
        let outputs = self.proxy.input(input);
        outputs.unwrap_or_else(|violation| panic!("{violation}"))
    }

    fn pass(&mut self, time: Duration) -> Outputs {
        let outputs = self.proxy.advance(time);
        outputs.unwrap_or_else(|violation| panic!("{violation}"))
    }

    fn message(&mut self, dialect: Dialect, content: Content) -> Message {
        self.messages += 1;
        Message {
            dialect,
            message_id: format!("urn:m:{}", self.messages).into(),
            relates_to: None,
            to: Some(dialect.multicast_to().into()),
            reply_to: None,
            sequence: None,
            content,
        }
    }

    fn datagram(&mut self, from: SocketAddr, multicast: bool, content: Content) -> Outputs {
        let message = self.message(Dialect::V2009, content);
        let bytes = message.to_envelope(&[]).to_text().into_bytes();
        self.input(Input::Receive(Inbound {
            from,
            interface: 1,
            multicast,
            bytes,
        }))
    }

    /// The reply by HTTP.
    fn post(&mut self, from: SocketAddr, sender: Option<&str>, message: &Message) -> Reply {
        let request = Request {
            token: 5,
            from,
            sender: sender.map(|sender| sender.to_owned().into()),
            envelope: on_the_wire(&message.to_envelope(&[])),
        };
        let outputs = self.input(Input::Command(Command::Request(Box::new(request))));
        let reply = outputs.into_iter().find_map(|output| match output {
            Output::Event(Event::Reply { token: 5, reply }) => Some(reply),
            _ => None,
        });
        reply.expect("each request has a reply")
    }

    fn hello(&mut self, from: SocketAddr, endpoint: &str) -> Reply {
        let message = self.message(Dialect::V2009, Content::Hello(target(endpoint, from)));
        self.post(from, None, &message)
    }

    fn bye(&mut self, from: SocketAddr, sender: Option<&str>, endpoint: &str) -> Reply {
        let message = self.message(Dialect::V2009, Content::Bye(only(endpoint)));
        self.post(from, sender, &message)
    }

    fn matches(&mut self, dialect: Dialect, probe: Probe) -> Vec<Target> {
        let message = self.message(dialect, Content::Probe(probe));
        let reply = self.post(host(77), None, &message);
        let envelope = on_the_wire(reply.envelope().expect("a message"));
        let answer = Message::from_envelope(&envelope).expect("an answer");
        assert_eq!(answer.relates_to, Some(message.message_id));
        match answer.content {
            Content::ProbeMatches(targets) => targets,
            other => panic!("{other:?}"),
        }
    }

    fn offered(&mut self) -> Vec<Str> {
        let all = self.matches(Dialect::V2009, Probe::default());
        let endpoints = all.into_iter().map(|target| target.endpoint.address);
        endpoints.collect()
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.proxy.machine().drops().count(reason)
    }
}

/// The message as the other side reads it.
fn on_the_wire(envelope: &Envelope) -> Envelope {
    Envelope::parse(envelope.to_text().as_bytes()).expect("an envelope")
}

fn only(endpoint: &str) -> Target {
    Target {
        endpoint: EndpointReference::new(endpoint.to_owned()),
        ..Target::default()
    }
}

fn target(endpoint: &str, at: SocketAddr) -> Target {
    Target {
        types: vec![Dialect::V2009.device_type()],
        xaddrs: vec![format!("http://{}:5357/device", at.ip()).into()],
        metadata_version: 1,
        ..only(endpoint)
    }
}

fn sent(outputs: &Outputs) -> Vec<(SocketAddr, Message, usize)> {
    let datagrams = outputs.iter().filter_map(|output| match output {
        Output::Transmit(datagram) => Some(datagram),
        Output::Event(_) => None,
    });
    let read = |datagram: &Outbound| {
        let envelope = Envelope::parse(&datagram.bytes).expect("an envelope");
        let message = Message::from_envelope(&envelope).expect("a message");
        (datagram.to, message, datagram.bytes.len())
    };
    datagrams.map(read).collect()
}

#[test]
fn devices_register_by_http_and_udp_and_are_found_in_their_dialect() {
    let mut site = Site::new(|_| {});
    assert_eq!(site.hello(host(1), "urn:a").status, 202);
    site.datagram(host(2), false, Content::Hello(target("urn:b", host(2))));
    let old = Target {
        types: vec![Dialect::V2005.device_type()],
        ..target("urn:old", host(3))
    };
    let hello = site.message(Dialect::V2005, Content::Hello(old));
    assert_eq!(site.post(host(3), None, &hello).status, 202);
    assert_eq!(site.offered(), ["urn:a", "urn:b"]);
    let in_2005 = site.matches(Dialect::V2005, Probe::default());
    assert_eq!(in_2005.len(), 1);
    assert_eq!(in_2005[0].endpoint.address, "urn:old");
    let cameras = Probe {
        types: vec![Name::new("http://example.org", "Camera")],
        ..Probe::default()
    };
    assert_eq!(site.matches(Dialect::V2009, cameras), []);
    let proxies = Probe {
        types: vec![Dialect::V2005.proxy_type()],
        ..Probe::default()
    };
    let own = site.matches(Dialect::V2005, proxies);
    assert_eq!(
        (&*own[0].endpoint.address, &*own[0].xaddrs[0]),
        (OWN, XADDR)
    );
}

#[test]
fn resolve_is_answered_also_for_the_unknown() {
    let mut site = Site::new(|_| {});
    site.hello(host(1), "urn:a");
    for (endpoint, is_known) in [("urn:a", true), ("urn:nobody", false)] {
        let resolve = Content::Resolve(EndpointReference::new(endpoint));
        let message = site.message(Dialect::V2009, resolve.clone());
        let reply = site.post(host(9), None, &message);
        let answer = Message::from_envelope(&on_the_wire(reply.envelope().expect("a message")));
        let Ok(Message {
            content: Content::ResolveMatches(found),
            ..
        }) = answer
        else {
            panic!("{answer:?}");
        };
        assert_eq!(found.is_some(), is_known);
        let by_udp = sent(&site.datagram(host(9), false, resolve));
        let Content::ResolveMatches(found) = &by_udp[0].1.content else {
            panic!("{by_udp:?}");
        };
        assert_eq!(found.is_some(), is_known);
    }
}

#[test]
fn multicast_is_answered_with_the_proxys_hello_and_nothing_is_amplified() {
    let mut site = Site::new(|_| {});
    for number in 0..60 {
        site.hello(host(1), &format!("urn:device:{number}"));
    }
    let resolve = Content::Resolve(EndpointReference::new("urn:device:1"));
    for (multicast, content, is_hello) in [
        (true, Content::Probe(Probe::default()), true),
        (true, resolve.clone(), true),
        (false, resolve, false),
        // The matches do not fit into a datagram: they are to be had at the proxy's address.
        (false, Content::Probe(Probe::default()), true),
    ] {
        let asked = site.message(Dialect::V2009, content.clone());
        let size = asked.to_envelope(&[]).to_text().len();
        let mut outputs = site.datagram(host(9), multicast, content);
        outputs.extend(site.pass(Duration::from_secs(2)));
        let answers = sent(&outputs);
        let bytes: usize = answers.iter().map(|(_, _, bytes)| bytes).sum();
        assert!(!answers.is_empty() && bytes <= AMPLIFICATION_MAX * (size + 8));
        for (to, answer, _) in &answers {
            assert_eq!(*to, host(9));
            assert!(answer.relates_to.is_some());
            let Content::Hello(own) = &answer.content else {
                assert!(!is_hello, "{answer:?}");
                continue;
            };
            assert!(is_hello);
            assert_eq!(own.types, [Dialect::V2009.proxy_type()]);
            assert_eq!(own.xaddrs, [XADDR]);
        }
    }
}

/// Answers of 37 MB to requests of 600 bytes would fill the memory of a proxy whose clients do not read.
#[test]
fn matches_that_are_too_long_are_never_written() {
    let mut site = Site::new(|_| {});
    let scoped = |number: usize, scope: &str| Target {
        scopes: vec![scope.to_owned().into(); 4],
        ..target(&format!("urn:device:{number:04}"), host(66))
    };
    // Each `&` is written as five bytes: 210 devices fit into 4 MiB, 1,000 do not.
    let scope = "&".repeat(900);
    for (devices, fits) in [(210, true), (1_000, false)] {
        for number in 0..devices {
            let message = site.message(Dialect::V2009, Content::Hello(scoped(number, &scope)));
            assert_eq!(site.post(host(66), None, &message).status, 202);
        }
        let message = site.message(Dialect::V2009, Content::Probe(Probe::default()));
        let reply = site.post(host(9), None, &message);
        let envelope = reply.envelope().expect("a message");
        if fits {
            let bytes = envelope.to_text().len();
            assert!((3_800_000..4 << 20).contains(&bytes), "{bytes}");
            assert_eq!(
                envelope.body().expect("matches").elements().count(),
                devices
            );
            continue;
        }
        assert_eq!(reply.status, 400);
        let fault = envelope.fault().expect("a fault").to_string();
        assert!(fault.contains("ask for types or scopes"), "{fault}");
        assert_eq!(site.drops(DropReason::TooLarge), 1);
    }
    // A datagram gets the proxy's Hello, and the proxy has written nothing else for it: answers are numbered.
    let number = |answers: &[(SocketAddr, Message, usize)]| {
        let sequence = answers[0].1.sequence.as_ref().expect("a sequence");
        sequence.message_number
    };
    let mut asked = |content| sent(&site.datagram(host(9), false, content));
    let before = asked(Content::Resolve(EndpointReference::new("urn:nobody")));
    let after = asked(Content::Probe(Probe::default()));
    assert!(matches!(after[0].1.content, Content::Hello(_)));
    assert_eq!(number(&after), number(&before) + 1);
}

#[test]
fn a_dropped_search_for_the_proxy_itself_is_counted() {
    let mut site = Site::new(|_| {});
    let proxies = Probe {
        types: vec![Dialect::V2009.proxy_type()],
        ..Probe::default()
    };
    for (reply_to, answers, dropped) in [(None, 1, 0), (Some("http://192.0.2.66/"), 0, 1)] {
        let mut message = site.message(Dialect::V2009, Content::Probe(proxies.clone()));
        message.reply_to = reply_to.map(Into::into);
        let outputs = site.input(Input::Receive(Inbound {
            from: host(9),
            interface: 1,
            multicast: false,
            bytes: message.to_envelope(&[]).to_text().into_bytes(),
        }));
        assert_eq!(sent(&outputs).len(), answers);
        assert_eq!(site.drops(DropReason::ReplyElsewhere), dropped);
    }
}

#[test]
fn nobody_removes_or_redirects_what_another_registered() {
    let mut site = Site::new(|_| {});
    site.hello(host(1), "urn:a");
    // Another host claims it, at its own address, by HTTP and by UDP.
    assert_eq!(site.hello(host(66), "urn:a").status, 400);
    site.datagram(host(66), false, Content::Hello(target("urn:a", host(66))));
    // A device cannot register another host's address.
    let elsewhere = Content::Hello(target("urn:b", host(1)));
    let message = site.message(Dialect::V2009, elsewhere);
    assert_eq!(site.post(host(66), None, &message).status, 400);
    // Bye of a stranger, and with a forged sender.
    assert_eq!(site.bye(host(66), None, "urn:a").status, 400);
    let forged = site.datagram(host(1), false, Content::Bye(only("urn:a")));
    let is_hint = |output: &Output<_, Event>| matches!(output, Output::Event(Event::ByeHint { endpoint, .. }) if endpoint == "urn:a");
    assert!(forged.iter().any(is_hint), "the application may look");
    assert_eq!(site.offered(), ["urn:a"]);
    let offered = site.proxy.machine().offered("urn:a").cloned();
    assert_eq!(offered.expect("offered").xaddrs, target("", host(1)).xaddrs);
    assert_eq!(site.drops(DropReason::HeldByOther), 3);
    assert_eq!(site.drops(DropReason::AddressRefused), 1);
    // Its own Bye over a connection.
    assert_eq!(site.bye(host(1), None, "urn:a").status, 202);
    assert!(site.offered().is_empty());
}

#[test]
fn confirmed_and_authenticated_entries_resist_forgery() {
    let mut site = Site::new(|_| {});
    let learned = Command::Learn {
        target: target("urn:a", host(1)),
        dialect: Dialect::V2009,
        from: host(1),
    };
    site.input(Input::Command(learned));
    // A forged datagram of its own host changes nothing; neither does another process there end it.
    let moved = Target {
        xaddrs: vec![format!("http://{}:6666/", host(1).ip()).into()],
        ..target("urn:a", host(1))
    };
    site.datagram(host(1), false, Content::Hello(moved));
    assert_eq!(site.bye(host(1), None, "urn:a").status, 202);
    let offered = site.proxy.machine().offered("urn:a").cloned();
    assert_eq!(offered.expect("offered").xaddrs, target("", host(1)).xaddrs);
    // Who is authenticated takes over what nobody has confirmed, and keeps it.
    site.hello(host(66), "urn:b");
    let hello = site.message(Dialect::V2009, Content::Hello(target("urn:b", host(2))));
    assert_eq!(site.post(host(2), Some("device b"), &hello).status, 202);
    assert_eq!(site.hello(host(66), "urn:b").status, 400);
    assert_eq!(site.bye(host(2), None, "urn:b").status, 400);
    // It is the account's still when the application has reached it.
    site.input(Input::Command(Command::Learn {
        target: target("urn:b", host(2)),
        dialect: Dialect::V2009,
        from: host(2),
    }));
    assert_eq!(site.hello(host(2), "urn:b").status, 400);
    assert_eq!(site.bye(host(2), Some("device c"), "urn:b").status, 400);
    assert_eq!(site.bye(host(9), Some("device c"), "urn:b").status, 400);
    assert_eq!(site.bye(host(9), Some("device b"), "urn:b").status, 202);
    assert_eq!(site.offered(), ["urn:a"]);
    site.input(Input::Command(Command::Unlearn {
        endpoint: "urn:a".into(),
    }));
    assert!(site.offered().is_empty());
}

#[test]
fn entries_end_and_no_sender_has_more_than_its_share() {
    let mut site = Site::new(|config| {
        (config.entries_max, config.source_max, config.source_share) = (8, 8, 4);
    });
    site.hello(host(1), "urn:kept");
    for number in 0..100 {
        site.hello(host(66), &format!("urn:flood:{number}"));
    }
    let offered = site.offered();
    assert!(offered.contains(&"urn:kept".into()) && offered.len() == 5);
    // Renewed by half of the lifetime, it lives on; the others end.
    site.pass(Duration::from_secs(400));
    site.hello(host(1), "urn:kept");
    site.pass(Duration::from_secs(400));
    assert_eq!(site.offered(), ["urn:kept"]);
    let outputs = site.pass(Duration::from_secs(400));
    let is_absent = |output: &Output<_, Event>| matches!(output, Output::Event(Event::Absent { endpoint, .. }) if endpoint == "urn:kept");
    assert!(outputs.iter().any(is_absent));
    assert_eq!(site.proxy.machine().entries(), 0);
}

#[test]
fn unusable_messages_get_faults() {
    let mut site = Site::new(|_| {});
    let unknown_rule = Content::Probe(Probe {
        match_by: Some("urn:rule".into()),
        ..Probe::default()
    });
    let answers = Content::ProbeMatches(Vec::new());
    let own = Content::Hello(target(OWN, host(1)));
    for content in [unknown_rule, answers, own] {
        let message = site.message(Dialect::V2009, content);
        let reply = site.post(host(1), None, &message);
        assert_eq!(reply.status, 400);
        let envelope = reply.envelope().expect("a fault");
        assert!(envelope.fault().is_some());
        assert_eq!(envelope.addressing.relates_to, Some(message.message_id));
    }
    let mut late = site.message(Dialect::V2009, Content::Hello(target("urn:a", host(1))));
    let sequence = |message_number| {
        Some(AppSequence {
            instance_id: 5,
            sequence_id: None,
            message_number,
        })
    };
    late.sequence = sequence(9);
    site.post(host(1), None, &late);
    let mut early = site.message(Dialect::V2009, Content::Bye(only("urn:a")));
    early.sequence = sequence(8);
    assert_eq!(site.post(host(1), None, &early).status, 202);
    assert_eq!(site.offered(), ["urn:a"], "an old Bye that came late");
}

/// Liars claim, change and end what others have; who came first keeps it while it is renewed.
#[test]
fn a_crowd_of_liars_changes_nothing() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut site = Site::new(|config| config.seed = seed);
        let mut holders: BTreeMap<String, SocketAddr> = BTreeMap::new();
        for _ in 0..200 {
            let endpoint = format!("urn:device:{}", random.u8(0..10));
            let (from, by_udp) = (host(random.u8(1..6)), random.bool());
            let is_bye = random.u8(0..3) == 0;
            let content = match is_bye {
                true => Content::Bye(only(&endpoint)),
                false => Content::Hello(target(&endpoint, from)),
            };
            match by_udp {
                true => {
                    site.datagram(from, random.bool(), content);
                }
                false => {
                    let message = site.message(Dialect::V2009, content);
                    site.post(from, None, &message);
                }
            }
            let holder = holders.get(&endpoint);
            match (holder, is_bye) {
                (None, false) => {
                    holders.insert(endpoint, from);
                }
                (Some(holder), true) if *holder == from && !by_udp => {
                    holders.remove(&endpoint);
                }
                _ => {}
            }
            site.pass(Duration::from_secs(1));
        }
        let expected: Vec<String> = holders.keys().cloned().collect();
        assert_eq!(site.offered(), expected, "seed {seed}");
        for (endpoint, holder) in &holders {
            let offered = site.proxy.machine().offered(endpoint).expect("offered");
            assert_eq!(offered.xaddrs, target("", *holder).xaddrs, "seed {seed}");
        }
    }
}
