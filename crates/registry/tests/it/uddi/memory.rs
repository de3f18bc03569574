//! Goal: a service of about 138 triples takes at most 12 kB, indexes included.
//! Method: 2,000 services like those of the published study, counted by the capacities of all
//! structures.

use chappe_registry::uddi::{
    BusinessService, Endpoint, InstanceDetails, KeyedReference, OverviewDoc, TModelInstanceInfo,
    Text, UrlType,
};

use super::{Desk, binding, service};

const SERVICES: usize = 2_000;
const LIMIT_BYTES: usize = 12_000;

#[test]
fn a_service_of_138_triples_takes_12_kb() {
    let mut desk = Desk::new();
    let taxonomies: Vec<_> = (0..8)
        .map(|at| desk.tmodel("ada", &format!("t{at}")))
        .collect();
    let business = desk.business("ada", "Ward 3");
    let before = desk.registry.statistics();
    for number in 0..SERVICES {
        let category = |at: usize| KeyedReference {
            tmodel_key: Some(taxonomies[at % 8]),
            key_name: Some(format!("category {}", at % 5)),
            key_value: format!("value {}", (number + at) % 200),
        };
        let info = |at: usize| TModelInstanceInfo {
            tmodel_key: taxonomies[at],
            descriptions: vec![Text::plain("how it is used")],
            details: Some(InstanceDetails {
                descriptions: Vec::new(),
                overview_doc: Some(OverviewDoc {
                    descriptions: Vec::new(),
                    url: Some(format!("http://example.com/{number}/{at}.wsdl")),
                }),
                parameters: Some("version=1".to_owned()),
            }),
        };
        let mut one = binding(None, &[]);
        one.endpoint = Endpoint::AccessPoint {
            url_type: UrlType::Http,
            address: format!("http://example.com/services/{number}"),
        };
        one.tmodels = (0..4).map(info).collect();
        let full = BusinessService {
            descriptions: vec![Text::plain(format!(
                "Measures quantity {number} of a patient"
            ))],
            bindings: vec![one],
            category_bag: (0..21).map(category).collect(),
            ..service(business, &format!("Service number {number}"))
        };
        desk.ask("ada", |ada| ada.save_service(&[full]))
            .unwrap()
            .wait()
            .unwrap();
    }
    let after = desk.registry.statistics();
    let triples = (after.triples - before.triples) as f64 / SERVICES as f64;
    let bytes = (after.memory_bytes - before.memory_bytes) / SERVICES;
    println!("{triples} triples, {bytes} bytes");
    assert!((130.0..=150.0).contains(&triples), "{triples} triples");
    assert!(bytes <= LIMIT_BYTES, "{bytes} bytes");
}
