//! Goal: flat types are read with all their meaning, and other types report why they are not flat.
//! Method: a handwritten document per rule, and generated types that must round-trip.

use std::time::Duration;

use chappe_soap::schema::{
    FieldPlace, FlatField, FlatType, NotFlatReason, Schemas, XsdType, to_schema,
};
use chappe_xml::{Element, Name};
use proptest::prelude::*;

const HEAD: &str = r#"<s:schema xmlns:s="http://www.w3.org/2001/XMLSchema" xmlns:t="urn:t"
    xmlns:m="http://www.w3.org/ns/sawsdl" xmlns:c="https://chappe.example/ns"
    targetNamespace="urn:t" elementFormDefault="qualified">"#;

fn schemas(body: &str) -> Schemas {
    let document = format!("{HEAD}{body}</s:schema>");
    let mut schemas = Schemas::default();
    schemas
        .add("t.xsd", &Element::parse(document.as_bytes()).unwrap())
        .unwrap();
    schemas
}

fn flat(body: &str) -> FlatType {
    schemas(body).flat(&Name::new("urn:t", "E")).unwrap()
}

fn reason(body: &str) -> (NotFlatReason, String) {
    let not_flat = schemas(body).flat(&Name::new("urn:t", "E")).unwrap_err();
    (not_flat.reason, not_flat.at)
}

#[test]
fn fields_have_type_and_meaning() {
    let flat_type = flat(
        r#"<s:element name="E" type="t:T"><s:annotation><s:documentation> A
              report. </s:documentation></s:annotation></s:element>
           <s:complexType name="Base"><s:sequence>
             <s:element name="at" type="s:dateTime"/>
           </s:sequence><s:attribute name="id" use="required"/></s:complexType>
           <s:complexType name="T"><s:complexContent><s:extension base="t:Base"><s:sequence>
             <s:element name="pulse" type="t:Rate" minOccurs="0" maxOccurs="2"
                m:modelReference="urn:heart urn:rate"/>
             <s:element name="wave" c:samplePeriod="PT0.002S" c:unit="mV">
               <s:simpleType><s:list itemType="s:double"/></s:simpleType></s:element>
             <s:any minOccurs="0"/>
           </s:sequence></s:extension></s:complexContent></s:complexType>
           <s:simpleType name="Rate" c:unit="/min"><s:restriction base="s:int"/></s:simpleType>"#,
    );
    assert_eq!(flat_type.doc.as_deref(), Some("A report."));
    let names: Vec<_> = flat_type
        .fields
        .iter()
        .map(|field| &*field.name.local)
        .collect();
    assert_eq!(names, ["at", "pulse", "wave", "id"]);
    let [at, pulse, wave, id] = &flat_type.fields[..] else {
        panic!()
    };
    assert_eq!(at.data_type, XsdType::DateTime);
    assert!(pulse.optional && pulse.repeated && !pulse.list);
    assert_eq!(pulse.unit.as_deref(), Some("/min"));
    assert_eq!(pulse.model_reference, ["urn:heart", "urn:rate"]);
    assert!(wave.list && wave.data_type == XsdType::Double);
    assert_eq!(wave.sample_period, Some(Duration::from_millis(2)));
    assert_eq!(
        (id.place, id.name.namespace.as_ref()),
        (FieldPlace::Attribute, "")
    );
    assert!(!id.optional);
}

