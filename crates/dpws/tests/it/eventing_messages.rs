//! Goal: WS-Eventing messages round-trip, faults have their codes, and no XML tree causes a panic.
//! Method: generated values in a whole envelope as text, in both dialects; arbitrary trees.

use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::{
    Lease, Subscribe, SubscribeResponse, SubscriptionEnd, filter_dialect,
};
use chappe_dpws::eventing::{
    EndStatus, EventingFault, Expiration, Filter, TreeOffer, TreePeer, TreeSink,
};
use chappe_dpws::exchange::{fault_action, request};
use chappe_soap::{EndpointReference, Envelope, FaultCode};
use chappe_xml::{Element, Name};
use proptest::prelude::*;

const EVENTING: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing";

fn dialect() -> impl Strategy<Value = Dialect> {
    proptest::sample::select(Dialect::ALL.to_vec())
}

fn endpoint() -> impl Strategy<Value = EndpointReference> {
    "http://h/[a-z]{1,6}".prop_map(EndpointReference::new)
}

fn expiration() -> impl Strategy<Value = Expiration> {
    prop_oneof![
        (1_u64..1 << 60).prop_map(|nanos| Expiration::After(Duration::from_nanos(nanos))),
        any::<i64>().prop_map(Expiration::At),
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    let actions = proptest::collection::vec("urn:[a-z]{1,5}", 0..4);
    (proptest::option::of("urn:[a-z]{1,5}"), actions).prop_map(|(dialect, actions)| Filter {
        dialect: dialect.map(Into::into),
        actions: actions.into_iter().map(Into::into).collect(),
    })
}

/// The child of the body after a round trip through text.
fn wire(dialect: Dialect, body: Element) -> Element {
    let to = EndpointReference::new("http://h/");
    let envelope = request(dialect.addressing(), &to, "urn:x", "urn:uuid:1").with_body(body);
    let mut read = Envelope::parse(envelope.to_text().as_bytes()).unwrap();
    read.body.remove(0)
}

fn any_tree() -> impl Strategy<Value = Element> {
    let locals = vec![
        "Subscribe",
        "SubscribeResponse",
        "SubscriptionEnd",
        "Renew",
        "Delivery",
        "NotifyTo",
        "EndTo",
        "Expires",
        "Filter",
        "Status",
        "SubscriptionManager",
        "Address",
        "Reason",
    ];
    let spaces = vec![EVENTING, "http://www.w3.org/2005/08/addressing"];
    let node = (
        proptest::sample::select(spaces),
        proptest::sample::select(locals),
        proptest::sample::select(vec![
            "",
            "PT1S",
            "-PT1S",
            "P",
            "2026-01-01T00:00:00Z",
            "x y",
        ]),
    )
        .prop_map(|(space, local, text)| Element::new(Name::new(space, local)).with_text(text));
    node.clone().prop_recursive(4, 32, 5, move |inner| {
        let children = proptest::collection::vec(inner, 0..5);
        (node.clone(), children).prop_map(|(element, children)| element.with_children(children))
    })
}

fn peer() -> impl Strategy<Value = TreePeer> {
    let ip = any::<[u8; 4]>();
    (any::<[u8; 32]>(), ip, 1_u16..).prop_map(|(key, ip, port)| TreePeer {
        key,
        address: (ip, port).into(),
    })
}

proptest! {
    #[test]
    fn subscribe_round_trips(
        dialect in dialect(),
        end_to in proptest::option::of(endpoint()),
        mode in proptest::option::of("urn:[a-z]{1,5}"),
        notify_to in proptest::option::of(endpoint()),
        expires in proptest::option::of(expiration()),
        filter in proptest::option::of(filter()),
        peer in proptest::option::of(peer()),
        criticality: u8,
    ) {
        let mode = mode.map(Into::into);
        let tree = Ok(peer.map(|peer| TreeSink { peer, criticality }));
        let message = Subscribe { end_to, mode, notify_to, expires, filter, tree };
        let version = dialect.addressing();
        let body = wire(dialect, message.to_element(version));
        prop_assert_eq!(Subscribe::from_element(version, &body), Ok(message));
    }

    #[test]
    fn answers_and_ends_round_trip(
        dialect in dialect(), manager in endpoint(), expires in expiration(),
        status in 0_usize..4, reason in proptest::option::of("[a-z]{1,9}"),
        peer in proptest::option::of(peer()),
    ) {
        let version = dialect.addressing();
        let tree = peer.map(|source| TreeOffer { source, members: "http://h/tree".into() });
        let message = SubscribeResponse { manager: manager.clone(), expires, tree };
        let body = wire(dialect, message.to_element(version));
        prop_assert_eq!(SubscribeResponse::from_element(version, &body), Ok(message));
        for lease in [Lease::Renew, Lease::RenewResponse, Lease::GetStatus, Lease::Unsubscribe] {
            let body = wire(dialect, lease.to_element(Some(expires)));
            prop_assert_eq!(lease.from_element(&body), Ok(Some(expires)));
            prop_assert!(Lease::GetStatusResponse.from_element(&body).is_err());
        }
        let statuses = [
            EndStatus::DeliveryFailure, EndStatus::SourceShuttingDown, EndStatus::SourceCancelling,
            EndStatus::Other("urn:tired".into()),
        ];
        let status = statuses[status].clone();
        let message =
            SubscriptionEnd { manager: Some(manager), status, reason: reason.map(Into::into) };
        let body = wire(dialect, message.to_element(version));
        prop_assert_eq!(SubscriptionEnd::from_element(version, &body), Ok(message));
    }

    #[test]
    fn no_tree_causes_a_panic(tree in any_tree()) {
        for dialect in Dialect::ALL {
            let version = dialect.addressing();
            let mut root = tree.clone();
            let _ = Subscribe::from_element(version, &root);
            root.name = Name::new(EVENTING, "Subscribe");
            let _ = Subscribe::from_element(version, &root);
            root.name = Name::new(EVENTING, "SubscribeResponse");
            let _ = SubscribeResponse::from_element(version, &root);
            root.name = Name::new(EVENTING, "SubscriptionEnd");
            let _ = SubscriptionEnd::from_element(version, &root);
            root.name = Name::new(EVENTING, "Renew");
            let _ = Lease::Renew.from_element(&root);
        }
    }
}

#[test]
fn faults_have_their_codes_and_actions() {
    use EventingFault as F;
    let version = Dialect::V2009.addressing();
    let eventing = format!("{EVENTING}/fault");
    let dpws = "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/fault";
    for (fault, code, action) in [
        (
            F::DeliveryModeRequestedUnavailable,
            FaultCode::Sender,
            &*eventing,
        ),
        (
            F::FilteringRequestedUnavailable,
            FaultCode::Sender,
            &eventing,
        ),
        (F::FilterActionNotSupported, FaultCode::Sender, dpws),
        (F::InvalidExpirationTime, FaultCode::Sender, &eventing),
        (F::UnsupportedExpirationType, FaultCode::Sender, &eventing),
        (
            F::EventSourceUnableToProcess("x".into()),
            FaultCode::Receiver,
            &eventing,
        ),
        (F::UnableToRenew("x".into()), FaultCode::Receiver, &eventing),
        (F::InvalidMessage("x".into()), FaultCode::Sender, &eventing),
        (
            F::DestinationUnreachable("x".into()),
            FaultCode::Sender,
            version.fault_action(),
        ),
    ] {
        let written = fault.to_fault(version);
        assert_eq!(written.code, code, "{fault}");
        assert_eq!(fault_action(version, &written), action, "{fault}");
        let read = F::from_fault(&written).unwrap();
        assert_eq!(
            std::mem::discriminant(&read),
            std::mem::discriminant(&fault)
        );
    }
}

#[test]
fn expirations_are_bounded_and_filters_exact() {
    for text in ["", "PT0S", "-PT1S", "soon", "P1000Y"] {
        assert!(Expiration::parse(text).is_err(), "{text}");
    }
    let filter = Filter {
        dialect: Some(filter_dialect(Dialect::V2005)),
        actions: vec!["urn:x/A".into()],
    };
    assert!(filter.is_by_actions());
    assert!(filter.matches("urn:x/A"));
    assert!(!filter.matches("urn:x/a") && !filter.matches("urn:x/A/B"));
    // A status without namespace, as some devices send it.
    assert_eq!(
        EndStatus::from_uri("SourceShuttingDown"),
        EndStatus::SourceShuttingDown
    );
}
