//! UDDI 2.04 API specification: find_service, and appendix E, search qualifiers.

use chappe_registry::Interrupt;
use chappe_registry::uddi::{
    BusinessKey, BusinessService, ErrorCode, FindBusiness, FindCall, FindQualifiers, FindService,
    GENERAL_KEYWORDS, KeyedReference, Language, MAX_ROWS, Text,
};

use super::{Desk, binding, business, code, qualifiers, reference, service};

/// The first names found, in order.
fn names(desk: &Desk, ask: &FindService) -> Vec<String> {
    let found = desk.inquiry().find_service(ask).unwrap();
    let names = found.items.into_iter().map(|info| {
        let first = info.names.into_iter().next();
        first.map(|name| name.text).unwrap_or_default()
    });
    names.collect()
}

fn named(names: &[&str], words: &[&str]) -> FindService {
    FindService {
        names: names.iter().map(|name| Text::plain(*name)).collect(),
        qualifiers: qualifiers(words),
        ..FindService::default()
    }
}

fn with_services(names: &[&str]) -> (Desk, BusinessKey) {
    let mut desk = Desk::new();
    let business = desk.business("ada", "Ward 3");
    for name in names {
        desk.service("ada", business, name);
    }
    (desk, business)
}

/// find_service, argument name: a partial name that matches from the left, ignoring case.
#[test]
fn a_name_matches_from_the_left() {
    let (desk, _) = with_services(&["Heart rate", "heartbeat", "My heart", "HEAR"]);
    assert_eq!(
        names(&desk, &named(&["heart"], &[])),
        ["Heart rate", "heartbeat"]
    );
    assert_eq!(names(&desk, &named(&["hear"], &[])).len(), 3);
}

/// find_service, argument name: `%` stands for any characters.
#[test]
fn a_percent_sign_is_a_wildcard() {
    let (desk, _) = with_services(&["Heart rate", "heartbeat", "My heart", "rate"]);
    let found = names(&desk, &named(&["%heart"], &[]));
    assert_eq!(found, ["Heart rate", "heartbeat", "My heart"]);
    assert_eq!(names(&desk, &named(&["h%rate"], &[])), ["Heart rate"]);
}

/// find_service, argument name: several names are alternatives, at most five.
#[test]
fn names_are_alternatives() {
    let (desk, _) = with_services(&["a", "b", "c"]);
    assert_eq!(names(&desk, &named(&["c", "a"], &[])), ["a", "c"]);
    let inquiry = desk.inquiry();
    assert!(inquiry.find_service(&named(&["a"; 5], &[])).is_ok());
    let six = inquiry.find_service(&named(&["a"; 6], &[]));
    assert_eq!(code(six), ErrorCode::TooManyOptions);
    let long = "x".repeat(256);
    let long = inquiry.find_service(&named(&[&long], &[]));
    assert_eq!(code(long), ErrorCode::NameTooLong);
    let fits = "ä".repeat(255);
    assert!(inquiry.find_service(&named(&[&fits], &[])).is_ok());
}

/// find_service, argument name: with xml:lang only names in that language or a dialect match.
#[test]
fn a_language_restricts_the_names() {
    let mut desk = Desk::new();
    let business = desk.business("ada", "Ward 3");
    let text = |language: &str, text: &str| Text {
        language: Language::parse(language),
        text: text.to_owned(),
    };
    let mut both = service(business, "Pulse");
    both.names = vec![text("en-US", "Pulse"), text("de", "Puls")];
    desk.save_service("ada", both).unwrap();
    let ask = |language: &str, name: &str| FindService {
        names: vec![text(language, name)],
        ..FindService::default()
    };
    assert_eq!(names(&desk, &ask("de", "pul")), ["Pulse"]);
    assert_eq!(names(&desk, &ask("en", "pulse")), ["Pulse"]);
    assert_eq!(names(&desk, &ask("e", "pulse")), ["Pulse"]);
    assert!(names(&desk, &ask("en-gb", "pulse")).is_empty());
    assert!(names(&desk, &ask("de", "pulse")).is_empty());
}

/// Appendix E, exactNameMatch: the whole name; case is still ignored.
#[test]
fn exact_name_match() {
    let (desk, _) = with_services(&["Heart", "heart", "Heart rate", "100%"]);
    assert_eq!(
        names(&desk, &named(&["HEART"], &["exactNameMatch"])).len(),
        2
    );
    assert_eq!(names(&desk, &named(&["1%"], &["exactNameMatch"])).len(), 0);
    assert_eq!(
        names(&desk, &named(&["100%"], &["exactNameMatch"])),
        ["100%"]
    );
}

