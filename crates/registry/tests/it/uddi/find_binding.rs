//! UDDI 2.04 API specification: find_binding.

use chappe_registry::uddi::{ErrorCode, FindBinding, ServiceKey, TModelKey};

use super::{Desk, binding, code, qualifiers};

fn ask(service: ServiceKey, tmodels: &[TModelKey], words: &[&str]) -> FindBinding {
    FindBinding {
        max_rows: None,
        qualifiers: qualifiers(words),
        service_key: service,
        tmodel_bag: tmodels.to_vec(),
    }
}

/// find_binding, argument tModelBag: all tModels, in any order; orAllKeys: any. Appendix E: by
/// date in ascending order by default.
#[test]
fn bindings_of_a_service_by_fingerprint() {
    let mut desk = Desk::new();
    let [t, u, v] = ["t", "u", "v"].map(|name| desk.tmodel("ada", name));
    let ward = desk.business("ada", "Ward 3");
    let pulse = desk.service("ada", ward, "Pulse");
    let other = desk.service("ada", ward, "Other");
    let mut save = |service, tmodels: &[_]| {
        let saved = desk.save_binding("ada", binding(Some(service), tmodels));
        saved.unwrap().key.unwrap()
    };
    let first = save(pulse, &[t, u]);
    let second = save(pulse, &[t]);
    save(other, &[t]);
    let found = |ask: &FindBinding| -> Vec<_> {
        let found = desk.inquiry().find_binding(ask).unwrap();
        found
            .items
            .into_iter()
            .map(|binding| binding.key.unwrap())
            .collect()
    };
    assert_eq!(found(&ask(pulse, &[t], &[])), [first, second]);
    assert_eq!(found(&ask(pulse, &[u, t], &[])), [first]);
    assert!(found(&ask(pulse, &[u, v], &[])).is_empty());
    assert_eq!(found(&ask(pulse, &[u, v], &["orAllKeys"])), [first]);
    let newest = ask(pulse, &[t], &["sortByDateDesc"]);
    assert_eq!(found(&newest), [second, first]);
    let cut = FindBinding {
        max_rows: Some(1),
        ..newest
    };
    let cut = desk.inquiry().find_binding(&cut).unwrap();
    assert_eq!((cut.items[0].key, cut.is_truncated), (Some(second), true));
}

/// find_binding, errors: unknown serviceKey, unknown tModelKey.
#[test]
fn unknown_keys_are_errors() {
    let mut desk = Desk::new();
    let t = desk.tmodel("ada", "t");
    let ward = desk.business("ada", "Ward 3");
    let pulse = desk.service("ada", ward, "Pulse");
    let inquiry = desk.inquiry();
    let found = inquiry.find_binding(&ask(ServiceKey::new(1), &[t], &[]));
    assert_eq!(code(found), ErrorCode::InvalidKeyPassed);
    let found = inquiry.find_binding(&ask(pulse, &[TModelKey::new(1)], &[]));
    assert_eq!(code(found), ErrorCode::InvalidKeyPassed);
    assert!(
        inquiry
            .find_binding(&ask(pulse, &[t], &[]))
            .unwrap()
            .items
            .is_empty()
    );
}
