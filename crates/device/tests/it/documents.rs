//! Goal: the documents of an untrusted device cost a bounded amount of memory and time; the device is then
//! described without them, or fails with the reason.
//!
//! Method: devices on the loopback whose only service returns inline WSDL, or nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use chappe_device::client::{Description, Found, Way};
use chappe_dpws::Dialect;
use chappe_dpws::metadata::{
    Host, Hosted, Metadata, Relationship, ThisDevice, ThisModel, WsdlSection, transfer_get_response,
};
use chappe_soap::{EndpointReference, Envelope};
use chappe_transport::Drops;
use chappe_transport::http::{Request, Response, Server, ServerLimits};
use chappe_xml::{Element, Name};

/// A WSDL with one event, and a schema of this many elements.
fn wsdl(elements: usize) -> Element {
    let mut wsdl = service().to_wsdl();
    let element = |number: usize| {
        let element = Element::new(Name::new(chappe_soap::schema::NAMESPACE, "element"));
        element.with_attribute(Name::local("name"), format!("e{number}"))
    };
    wsdl.schemas[0] =
        std::mem::take(&mut wsdl.schemas[0]).with_children((0..elements).map(element));
    wsdl.to_element()
}

/// A metadata reference to this path of the device.
fn reference(path: &str) -> WsdlSection {
    WsdlSection::Reference(EndpointReference::new(path.to_owned()))
}

/// The sections with whole addresses.
fn whole(sections: &[WsdlSection], local: SocketAddr) -> Vec<WsdlSection> {
    let sections = sections.iter().map(|section| match section {
        WsdlSection::Reference(reference) if reference.address.starts_with('/') => {
            let address = format!("http://{local}{}", reference.address);
            WsdlSection::Reference(EndpointReference::new(address))
        }
        section => section.clone(),
    });
    sections.collect()
}

/// A device whose service returns `sections`; if they are empty it never answers the service's
/// GetMetadata.
fn device(at: &str, sections: Vec<WsdlSection>) -> (Server, Found) {
    let local: SocketAddr = at.parse().unwrap();
    let sections = Arc::new(sections);
    let answer = move |request: Request| {
        let sections = Arc::clone(&sections);
        async move {
            let asked = Envelope::parse(&request.body).unwrap();
            let mut metadata = Metadata::default();
            if request.path == "/service" {
                if sections.is_empty() {
                    std::future::pending::<()>().await;
                }
                metadata.wsdl = whole(&sections, request.local);
            } else if request.path == "/metadata" {
                metadata.wsdl = vec![WsdlSection::Inline(wsdl(1))];
            } else if request.path.starts_with("/again") {
                // Itself, another one that does the same, and one with the metadata.
                let next = format!("{}x", request.path);
                let sections = ["/again", &next, "/metadata"].map(reference);
                metadata.wsdl = whole(&sections, request.local);
            } else if request.path == "/wsdl" {
                let mut answer = transfer_get_response(&asked, &metadata, "urn:uuid:1");
                answer.body = vec![wsdl(1)];
                return Response::soap(&answer);
            } else {
                metadata.this_model = Some(ThisModel::default());
                metadata.this_device = Some(ThisDevice {
                    friendly_name: vec!["stranger".into()],
                    ..ThisDevice::default()
                });
                let at = format!("http://{}/service", request.local);
                metadata.relationship = Some(Relationship {
                    host: Some(Host::default()),
                    hosted: vec![Hosted {
                        endpoints: vec![EndpointReference::new(at)],
                        types: vec![name("Thermometer")],
                        service_id: "urn:service".into(),
                    }],
                });
            }
            Response::soap(&transfer_get_response(&asked, &metadata, "urn:uuid:1"))
        }
    };
    let server = Server::bind(local, ServerLimits::default(), Drops::default(), answer).unwrap();
    let found = Found {
        endpoint: endpoint(),
        dialect: Dialect::V2009,
        types: vec![Dialect::V2009.device_type()],
        scopes: Vec::new(),
        xaddrs: vec![format!("http://{}/", server.local_addr())],
        metadata_version: 1,
        from: SocketAddr::new(local.ip(), 3702),
        way: Way::Discovery,
    };
    (server, found)
}