/// Appendix E, caseSensitiveMatch, alone and with exactNameMatch.
#[test]
fn case_sensitive_match() {
    let (desk, _) = with_services(&["Heart", "heart", "Heart rate"]);
    let found = names(&desk, &named(&["Heart"], &["caseSensitiveMatch"]));
    assert_eq!(found, ["Heart", "Heart rate"]);
    let both = ["caseSensitiveMatch", "exactNameMatch"];
    assert_eq!(names(&desk, &named(&["heart"], &both)), ["heart"]);
}

/// Appendix E: by name in ascending order by default, equal names by date; sortByNameDesc.
#[test]
fn sorts_by_name() {
    let (desk, _) = with_services(&["b", "C", "a", "b"]);
    assert_eq!(names(&desk, &named(&[], &[])), ["a", "b", "b", "C"]);
    assert_eq!(
        names(&desk, &named(&[], &["sortByNameDesc"])),
        ["C", "b", "b", "a"]
    );
    let keys = |words: &[&str]| -> Vec<_> {
        let found = desk.inquiry().find_service(&named(&["b"], words)).unwrap();
        found
            .items
            .into_iter()
            .map(|info| info.service_key)
            .collect()
    };
    let mut turned = keys(&["sortByNameAsc", "sortByDateDesc"]);
    turned.reverse();
    assert_eq!(keys(&["sortByNameAsc", "sortByDateAsc"]), turned);
    assert_eq!(keys(&[]), turned);
}

/// Appendix E, 1.3: case counts for the order where it counts for names.
#[test]
fn case_sorts_where_it_counts() {
    let (desk, _) = with_services(&["b", "B", "a", "b"]);
    assert_eq!(names(&desk, &named(&[], &[])), ["a", "b", "B", "b"]);
    let cased = &["caseSensitiveMatch"];
    assert_eq!(names(&desk, &named(&[], cased)), ["B", "a", "b", "b"]);
    let first = FindService {
        max_rows: Some(1),
        ..named(&[], cased)
    };
    assert_eq!(names(&desk, &first), ["B"]);
}

/// Appendix E, 1.2: sortByDateAsc and sortByDateDesc precede a sort by name that was not asked for, and equal dates
/// are sorted by name.
#[test]
fn sorts_by_date() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let same = ["z", "y", "x"].map(|name| service(ward, name));
    let saved = desk.ask("ada", |ada| ada.save_service(&same)).unwrap();
    saved.wait().unwrap();
    desk.service("ada", ward, "a");
    for (words, sorted) in [
        (["sortByDateAsc"], ["x", "y", "z", "a"]),
        (["sortByDateDesc"], ["a", "x", "y", "z"]),
    ] {
        assert_eq!(names(&desk, &named(&[], &words)), sorted);
        assert_eq!(names(&desk, &named(&["%"], &words)), sorted);
    }
    let (desk, _) = with_services(&["b", "c", "a"]);
    assert_eq!(
        names(&desk, &named(&[], &["sortByDateAsc"])),
        ["b", "c", "a"]
    );
    assert_eq!(
        names(&desk, &named(&["%"], &["sortByDateDesc"])),
        ["a", "c", "b"]
    );
}

/// find_service, attribute maxRows; serviceList, attribute truncated. Appendix E: the sort
/// precedes the truncation.
#[test]
fn max_rows_cuts_after_the_sort() {
    let (desk, _) = with_services(&["d", "b", "c", "a"]);
    for (words, expect) in [
        (&[][..], ["a", "b"]),
        (&["sortByNameDesc"], ["d", "c"]),
        (&["sortByDateAsc"], ["d", "b"]),
        (&["sortByDateDesc"], ["a", "c"]),
    ] {
        let ask = FindService {
            max_rows: Some(2),
            ..named(&[], words)
        };
        assert_eq!(names(&desk, &ask), expect, "{words:?}");
        assert!(desk.inquiry().find_service(&ask).unwrap().is_truncated);
        let ask = FindService {
            max_rows: Some(4),
            ..ask
        };
        let all = desk.inquiry().find_service(&ask).unwrap();
        assert_eq!((all.items.len(), all.is_truncated), (4, false));
    }
    let ask = FindService {
        max_rows: Some(MAX_ROWS + 1),
        ..FindService::default()
    };
    assert_eq!(names(&desk, &ask).len(), 4);
}

