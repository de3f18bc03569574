//! Goal: a service that is added comes after all others of its business, wherever they are stored, and
//! the cost does not grow with their number.
//! Method: services added, moved and removed one by one and together; allocations are not counted, but
//! thousands of services would take minutes if each read all others.

use chappe_registry::uddi::{BusinessKey, BusinessService};

use super::{Desk, binding, service};

fn names(desk: &Desk, business: BusinessKey) -> Vec<String> {
    let detail = desk
        .inquiry()
        .business_detail(&[business])
        .unwrap()
        .remove(0);
    let services = detail.value.services.into_iter();
    services
        .map(|service| service.names[0].text.clone())
        .collect()
}

#[test]
fn services_keep_the_order_in_which_they_were_added() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let other = desk.business("ada", "Ward 4");
    let first = desk.service("ada", ward, "a");
    desk.service("ada", ward, "b");
    let two = ["c", "d"].map(|name| service(ward, name));
    desk.ask("ada", |ada| ada.save_service(&two))
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(names(&desk, ward), ["a", "b", "c", "d"]);
    // A service of another publisher does not count.
    desk.business("eve", "Ward 5");
    // Saving again keeps the position; moving takes the last one.
    let again = BusinessService {
        key: Some(first),
        ..service(ward, "A")
    };
    desk.save_service("ada", again.clone()).unwrap();
    assert_eq!(names(&desk, ward), ["A", "b", "c", "d"]);
    desk.save_service(
        "ada",
        BusinessService {
            business_key: Some(other),
            ..again.clone()
        },
    )
    .unwrap();
    assert_eq!(names(&desk, ward), ["b", "c", "d"]);
    desk.save_service("ada", again).unwrap();
    assert_eq!(names(&desk, ward), ["b", "c", "d", "A"]);
    assert!(names(&desk, other).is_empty());
}

#[test]
fn many_services_are_added_one_by_one() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    for at in 0..3_000 {
        let mut one = service(ward, &format!("{at}"));
        one.bindings = vec![binding(None, &[])];
        desk.save_service("ada", one).unwrap();
    }
    let names = names(&desk, ward);
    assert!(
        names
            .iter()
            .enumerate()
            .all(|(at, name)| *name == at.to_string())
    );
    assert_eq!(names.len(), 3_000);
}