async fn described_within(at: &str, sections: Vec<WsdlSection>, bytes: usize) -> Description {
    let (_server, found) = device(at, sections);
    let mut options = client_options();
    options.description_bytes = bytes;
    let client = client(options);
    in_time("described", client.describe(&found)).await.unwrap()
}

fn reasons(description: &Description) -> Vec<&'static str> {
    description.notes.iter().map(|note| note.reason).collect()
}

#[tokio::test]
async fn an_inline_wsdl_counts_against_the_bytes_of_the_description() {
    let inline = wsdl(1_000);
    let bytes = inline.expanded_bytes();
    let sections = vec![WsdlSection::Inline(inline)];
    let enough = described_within("127.0.6.1:0", sections.clone(), 2 * bytes).await;
    assert_eq!(enough.services[0].events(), [REPORT]);
    assert!(!reasons(&enough).contains(&"description too large"));
    let little = described_within("127.0.6.1:0", sections, bytes / 2).await;
    assert!(little.services[0].events().is_empty());
    assert!(reasons(&little).contains(&"description too large"));
}

#[tokio::test]
async fn all_sections_share_the_bytes() {
    let inline = wsdl(1_000);
    let bytes = inline.expanded_bytes();
    let sections = vec![WsdlSection::Inline(inline); 4];
    let description = described_within("127.0.6.2:0", sections, 2 * bytes + bytes / 2).await;
    let service = &description.services[0];
    assert_eq!(service.documents.len(), 2);
    let large = reasons(&description);
    let large = large
        .iter()
        .filter(|reason| **reason == "description too large");
    assert_eq!(large.count(), 2);
}

#[tokio::test]
async fn a_description_has_a_deadline() {
    let (_server, found) = device("127.0.6.3:0", Vec::new());
    let mut options = client_options();
    // The device never answers, and one request may take longer than the deadline.
    options.http.header_deadline = DEADLINE;
    options.description_deadline = Duration::from_millis(200);
    let client = client(options);
    let error = in_time("given up", client.describe(&found))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "description too slow");
    assert!(error.hint().is_some());
    assert!(!client.drops().about(&found.endpoint).is_empty());
}

#[tokio::test]
async fn references_to_metadata_are_followed() {
    for (address, path) in [("127.0.6.4:0", "/wsdl"), ("127.0.6.5:0", "/metadata")] {
        let described = described_within(address, vec![reference(path)], 1 << 20).await;
        assert_eq!(described.services[0].events(), [REPORT], "{path}");
        // The device says nothing of its model and host.
        let others = reasons(&described);
        let others = others.iter().filter(|reason| **reason != "odd metadata");
        assert_eq!(others.count(), 0, "{path}: {:?}", described.notes);
    }
}

#[tokio::test]
async fn references_that_lead_on_and_on_are_left() {
    let described = described_within("127.0.6.6:0", vec![reference("/again")], 1 << 20).await;
    assert_eq!(described.services[0].events(), [REPORT]);
    assert!(reasons(&described).contains(&"too many metadata references"));
}

#[tokio::test]
async fn a_reference_to_another_host_is_refused_by_the_policy() {
    let foreign = WsdlSection::Reference(EndpointReference::new("http://127.0.6.9:1/wsdl"));
    let absent =
        described_within("127.0.6.7:0", vec![foreign, reference("/nowhere")], 1 << 20).await;
    let notes = absent.notes.iter();
    let notes = notes.filter(|note| note.reason == "metadata reference not read");
    let notes: Vec<_> = notes.collect();
    assert_eq!(notes.len(), 1, "{:?}", absent.notes);
    assert!(notes[0].detail.contains("127.0.6.9"), "{notes:?}");
}
