//! Goal: what a document defines is what is found, for any document.
//! Method: random descriptions; each port type, operation, part and port is asked for.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use chappe_registry::wsdl::{Exchange, FindInterface, FindServices};
use proptest::prelude::*;

use super::{desk, prepared, put, tmodels, ward_of};

/// A port type: its operations, each with the element of its input, and with an output or without.
type Described = Vec<Vec<(u8, bool)>>;

fn text(port_types: &Described, ports: &[u8]) -> String {
    let mut text = String::from(
        "<definitions xmlns='http://schemas.xmlsoap.org/wsdl/' xmlns:t='urn:t' targetNamespace='urn:t' \
         xmlns:soap='http://schemas.xmlsoap.org/wsdl/soap/'>",
    );
    for element in 0..4 {
        write!(
            text,
            "<message name='M{element}'><part name='p{element}' element='t:E{element}'/></message>"
        )
        .unwrap();
    }
    for (at, operations) in port_types.iter().enumerate() {
        write!(text, "<portType name='P{at}'>").unwrap();
        for (number, (input, has_output)) in operations.iter().enumerate() {
            let output = if *has_output {
                "<output message='t:M0'/>"
            } else {
                ""
            };
            write!(
                text,
                "<operation name='O{number}'><input message='t:M{input}'/>{output}</operation>"
            )
            .unwrap();
        }
        text.push_str("</portType>");
    }
    for at in 0..port_types.len() {
        write!(
            text,
            "<binding name='B{at}' type='t:P{at}'><soap:binding/></binding>"
        )
        .unwrap();
    }
    for (at, port) in ports.iter().enumerate() {
        let of = usize::from(*port) % port_types.len();
        write!(
            text,
            "<service name='S{at}'><port name='Q' binding='t:B{of}'><soap:address location='http://192.0.2.1/{at}'/>\
             </port></service>"
        )
        .unwrap();
    }
    text + "</definitions>"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_defined_is_found(
        port_types in proptest::collection::vec(proptest::collection::vec((0_u8..4, any::<bool>()), 0..4), 1..4),
        ports in proptest::collection::vec(any::<u8>(), 0..5),
    ) {
        let mut desk = desk();
        let ward = ward_of(&mut desk, "ada");
        let text = text(&port_types, &ports);
        put(&mut desk, "ada", &[prepared("urn:d", text.clone())], Some(ward)).unwrap();
        let inquiry = desk.inquiry();
        prop_assert_eq!(inquiry.document("urn:d").unwrap().1, text.into_bytes());
        prop_assert_eq!(tmodels(&desk, "portType").len(), port_types.len());
        prop_assert_eq!(tmodels(&desk, "binding").len(), port_types.len());
        for (at, operations) in port_types.iter().enumerate() {
            let iri = format!("urn:t#wsdl11.portType(P{at})");
            let ask = FindServices { interface: Some(iri), ..FindServices::default() };
            let found = inquiry.find_services(&ask).unwrap().items;
            let found: BTreeSet<String> = found.into_iter().map(|it| it.names[0].text.clone()).collect();
            let of = ports.iter().enumerate().filter(|(_, port)| usize::from(**port) % port_types.len() == at);
            let expected: BTreeSet<String> = of.map(|(number, _)| format!("S{number}")).collect();
            prop_assert_eq!(found, expected);
            for (number, (input, has_output)) in operations.iter().enumerate() {
                let iri = format!("urn:t#wsdl11.portTypeOperation(P{at}/O{number})");
                let messages = inquiry.messages_of(&iri, Exchange::Input).unwrap();
                prop_assert_eq!(&messages[0].parts[0].name, &format!("p{input}"));
                prop_assert_eq!(inquiry.messages_of(&iri, Exchange::Output).unwrap().len(), usize::from(*has_output));
            }
        }
        for element in 0..4_u8 {
            let ask = FindInterface { input: Some(format!("{{urn:t}}E{element}")), ..FindInterface::default() };
            let found = inquiry.find_interfaces(&ask).unwrap().items;
            let found: BTreeSet<String> = found.into_iter().map(|it| it.name).collect();
            let takes = |operations: &Vec<(u8, bool)>| operations.iter().any(|(input, _)| *input == element);
            let takers = port_types.iter().enumerate().filter(|(_, operations)| takes(operations));
            let expected: BTreeSet<String> = takers.map(|(at, _)| format!("P{at}")).collect();
            prop_assert_eq!(found, expected);
        }
        let keys = ["urn:d".to_owned()];
        let revision = desk.registry.statistics().entities;
        desk.ask("ada", |ada| ada.remove_documents(&keys)).unwrap().wait().unwrap();
        let services = ports.len() * 2;
        prop_assert_eq!(desk.registry.statistics().entities, revision - 1 - 2 * port_types.len() - services);
    }
}