#[test]
fn simple_element_is_one_field() {
    let flat_type = flat(r#"<s:element name="E" c:unit="Cel" type="s:float"/>"#);
    assert_eq!(flat_type.fields[0].place, FieldPlace::Text);
    assert_eq!(flat_type.fields[0].unit.as_deref(), Some("Cel"));
    let flat_type = flat(
        r#"<s:element name="E"><s:complexType><s:simpleContent><s:extension base="s:int">
             <s:attribute name="q" type="s:string"/>
           </s:extension></s:simpleContent></s:complexType></s:element>"#,
    );
    let places: Vec<_> = flat_type.fields.iter().map(|field| field.place).collect();
    assert_eq!(places, [FieldPlace::Text, FieldPlace::Attribute]);
}

#[test]
fn not_flat_types_report_reason_and_position() {
    let inside = |content: &str| {
        let body = format!(
            r#"<s:element name="E"><s:complexType>{content}</s:complexType></s:element>
               <s:complexType name="Loop"><s:complexContent><s:extension base="t:Loop"/>
               </s:complexContent></s:complexType>
               <s:complexType name="C"><s:sequence/></s:complexType>
               <s:simpleType name="U"><s:union memberTypes="s:int s:string"/></s:simpleType>"#
        );
        reason(&body)
    };
    let element_itself = String::new();
    assert_eq!(
        inside("<s:choice/>"),
        (
            NotFlatReason::ContentModel("xs:choice"),
            element_itself.clone()
        )
    );
    assert_eq!(
        inside(r#"<s:sequence><s:element name="x" type="t:C"/></s:sequence>"#),
        (NotFlatReason::Nested, "x".into())
    );
    assert_eq!(
        inside(r#"<s:sequence><s:element name="x" type="t:U"/></s:sequence>"#),
        (NotFlatReason::Union, "x".into())
    );
    assert_eq!(
        inside(r#"<s:sequence><s:element name="x" type="t:None"/></s:sequence>"#),
        (
            NotFlatReason::UnknownType(Name::new("urn:t", "None")),
            "x".into()
        )
    );
    assert_eq!(
        inside(r#"<s:sequence><s:element name="x" type="nope:T"/></s:sequence>"#),
        (NotFlatReason::UnboundPrefix("nope:T".into()), "x".into())
    );
    assert_eq!(
        inside("<s:sequence><s:any/></s:sequence>"),
        (NotFlatReason::Anything, element_itself.clone())
    );
    let (depth, _) = inside(r#"<s:complexContent><s:extension base="t:Loop"/></s:complexContent>"#);
    assert!(matches!(depth, NotFlatReason::Depth(_)));
    assert_eq!(reason("").0, NotFlatReason::UnknownElement);
    assert_eq!(
        reason(r#"<s:element name="E"/>"#).0,
        NotFlatReason::Anything
    );
    let text = schemas("")
        .flat(&Name::new("urn:t", "E"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "{urn:t}E is not flat: no available schema declares it (no file)"
    );
}

#[test]
fn attribute_groups_and_extension_points_are_flat() {
    let flat_type = flat(
        r#"<s:attributeGroup name="G"><s:attribute name="v" type="s:long"/></s:attributeGroup>
           <s:element name="X"><s:complexType><s:sequence><s:any minOccurs="0"/></s:sequence>
           </s:complexType></s:element>
           <s:element name="E"><s:complexType><s:sequence><s:element ref="t:X" minOccurs="0"/>
             <s:element name="a" type="s:int"/></s:sequence><s:attributeGroup ref="t:G"/>
           </s:complexType></s:element>"#,
    );
    let names: Vec<_> = flat_type
        .fields
        .iter()
        .map(|field| &*field.name.local)
        .collect();
    assert_eq!(names, ["a", "v"]);
    let (circular, _) = reason(
        r#"<s:attributeGroup name="G"><s:attributeGroup ref="t:G"/></s:attributeGroup>
           <s:element name="E"><s:complexType><s:attributeGroup ref="t:G"/></s:complexType>
           </s:element>"#,
    );
    assert!(matches!(circular, NotFlatReason::Depth(_)));
}

#[test]
fn missing_documents_are_listed() {
    let missing = schemas(
        r#"<s:import namespace="urn:a" schemaLocation="a.xsd"/><s:import namespace="urn:t"/>
           <s:include schemaLocation="more.xsd"/>"#,
    )
    .missing();
    let locations: Vec<_> = missing
        .iter()
        .map(|known| known.location.as_deref())
        .collect();
    assert_eq!(locations, [Some("a.xsd"), Some("more.xsd")]);
}

fn any_type() -> impl Strategy<Value = XsdType> {
    let all: Vec<_> = XsdType::all().collect();
    proptest::sample::select(all)
}

prop_compose! {
    fn any_field()(
        local in "[a-z][a-z0-9]{0,6}",
        attribute in any::<bool>(),
        data_type in any_type(),
        (list, optional, repeated) in any::<(bool, bool, bool)>(),
        enumeration in proptest::collection::vec("[a-z]{1,4}", 0..3),
        doc in proptest::option::of("[a-z<&]{1,6}( [a-z]{1,6})?"),
        model_reference in proptest::collection::vec("urn:[a-z]{1,6}", 0..3),
        unit in proptest::option::of("[a-zA-Z/%\\[\\]]{1,6}"),
        period in proptest::option::of(1_u64..1 << 40),
    ) -> FlatField {
        let namespace = if attribute { "" } else { "urn:t" };
        FlatField {
            place: if attribute { FieldPlace::Attribute } else { FieldPlace::Element },
            list,
            optional,
            repeated: repeated && !attribute,
            enumeration,
            doc,
            model_reference,
            unit,
            sample_period: period.filter(|_| list).map(Duration::from_nanos),
            ..FlatField::new(Name::owned(namespace, local), data_type)
        }
    }
}

proptest! {
    #[test]
    fn generated_schemas_round_trip(
        fields in proptest::collection::vec(any_field(), 0..6),
        text in proptest::option::of(any_field()),
        doc in proptest::option::of("[a-z]{1,9}"),
    ) {
        let name = Name::owned("urn:t", "E");
        let mut fields = fields;
        if let Some(text) = text {
            fields.retain(|field| field.place == FieldPlace::Attribute);
            // Text with attributes has only its type; annotations belong to the element.
            let field = FlatField {
                data_type: text.data_type,
                place: FieldPlace::Text,
                ..FlatField::new(name.clone(), text.data_type)
            };
            fields.insert(0, field);
        }
        fields.sort_by_key(|field| field.place == FieldPlace::Attribute);
        let flat = FlatType { name: name.clone(), fields, doc };
        let document = to_schema("urn:t", std::slice::from_ref(&flat)).to_text();
        let mut schemas = Schemas::default();
        schemas.add("g.xsd", &Element::parse(document.as_bytes()).unwrap()).unwrap();
        let read = schemas.flat(&name).unwrap();
        let mut flat = flat;
        if flat.fields.len() == 1 && flat.fields[0].place == FieldPlace::Text {
            // A single simple element shares its documentation with its field.
            flat.fields[0].doc.clone_from(&flat.doc);
        }
        prop_assert_eq!(read, flat);
    }
}
