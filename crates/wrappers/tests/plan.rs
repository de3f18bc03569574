//! Goal: each service gets the mapping that its WSDL allows, and what gets none is said.
//! Method: services described in a few words, with flat and nested event types.

use chappe_soap::schema::{FlatField, FlatType, Schemas, XsdType, to_schema};
use chappe_soap::wsdl::{Service, ServiceOperation, Wsdl};
use chappe_wrappers::rules::Rules;
use chappe_wrappers::{Plan, Trouble, plan};
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
    Wsdl::parse(service.to_wsdl().to_text().as_bytes()).expect("what we write we read")
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
    plan(wsdl, &schemas, rules)
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
fn what_is_not_flat_is_said_and_rules_help() {
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
        troubles[0].detail.contains("structure of its own"),
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
        target_namespace: chappe_wrappers::sdc::SERVICES.into(),
        name: "WaveformService".into(),
        operations: Vec::new(),
        schemas: Vec::new(),
        address: None,
    };
    let (plan, troubles) = planned(&service.to_wsdl(), &Rules::default());
    assert!(matches!(plan, Plan::Sdc) && troubles.is_empty());
}
