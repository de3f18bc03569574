//! Goal: services of devices are services of the node's business, with their documents, and end with them.
//! Method: offers put, changed and removed; the inquiries of a client.

use chappe_registry::uddi::{BusinessEntity, BusinessKey, FindService, Key, ServiceKey, Text};
use chappe_registry::wsdl::{FindServices, NewDocument, Offer};
use chappe_registry::{Entity, EntityKind};

use super::{WARD, desk, services, tmodels};
use crate::uddi::Desk;

const NODE: BusinessKey = BusinessKey::new(0x1000);

fn offer(number: u128, text: Option<&str>) -> Offer {
    let document = text.map(|text| {
        let document = NewDocument {
            key: Some(format!("urn:chappe:document:1:{number}")),
            ..NewDocument::new(format!("http://192.0.2.{number}/wsdl"), text)
        };
        document.prepare().unwrap()
    });
    Offer {
        key: ServiceKey::from_uuid(number),
        name: format!("Service{number}"),
        description: "a monitor".to_owned(),
        categories: Vec::new(),
        address: format!("http://192.0.2.{number}/"),
        documents: document.into_iter().collect(),
    }
}

fn put(desk: &mut Desk, offers: &[Offer]) {
    desk.ask("node", |node| node.put_offers(NODE, offers))
        .unwrap()
        .wait()
        .unwrap();
}

fn node() -> Desk {
    let mut desk = desk();
    let business = BusinessEntity {
        names: vec![Text::plain("Node 1")],
        ..BusinessEntity::default()
    };
    for _ in 0..2 {
        let revision = desk.registry.revision();
        desk.ask("node", |node| node.put_business(NODE, &business))
            .unwrap()
            .wait()
            .unwrap();
        assert!(desk.registry.revision() <= revision + 1);
    }
    desk
}

fn found(desk: &Desk, name: &str) -> usize {
    let ask = FindService {
        names: vec![Text::plain(name)],
        ..FindService::default()
    };
    desk.inquiry().find_service(&ask).unwrap().items.len()
}

#[test]
fn services_of_devices_are_found_by_name_and_interface() {
    let mut desk = node();
    put(
        &mut desk,
        &[offer(1, Some(WARD)), offer(2, Some(WARD)), offer(3, None)],
    );
    assert_eq!(found(&desk, "Monitor"), 2);
    assert_eq!(found(&desk, "Service3"), 1);
    let ask = FindServices {
        interface: Some("HeartRate".to_owned()),
        ..FindServices::default()
    };
    assert_eq!(services(&desk, &ask).len(), 2);
    assert_eq!(tmodels(&desk, "portType").len(), 1);
    let service = desk
        .inquiry()
        .service_detail(&[ServiceKey::from_uuid(2)])
        .unwrap()
        .remove(0);
    let binding = format!("{:?}", service.bindings[0].endpoint);
    assert!(
        binding.contains("http://192.0.2.2/"),
        "the address is the device's: {binding}"
    );
    // The same again changes no key.
    let key = service.bindings[0].key;
    put(&mut desk, &[offer(2, Some(WARD))]);
    let service = desk
        .inquiry()
        .service_detail(&[ServiceKey::from_uuid(2)])
        .unwrap()
        .remove(0);
    assert_eq!(service.bindings[0].key, key);
    // Without its document it is no longer found by it.
    put(&mut desk, &[offer(2, None)]);
    assert_eq!(services(&desk, &ask).len(), 1);
    assert_eq!(found(&desk, "Monitor"), 1);
    let gone = [ServiceKey::from_uuid(1)];
    for _ in 0..2 {
        desk.ask("node", |node| node.remove_offers(&gone))
            .unwrap()
            .wait()
            .unwrap();
    }
    assert_eq!(found(&desk, "Monitor"), 0);
    assert!(tmodels(&desk, "portType").is_empty());
    assert!(desk.inquiry().document("urn:chappe:document:1:1").is_err());
    assert_eq!(found(&desk, "Service"), 2);
}

#[test]
fn all_offers_of_a_node_are_removed_and_nothing_else() {
    let mut desk = node();
    put(&mut desk, &[offer(1, Some(WARD)), offer(3, None)]);
    let ward = super::ward_of(&mut desk, "ada");
    super::put(
        &mut desk,
        "ada",
        &[super::prepared("urn:ada", WARD)],
        Some(ward),
    )
    .unwrap();
    desk.ask("node", |node| node.remove_all_offers(NODE))
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(found(&desk, "Monitor"), 1);
    assert_eq!(found(&desk, "Service"), 0);
    assert_eq!(tmodels(&desk, "portType").len(), 1);
}

#[test]
fn a_taken_key_is_refused() {
    let mut desk = node();
    let mut squatter = Entity::new(ServiceKey::from_uuid(1).iri(), EntityKind::Other, "mine");
    squatter.owner = "eve".to_owned();
    desk.registry.publish(squatter).unwrap().wait().unwrap();
    let refused = desk.ask("node", |node| node.put_offers(NODE, &[offer(1, None)]));
    assert_eq!(
        refused.unwrap_err().code,
        chappe_registry::uddi::ErrorCode::UserMismatch
    );
    put(&mut desk, &[offer(2, None)]);
}