/// Further names do not decide the order, also when the rows are cut.
#[test]
fn the_first_name_sorts() {
    let mut desk = Desk::new();
    let business = desk.business("ada", "Ward 3");
    for (first, second) in [("m", "a1"), ("z", "a2"), ("a9", "q")] {
        let mut two = service(business, first);
        two.names.push(Text {
            language: Language::parse("de"),
            text: second.to_owned(),
        });
        desk.save_service("ada", two).unwrap();
    }
    let ask = FindService {
        max_rows: Some(2),
        ..named(&["a"], &[])
    };
    assert_eq!(names(&desk, &ask), ["a9", "m"]);
}

/// find_service, argument businessKey: services of that business only, with projections; a
/// business that does not exist is an error.
#[test]
fn a_business_restricts_the_services() {
    let (mut desk, ward) = with_services(&["a"]);
    let other = desk.business("bob", "Ward 4");
    desk.service("bob", other, "b");
    let of = |key: BusinessKey| FindService {
        business_key: Some(key),
        ..FindService::default()
    };
    assert_eq!(names(&desk, &of(ward)), ["a"]);
    let found = desk
        .inquiry()
        .find_service(&of(ward))
        .unwrap()
        .items
        .remove(0);
    let mut projecting = business("Ward 5");
    projecting.services = vec![BusinessService {
        key: Some(found.service_key),
        business_key: Some(ward),
        ..BusinessService::default()
    }];
    let third = desk.save_business("bob", projecting).unwrap().key.unwrap();
    assert_eq!(names(&desk, &of(third)), ["a"]);
    let projected = desk.inquiry().find_service(&of(third)).unwrap();
    assert_eq!(projected.items[0].business_key, ward);
    let unknown = desk.inquiry().find_service(&of(BusinessKey::new(7)));
    assert_eq!(code(unknown), ErrorCode::InvalidKeyPassed);
}

fn categorized(desk: &mut Desk, business: BusinessKey, name: &str, bag: Vec<KeyedReference>) {
    let one = BusinessService {
        category_bag: bag,
        ..service(business, name)
    };
    desk.save_service("ada", one).unwrap();
}

/// find_service, argument categoryBag: all references by default; appendix E, orAllKeys and
/// orLikeKeys. tModelKey and keyValue must match, keyName is ignored.
#[test]
fn categories_are_all_required_by_default() {
    let mut desk = Desk::new();
    let business = desk.business("ada", "Ward 3");
    let [color, size] = ["color", "size"].map(|name| desk.tmodel("ada", name));
    let (red, blue) = (reference(color, "red"), reference(color, "blue"));
    let (big, small) = (reference(size, "big"), reference(size, "small"));
    categorized(
        &mut desk,
        business,
        "red big",
        vec![red.clone(), big.clone()],
    );
    categorized(
        &mut desk,
        business,
        "blue big",
        vec![blue.clone(), big.clone()],
    );
    categorized(
        &mut desk,
        business,
        "blue small",
        vec![blue.clone(), small.clone()],
    );
    let ask = |bag: &[&KeyedReference], words: &[&str]| FindService {
        category_bag: bag.iter().copied().cloned().collect(),
        qualifiers: qualifiers(words),
        ..FindService::default()
    };
    assert_eq!(names(&desk, &ask(&[&blue, &big], &[])), ["blue big"]);
    assert!(names(&desk, &ask(&[&red, &blue], &[])).is_empty());
    let any = names(&desk, &ask(&[&red, &small], &["orAllKeys"]));
    assert_eq!(any, ["blue small", "red big"]);
    let like = names(&desk, &ask(&[&red, &blue, &big], &["orLikeKeys"]));
    assert_eq!(like, ["blue big", "red big"]);
    let other_name = KeyedReference {
        key_name: Some("colour".to_owned()),
        ..red
    };
    assert_eq!(names(&desk, &ask(&[&other_name], &[])), ["red big"]);
    assert!(names(&desk, &ask(&[&reference(size, "red")], &[])).is_empty());
    let mut named = ask(&[&big], &[]);
    named.names = vec![Text::plain("blue")];
    assert_eq!(names(&desk, &named), ["blue big"]);
}

