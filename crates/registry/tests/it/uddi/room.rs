//! Goal: what a publisher of UDDI stores takes no more bytes than there is room for, and what a request
//! replaces or removes makes room.
//! Method: requests within small rooms, on a journal in memory, some in flight.

use chappe_registry::uddi::{BusinessEntity, BusinessService, Error, ErrorCode, Saved, Text};
use chappe_registry::{Room, uddi::Owned};

use super::{Desk, business, code};

/// A business with so many services, each of about 2 kB.
fn wide(services: usize) -> BusinessEntity {
    let service = |at: usize| BusinessService {
        names: vec![Text::plain(format!("{at}"))],
        descriptions: vec![Text::plain("x".repeat(255))],
        ..BusinessService::default()
    };
    BusinessEntity {
        services: (0..services).map(service).collect(),
        ..business("Ward 3")
    }
}

fn save(
    desk: &mut Desk,
    name: &str,
    business: BusinessEntity,
    room: Room,
) -> Result<Saved<Vec<Owned<BusinessEntity>>>, Error> {
    let registry = desk.registry.clone();
    desk.unix_ms += 1_000;
    let mut bits = u128::from(desk.unix_ms.unsigned_abs()) << 64;
    let mut random = || {
        bits += 1 << 66;
        bits
    };
    let access = chappe_registry::Access::Public;
    let time = desk.unix_ms;
    let publisher =
        chappe_registry::uddi::Publisher::new(&registry, name, access, time, &mut random);
    publisher.within(room).save_business(&[business])
}

#[test]
fn a_request_fits_into_its_room() {
    let mut desk = Desk::new();
    let whole = save(&mut desk, "ada", wide(10), Room::default()).unwrap();
    let saved = whole.wait().unwrap().remove(0).value;
    let used = desk.registry.bytes_of("ada");
    assert!(used > 10_000, "{used}");
    let room = Room {
        total_bytes: 3 * used,
        owner_bytes: used + used / 2,
        owner_entities: usize::MAX,
    };
    let refused = save(&mut desk, "ada", wide(10), room);
    assert_eq!(code(refused), ErrorCode::AccountLimitExceeded);
    assert_eq!(desk.registry.bytes_of("ada"), used);
    // What is replaced makes room.
    save(&mut desk, "ada", saved.clone(), room)
        .unwrap()
        .wait()
        .unwrap();
    let smaller = BusinessEntity {
        services: saved.services.iter().take(3).cloned().collect(),
        ..saved.clone()
    };
    save(&mut desk, "ada", smaller, room)
        .unwrap()
        .wait()
        .unwrap();
    assert!(desk.registry.bytes_of("ada") < used / 2);
    // What is in flight counts.
    let first = save(&mut desk, "ada", wide(9), room).unwrap();
    let second = save(&mut desk, "ada", wide(9), room);
    assert_eq!(code(second), ErrorCode::AccountLimitExceeded);
    first.wait().unwrap();
    // The room of all.
    let total = save(&mut desk, "bob", wide(15), room).unwrap();
    total.wait().unwrap();
    let narrow = Room {
        total_bytes: 2 * used,
        ..room
    };
    let refused = save(&mut desk, "eve", wide(10), narrow);
    assert_eq!(code(refused), ErrorCode::AccountLimitExceeded);
    let deleted = desk.ask("bob", |bob| {
        let info = bob.registered_info().unwrap();
        bob.delete_business(&[info.businesses[0].business_key])
    });
    deleted.unwrap().wait().unwrap();
    assert_eq!(desk.registry.bytes_of("bob"), 0);
}
