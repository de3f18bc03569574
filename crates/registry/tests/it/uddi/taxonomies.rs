//! Goal: references to checked value sets have values of the set, in the bags that the set allows, and
//! none refers to an unvalidatable tModel.
//! Method: saves of every kind of entity with a value set in memory.

use chappe_registry::uddi::{
    BusinessEntity, BusinessService, Error, ErrorCode, KeyedReference, TModel, TModelKey, TYPES,
    Taxonomies, Values,
};

use super::{Desk, business, code, reference, service, tmodel};

struct World {
    desk: Desk,
    colours: TModelKey,
    taxonomies: Taxonomies,
}

fn world(text: &str) -> World {
    let mut desk = Desk::new();
    desk.registry
        .publish_canonical_tmodels("node", 0)
        .unwrap()
        .unwrap()
        .wait()
        .unwrap();
    let colours = desk.tmodel("node", "colours");
    let mut taxonomies = Taxonomies::default();
    taxonomies.add(colours, text).unwrap();
    World {
        desk,
        colours,
        taxonomies,
    }
}

impl World {
    fn save_business(&mut self, business: BusinessEntity) -> Result<(), Error> {
        let taxonomies = &self.taxonomies;
        let registry = self.desk.registry.clone();
        let mut bits = 77;
        let mut random = || {
            bits += 1_u128 << 64;
            bits
        };
        let access = chappe_registry::Access::Public;
        let publisher =
            chappe_registry::uddi::Publisher::new(&registry, "ada", access, 0, &mut random);
        publisher
            .checking(taxonomies)
            .save_business(&[business])?
            .wait()?;
        Ok(())
    }

    fn with_categories(&mut self, bag: Vec<KeyedReference>) -> Result<(), Error> {
        self.save_business(BusinessEntity {
            category_bag: bag,
            ..business("Ward 3")
        })
    }
}

#[test]
fn a_value_outside_its_set_is_refused() {
    let mut world = world("red\ngreen\n");
    let colours = world.colours;
    world
        .with_categories(vec![reference(colours, "red")])
        .unwrap();
    let other = world.with_categories(vec![reference(colours, "Red")]);
    assert_eq!(code(other), ErrorCode::InvalidValue);
    let service = BusinessService {
        category_bag: vec![reference(colours, "blue")],
        business_key: None,
        ..service(chappe_registry::uddi::BusinessKey::new(1), "Pulse")
    };
    let inside = world.save_business(BusinessEntity {
        services: vec![service],
        ..business("Ward 4")
    });
    assert_eq!(code(inside), ErrorCode::InvalidValue);
    let unchecked = world.desk.tmodel("ada", "free");
    world
        .with_categories(vec![reference(unchecked, "anything")])
        .unwrap();
}

#[test]
fn a_set_may_be_of_one_bag_only() {
    let mut world = world("@categoryBag\nred\n");
    let colours = world.colours;
    let refused = world.save_business(BusinessEntity {
        identifier_bag: vec![reference(colours, "red")],
        ..business("Ward 3")
    });
    assert_eq!(code(refused), ErrorCode::ValueNotAllowed);
    world
        .with_categories(vec![reference(colours, "red")])
        .unwrap();
}

#[test]
fn an_unvalidatable_tmodel_is_refused() {
    let mut world = world("red\n");
    let unvalidatable = TModel {
        category_bag: vec![reference(TYPES, "unvalidatable")],
        ..tmodel("offline")
    };
    let key = world
        .desk
        .save_tmodel("ada", unvalidatable)
        .unwrap()
        .key
        .unwrap();
    let refused = world.with_categories(vec![reference(key, "red")]);
    assert_eq!(code(refused), ErrorCode::Unvalidatable);
}

#[test]
fn validate_values_checks_every_bag() {
    let world = world("red\n");
    let bag = |value: &str| vec![reference(world.colours, value)];
    let check = |values: Values| {
        world
            .taxonomies
            .validate(&values)
            .err()
            .map(|error| error.code)
    };
    let of_business = |identifiers: &str, categories: &str| Values {
        businesses: vec![BusinessEntity {
            identifier_bag: bag(identifiers),
            category_bag: bag(categories),
            ..business("Ward 3")
        }],
        ..Values::default()
    };
    let of_tmodel = |value: &str| Values {
        tmodels: vec![TModel {
            category_bag: bag(value),
            ..tmodel("one")
        }],
        ..Values::default()
    };
    assert_eq!(check(of_business("red", "red")), None);
    assert_eq!(
        check(of_business("blue", "red")),
        Some(ErrorCode::InvalidValue)
    );
    assert_eq!(
        check(of_business("red", "blue")),
        Some(ErrorCode::InvalidValue)
    );
    assert_eq!(check(of_tmodel("red")), None);
    assert_eq!(check(of_tmodel("blue")), Some(ErrorCode::InvalidValue));
}

/// Appendix I: the canonical sets whose values the registry knows.
#[test]
fn canonical_sets_are_checked() {
    const OWNING: TModelKey = TModelKey::new(0x4064_C064_6D14_4F35_8953_9652_1064_76A9);
    const OPERATORS: TModelKey = TModelKey::new(0x327A_56F0_3299_4461_BC23_5CD5_13E9_5C55);
    const REPLACED: TModelKey = TModelKey::new(0xE59A_E320_77A5_11D5_B898_0004_AC49_CC1E);
    let (invalid, not_here) = (ErrorCode::InvalidValue, ErrorCode::ValueNotAllowed);
    let mut world = world("red\n");
    for (reference, expected) in [
        (reference(TYPES, "tModel"), not_here),
        (reference(TYPES, "sonnet"), invalid),
        (reference(OPERATORS, "node"), not_here),
        (reference(OPERATORS, "nodes"), invalid),
        (reference(OWNING, "x"), not_here),
    ] {
        let refused = world.with_categories(vec![reference.clone()]);
        assert_eq!(code(refused), expected, "{reference:?}");
    }
    let [own, other] = ["ada", "bob"].map(|owner| world.desk.business(owner, "Ward").to_string());
    let mut owned = |value: &str| {
        let owned = TModel {
            category_bag: vec![reference(OWNING, value)],
            ..tmodel("owned")
        };
        world.desk.save_tmodel("ada", owned).map(|_| ())
    };
    assert_eq!(owned(&own), Ok(()));
    assert_eq!(code(owned(&other)), not_here);
    assert_eq!(code(owned("x")), invalid);
    let colours = world.colours.to_string();
    let mut replaced = |value: &str| {
        world.save_business(BusinessEntity {
            identifier_bag: vec![reference(REPLACED, value)],
            ..business("Ward 3")
        })
    };
    for known in [&own, &other, &colours] {
        assert_eq!(replaced(known), Ok(()));
    }
    assert_eq!(code(replaced("x")), invalid);
    assert_eq!(code(replaced(&TModelKey::new(7).to_string())), invalid);
}