/// A reference without a tModelKey is in uddi-org:general_keywords, where the name counts.
#[test]
fn general_keywords_have_names() {
    let mut desk = Desk::new();
    let business = desk.business("ada", "Ward 3");
    let keyword = |tmodel_key, name: &str| KeyedReference {
        tmodel_key,
        key_name: Some(name.to_owned()),
        key_value: "x".to_owned(),
    };
    categorized(&mut desk, business, "one", vec![keyword(None, "bed")]);
    let ask = |reference| FindService {
        category_bag: vec![reference],
        ..FindService::default()
    };
    assert_eq!(names(&desk, &ask(keyword(None, "bed"))), ["one"]);
    assert_eq!(
        names(&desk, &ask(keyword(Some(GENERAL_KEYWORDS), "bed"))),
        ["one"]
    );
    assert!(names(&desk, &ask(keyword(None, "room"))).is_empty());
}

/// find_service, argument tModelBag: one binding has all tModels; with orAllKeys any. An unknown
/// tModel is an error.
#[test]
fn a_fingerprint_is_of_one_binding() {
    let (mut desk, ward) = with_services(&[]);
    let [a, b] = ["a", "b"].map(|name| desk.tmodel("ada", name));
    let both = BusinessService {
        bindings: vec![binding(None, &[a, b])],
        ..service(ward, "both")
    };
    desk.save_service("ada", both).unwrap();
    let apart = BusinessService {
        bindings: vec![binding(None, &[a]), binding(None, &[b])],
        ..service(ward, "apart")
    };
    desk.save_service("ada", apart).unwrap();
    let ask = |tmodels: &[_], words: &[&str]| FindService {
        tmodel_bag: tmodels.to_vec(),
        qualifiers: qualifiers(words),
        ..FindService::default()
    };
    assert_eq!(names(&desk, &ask(&[a, b], &[])), ["both"]);
    assert_eq!(
        names(&desk, &ask(&[a, b], &["orAllKeys"])),
        ["apart", "both"]
    );
    assert_eq!(names(&desk, &ask(&[b], &[])), ["apart", "both"]);
    let unknown = chappe_registry::uddi::TModelKey::new(9);
    let unknown = desk.inquiry().find_service(&ask(&[a, unknown], &[]));
    assert_eq!(code(unknown), ErrorCode::InvalidKeyPassed);
}

/// Appendix E, 1.2: combineCategoryBags and serviceSubset are only of find_business, and ignored here.
#[test]
fn qualifiers_of_businesses_are_ignored() {
    let (desk, _) = with_services(&["a"]);
    for word in ["combineCategoryBags", "serviceSubset"] {
        let parsed = FindQualifiers::parse(FindCall::Service, [word]).unwrap();
        assert_eq!(parsed, FindQualifiers::default());
        assert_eq!(names(&desk, &named(&["a"], &[word])), ["a"]);
    }
}

/// An inquiry whose time is over fails whole: no find gives a part of its answer as if it were all.
#[test]
fn an_inquiry_that_takes_too_long_fails() {
    // The interrupt is asked every few hundred steps.
    let names: Vec<String> = (0..300).map(|number| format!("Heart {number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (desk, business) = with_services(&names);
    let asks = [
        named(&["%heart%"], &[]),
        named(&["heart"], &["sortByDateAsc"]),
        named(&["heart"], &["sortByNameDesc", "caseSensitiveMatch"]),
        FindService {
            business_key: Some(business),
            ..FindService::default()
        },
    ];
    for ask in &asks {
        let find = |interrupt| desk.inquiry().until(interrupt).find_service(ask);
        let whole = find(Interrupt::never()).unwrap();
        let expected = match ask.qualifiers.case_sensitive_match {
            true => 0,
            false => names.len(),
        };
        assert_eq!((whole.items.len(), whole.is_truncated), (expected, false));
        let error = find(Interrupt::when(|| true)).unwrap_err();
        assert_eq!(error.code, ErrorCode::Busy, "{error}");
        assert!(error.to_string().contains("time limit"), "{error}");
    }
    let of_services = FindBusiness {
        names: vec![Text::plain("Ward")],
        ..FindBusiness::default()
    };
    let late = desk.inquiry().until(Interrupt::when(|| true));
    assert_eq!(code(late.find_business(&of_services)), ErrorCode::Busy);
}
