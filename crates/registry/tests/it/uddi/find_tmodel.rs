//! UDDI 2.04 API specification: find_tModel, delete_tModel.

use chappe_registry::uddi::{ErrorCode, FindTModel, TModel, Text};

use super::{Desk, code, qualifiers, reference, tmodel};

fn names(desk: &Desk, ask: &FindTModel) -> Vec<String> {
    let found = desk.inquiry().find_tmodel(ask).unwrap();
    found.items.into_iter().map(|info| info.name.text).collect()
}

fn named(name: &str) -> FindTModel {
    FindTModel {
        name: Some(Text::plain(name)),
        ..FindTModel::default()
    }
}

/// find_tModel, arguments name, identifierBag, categoryBag.
#[test]
fn tmodels_by_name_and_bags() {
    let mut desk = Desk::new();
    let kind = desk.tmodel("ada", "kind");
    let with = |name: &str, identifier: &str, category: &str| TModel {
        identifier_bag: vec![reference(kind, identifier)],
        category_bag: vec![reference(kind, category)],
        ..tmodel(name)
    };
    desk.save_tmodel("ada", with("http", "1", "transport"))
        .unwrap();
    desk.save_tmodel("ada", with("https", "2", "transport"))
        .unwrap();
    assert_eq!(names(&desk, &named("HTTP")), ["http", "https"]);
    assert_eq!(names(&desk, &named("%s")), ["https"]);
    let exact = FindTModel {
        qualifiers: qualifiers(&["exactNameMatch"]),
        ..named("http")
    };
    assert_eq!(names(&desk, &exact), ["http"]);
    let identified = FindTModel {
        identifier_bag: vec![reference(kind, "1"), reference(kind, "2")],
        ..FindTModel::default()
    };
    assert_eq!(names(&desk, &identified), ["http", "https"]);
    let all = FindTModel {
        qualifiers: qualifiers(&["andAllKeys"]),
        ..identified
    };
    assert!(names(&desk, &all).is_empty());
    let categorized = FindTModel {
        category_bag: vec![reference(kind, "transport")],
        max_rows: Some(1),
        ..FindTModel::default()
    };
    assert_eq!(names(&desk, &categorized), ["http"]);
    assert_eq!(
        code(desk.inquiry().find_tmodel(&named(&"x".repeat(256)))),
        ErrorCode::NameTooLong
    );
}

/// delete_tModel: hidden from find_tModel, still read by get_tModelDetail and listed by
/// get_registeredInfo; deleting it twice has no effect; saving it again shows it.
#[test]
fn a_deleted_tmodel_is_hidden() {
    let mut desk = Desk::new();
    let key = desk.tmodel("ada", "http");
    for _ in 0..2 {
        desk.ask("ada", |ada| ada.delete_tmodel(&[key]))
            .unwrap()
            .wait()
            .unwrap();
        assert!(names(&desk, &named("http")).is_empty());
        assert!(names(&desk, &FindTModel::default()).is_empty());
        let dated = FindTModel {
            qualifiers: qualifiers(&["sortByDateAsc"]),
            ..FindTModel::default()
        };
        assert!(names(&desk, &dated).is_empty());
    }
    let detail = desk.inquiry().tmodel_detail(&[key]).unwrap();
    assert_eq!(detail[0].value.name.text, "http");
    let info = desk.ask("ada", |ada| ada.registered_info().unwrap());
    assert_eq!(info.tmodels[0].tmodel_key, key);
    let again = TModel {
        key: Some(key),
        ..tmodel("http")
    };
    desk.save_tmodel("ada", again).unwrap();
    assert_eq!(names(&desk, &named("http")), ["http"]);
    let refused = desk.ask("bob", |bob| bob.delete_tmodel(&[key]));
    assert_eq!(code(refused), ErrorCode::UserMismatch);
}
