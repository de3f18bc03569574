//! Goal: each service gets the mapping that its WSDL allows, and services without one are reported.
//! Method: short descriptions of services, with flat and nested event types.

use std::collections::HashSet;

use chappe_device::mapping::flat::FlatMapping;
use chappe_device::mapping::rules::Rules;
use chappe_device::mapping::{Mapping as _, Plan, Trouble, plan};
use chappe_soap::schema::{FlatField, FlatType, Schemas, Work, XsdType, to_schema};
use chappe_soap::wsdl::{Service, ServiceOperation, Wsdl};
use chappe_xml::{Element, Name};

const NS: &str = "http://example.com/air";

fn wsdl(events: &[(&str, &'static str)], schema: Element) -> Wsdl {
    let event = |(name, element): &(&str, &'static str)| {
        ServiceOperation::event(name, Name::new(NS, element))
    };
    let service = Service {
        target_namespace: NS.into(),
        name: "Air".into(),
        operations: events.iter().map(event).collect(),
        schemas: vec![schema],
        address: None,
    };
    Wsdl::parse(service.to_wsdl().to_text().as_bytes()).expect("generated WSDL is valid")
}

fn flat(local: &'static str) -> FlatType {
    let value = FlatField::new(Name::new(NS, "Value"), XsdType::Double).with_unit("Cel");
    FlatType {
        name: Name::new(NS, local),
        fields: vec![value],
        doc: None,
    }
}

fn planned(wsdl: &Wsdl, rules: &Rules) -> (Plan, Vec<Trouble>) {
    let mut schemas = Schemas::default();
    for schema in &wsdl.schemas {
        schemas.add("test", schema).expect("the schema is one");
    }
    plan(wsdl, &schemas, rules, &mut Work::default())
}

#[test]
fn flat_events_need_no_configuration() {
    let wsdl = wsdl(
        &[("Temperature", "Reading")],
        to_schema(NS, &[flat("Reading")]),
    );
    let (plan, troubles) = planned(&wsdl, &Rules::default());
    assert_eq!(troubles, []);
    let Plan::Events(mappings) = plan else {
        panic!("{plan:?}")
    };
    let offer = &mappings[0].offers()[0];
    assert_eq!(offer.name, "temperature");
    assert_eq!(offer.schema.fields[0].unit.as_deref(), Some("Cel"));
    assert_eq!(
        mappings[0].actions(),
        ["http://example.com/air/Air/Temperature"]
    );
}

#[test]
fn nested_events_are_reported_and_mapped_by_rules() {
    let schema = format!(
        "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='{NS}'>
           <xs:element name='Deep'><xs:complexType><xs:sequence>
             <xs:element name='Inner'><xs:complexType><xs:sequence>
               <xs:element name='V' type='xs:int'/>
             </xs:sequence></xs:complexType></xs:element>
           </xs:sequence></xs:complexType></xs:element>
         </xs:schema>"
    );
    let schema = Element::parse(schema.as_bytes()).expect("the schema is XML");
    let wsdl = wsdl(&[("Deep", "Deep")], schema);
    let (without, troubles) = planned(&wsdl, &Rules::default());
    assert!(matches!(without, Plan::Nothing));
    assert_eq!(troubles[0].reason, "event_not_flat");
    assert!(
        troubles[0].detail.contains("has children or attributes"),
        "{}",
        troubles[0].detail
    );
    assert!(troubles[0].hint.is_some());

    let rules = "[[rule]]\naction='http://example.com/air/Air/Deep'\nstream='deep'\n\
                 [[rule.field]]\nname='v'\npath='Inner/V'\ntype='integer'\n";
    let rules = Rules::parse("rules.toml", rules).expect("the rules are right");
    let (with, troubles) = planned(&wsdl, &rules);
    assert_eq!(troubles, []);
    let Plan::Events(mappings) = with else {
        panic!("{with:?}")
    };
    assert_eq!(mappings[0].offers()[0].name, "deep");
}

#[test]
fn services_of_medical_devices_are_left_to_sdc() {
    let service = Service {
        target_namespace: chappe_device::mapping::sdc::SERVICES.into(),
        name: "WaveformService".into(),
        operations: Vec::new(),
        schemas: Vec::new(),
        address: None,
    };
    let (plan, troubles) = planned(&service.to_wsdl(), &Rules::default());
    assert!(matches!(plan, Plan::Sdc) && troubles.is_empty());
}

#[test]
fn the_services_of_a_device_share_the_work() {
    let wsdl = wsdl(
        &[("One", "Reading"), ("Two", "Reading"), ("Three", "Reading")],
        to_schema(NS, &[flat("Reading")]),
    );
    let mut schemas = Schemas::default();
    schemas
        .add("test", &wsdl.schemas[0])
        .expect("the schema is one");
    // Sufficient for the first event only.
    let mut work = Work::with_bytes(2_000);
    let (plan, troubles) = plan(&wsdl, &schemas, &Rules::default(), &mut work);
    let Plan::Events(mappings) = plan else {
        panic!("{plan:?}")
    };
    assert_eq!(mappings[0].offers().len(), 1);
    let reasons: Vec<_> = troubles.iter().map(|trouble| trouble.reason).collect();
    assert_eq!(reasons, ["event_not_flat", "events_left_out"]);
    assert!(
        troubles[1].detail.starts_with("1 events"),
        "{}",
        troubles[1].detail
    );
}

#[test]
fn a_thousand_fields_of_one_name_get_names_of_their_own() {
    let same = flat("Reading").fields.remove(0);
    let type_of = |count| FlatType {
        fields: vec![same.clone(); count],
        ..flat("Reading")
    };
    let mut mapping = FlatMapping::default();
    mapping.add("Few", "urn:few", type_of(3)).expect("usable");
    mapping
        .add("Many", "urn:many", type_of(1_000))
        .expect("usable");
    let names = |offer: usize| -> Vec<String> {
        let fields = mapping.offers()[offer].schema.fields.iter();
        fields.map(|field| field.name.clone()).collect()
    };
    assert_eq!(names(0), ["value", "value_", "value__"]);
    let unique: HashSet<_> = names(1).into_iter().collect();
    assert_eq!(unique.len(), 1_000);
}
