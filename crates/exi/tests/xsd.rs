//! Schemas can be composed in all ways that XML Schema defines, and errors name file and line.
//! Schemas of several documents are compiled; strict streams show which documents they allow, and
//! that equivalent schemas give the same streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use chappe_exi::{Decoder, Encoder, HeaderOptions, Options, Schema, XsdError, XsdSource, text};

const XS: &str = "xmlns:xs='http://www.w3.org/2001/XMLSchema'";

/// Compiles the first of these documents; the others are resolved by name.
fn compile(documents: &[(&str, &str)]) -> Result<Arc<Schema>, XsdError> {
    let source = |name: &str, body: &str| XsdSource {
        name: name.into(),
        document: format!("<xs:schema {XS} {body}</xs:schema>").into_bytes(),
    };
    let known: BTreeMap<&str, &str> = documents.iter().copied().collect();
    let (first, body) = documents[0];
    let mut resolve = |_: &str, location: &str| Some(source(location, known.get(location)?));
    Schema::from_xsd(vec![source(first, body)], &mut resolve).map(Arc::new)
}

/// The strict stream of a document, checked to decode; none if the schema does not allow it.
fn stream(schema: &Arc<Schema>, document: &str) -> Option<Vec<u8>> {
    let options = Options {
        strict: true,
        ..Options::default()
    };
    let mut encoder = Encoder::new(schema.clone());
    let header = HeaderOptions::default();
    let made = text::encode(&mut encoder, &options, header, document.as_bytes()).ok()?;
    let made = made.to_vec();
    let mut decoder = Decoder::new(schema.clone());
    let read = text::decode(&mut decoder, &made, Some(&options));
    assert!(read.is_ok(), "{read:?}");
    Some(made)
}

fn allows(schema: &Arc<Schema>, documents: &[&str]) {
    for document in documents {
        assert!(stream(schema, document).is_some(), "{document}");
    }
}

fn refuses(schema: &Arc<Schema>, documents: &[&str]) {
    for document in documents {
        assert!(stream(schema, document).is_none(), "{document}");
    }
}

#[test]
fn includes_and_chameleons_compile() {
    let schema = compile(&[
        (
            "a.xsd",
            "targetNamespace='u:a' xmlns:a='u:a'><xs:include schemaLocation='b.xsd'/>
             <xs:include schemaLocation='c.xsd'/>
             <xs:element name='r' type='a:t'/>",
        ),
        // It includes the including document.
        (
            "b.xsd",
            "targetNamespace='u:a' xmlns:a='u:a'><xs:include schemaLocation='a.xsd'/>
             <xs:complexType name='t'><xs:sequence><xs:element name='x' type='a:code'/>
             <xs:element ref='a:r' minOccurs='0'/></xs:sequence></xs:complexType>",
        ),
        // Without a target namespace, it adopts that of the including document.
        (
            "c.xsd",
            "><xs:simpleType name='code'><xs:restriction base='short'/></xs:simpleType>
             <xs:simpleType name='short'><xs:restriction base='xs:unsignedByte'/></xs:simpleType>",
        ),
    ]);
    let schema = schema.expect("it is a schema");
    allows(
        &schema,
        &["<r xmlns='u:a'><x xmlns=''>255</x><r><x xmlns=''>1</x></r></r>"],
    );
    refuses(
        &schema,
        &[
            "<r xmlns='u:a'><x xmlns=''>256</x></r>",
            "<r xmlns='u:a'><y xmlns=''>1</y></r>",
        ],
    );
}

#[test]
fn imports_compile() {
    let main = "targetNamespace='u:a' xmlns:b='u:b' elementFormDefault='qualified'>
        <xs:import namespace='u:b' schemaLocation='b.xsd'/>
        <xs:import namespace='u:c' schemaLocation='nowhere.xsd'/>
        <xs:element name='r'><xs:complexType><xs:sequence><xs:element ref='b:e' maxOccurs='2'/>
        </xs:sequence><xs:attribute ref='b:k'/></xs:complexType></xs:element>";
    let other = "targetNamespace='u:b'><xs:element name='e' type='xs:int'/>
        <xs:attribute name='k' type='xs:int'/>";
    let schema = compile(&[("a.xsd", main), ("b.xsd", other)]).expect("it is a schema");
    allows(
        &schema,
        &["<r xmlns='u:a' xmlns:b='u:b' b:k='1'><b:e>5</b:e></r>"],
    );
    refuses(
        &schema,
        &[
            "<r xmlns='u:a' k='1'><b:e xmlns:b='u:b'>5</b:e></r>",
            "<r xmlns='u:a'><e>5</e></r>",
        ],
    );
    let missing = compile(&[("a.xsd", main)]).expect_err("the imported document is missing");
    assert_eq!(
        (missing.file.as_str(), missing.line),
        ("a.xsd", 5),
        "{missing}"
    );
}

#[test]
fn redefinitions_replace_their_originals() {
    let schema = compile(&[
        (
            "a.xsd",
            "><xs:redefine schemaLocation='b.xsd'>
               <xs:simpleType name='s'><xs:restriction base='s'><xs:maxInclusive value='9'/></xs:restriction></xs:simpleType>
               <xs:complexType name='t'><xs:complexContent><xs:extension base='t'><xs:sequence>
                 <xs:element name='y' type='s'/></xs:sequence></xs:extension></xs:complexContent></xs:complexType>
               <xs:group name='g'><xs:choice><xs:group ref='g'/><xs:element name='w' type='s'/></xs:choice></xs:group>
               <xs:attributeGroup name='h'><xs:attributeGroup ref='h'/><xs:attribute name='l' type='s'/></xs:attributeGroup>
             </xs:redefine>",
        ),
        (
            "b.xsd",
            "><xs:simpleType name='s'><xs:restriction base='xs:int'><xs:minInclusive value='0'/></xs:restriction></xs:simpleType>
             <xs:complexType name='t'><xs:sequence><xs:element name='x' type='s'/></xs:sequence></xs:complexType>
             <xs:group name='g'><xs:sequence><xs:element name='v' type='s'/></xs:sequence></xs:group>
             <xs:attributeGroup name='h'><xs:attribute name='k' type='s'/></xs:attributeGroup>
             <xs:element name='r' type='t'/>
             <xs:element name='q'><xs:complexType><xs:group ref='g'/><xs:attributeGroup ref='h'/></xs:complexType></xs:element>",
        ),
    ]);
    let schema = schema.expect("it is a schema");
    allows(
        &schema,
        &[
            "<r><x>9</x><y>0</y></r>",
            "<q k='1' l='2'><w>5</w></q>",
            "<q><v>5</v></q>",
        ],
    );
    refuses(
        &schema,
        &[
            "<r><x>9</x></r>",
            "<r><x>10</x><y>0</y></r>",
            "<q l='10'><w>5</w></q>",
        ],
    );
}

#[test]
fn groups_encode_as_written_out() {
    let grouped = compile(&[(
        "a.xsd",
        "><xs:group name='g'><xs:sequence><xs:element name='a' type='xs:int' minOccurs='0'/>
           <xs:group ref='h' minOccurs='0'/></xs:sequence></xs:group>
         <xs:group name='h'><xs:choice><xs:element name='b'/><xs:element name='c' type='xs:date'/></xs:choice></xs:group>
         <xs:attributeGroup name='i'><xs:attribute name='k' use='required'/><xs:attributeGroup ref='j'/></xs:attributeGroup>
         <xs:attributeGroup name='j'><xs:attribute name='l' type='xs:boolean'/><xs:anyAttribute namespace='u:x'/></xs:attributeGroup>
         <xs:element name='r'><xs:complexType><xs:group ref='g' maxOccurs='3'/><xs:attributeGroup ref='i'/></xs:complexType></xs:element>",
    )]);
    let plain = compile(&[(
        "a.xsd",
        "><xs:element name='r'><xs:complexType><xs:sequence maxOccurs='3'><xs:element name='a' type='xs:int' minOccurs='0'/>
           <xs:choice minOccurs='0'><xs:element name='b'/><xs:element name='c' type='xs:date'/></xs:choice></xs:sequence>
           <xs:attribute name='l' type='xs:boolean'/><xs:attribute name='k' use='required'/>
           <xs:anyAttribute namespace='u:x'/></xs:complexType></xs:element>",
    )]);
    let (grouped, plain) = (grouped.expect("a schema"), plain.expect("a schema"));
    for document in [
        "<r k=''/>",
        "<r k='1' l='true' x:y='2' xmlns:x='u:x'><a>5</a><b>6</b><c>2026-11-21</c><a>7</a></r>",
        "<r k='1'><c>2026-11-21</c><b/><a>1</a></r>",
    ] {
        let made = stream(&grouped, document);
        assert!(made.is_some(), "{document}");
        assert_eq!(made, stream(&plain, document), "{document}");
    }
    refuses(&grouped, &["<r k='1'><b/><b/><b/><b/></r>"]);
}

#[test]
fn all_groups_allow_any_order() {
    let schema = compile(&[(
        "a.xsd",
        "><xs:element name='r'><xs:complexType><xs:all><xs:element name='a' type='xs:int'/>
           <xs:element name='b' minOccurs='0'/><xs:element name='c'/></xs:all></xs:complexType></xs:element>",
    )]);
    let schema = schema.expect("it is a schema");
    allows(
        &schema,
        &[
            "<r><a>1</a><b/><c/></r>",
            "<r><c/><b/><a>1</a></r>",
            "<r><c/><a>1</a></r>",
        ],
    );
    refuses(&schema, &["<r><d/></r>", "<r><a>x</a></r>"]);
}

#[test]
fn errors_name_file_and_line() {
    let of = |documents: &[(&str, &str)]| {
        let error = compile(documents).expect_err("the schema is invalid");
        (error.file.clone(), error.line, error.reason)
    };
    let include = "><xs:include schemaLocation='b.xsd'/>";
    for (body, line, reason) in [
        (
            ">\n<xs:element name='a'\n type='none'/>",
            3,
            "type none is not declared",
        ),
        (">\n\n<xs:element/>", 3, "without a name"),
        (
            ">\n<xs:element name='a' type='p:t'/>",
            2,
            "prefix \"p\" is not bound",
        ),
        (
            ">\n<xs:complexType name='a'><xs:sequence>\n<xs:element ref='b'/></xs:sequence></xs:complexType>",
            3,
            "element b is not declared",
        ),
        (
            ">\n<xs:simpleType name='a'>\n<xs:restriction base='a'/></xs:simpleType>",
            3,
            "derives from itself",
        ),
        (
            ">\n<xs:element name='a'><xs:complexType><xs:sequence>\n<xs:element name='b' maxOccurs='many'/></xs:sequence></xs:complexType></xs:element>",
            3,
            "maxOccurs=\"many\"",
        ),
        (
            ">\n<xs:include schemaLocation='nowhere'/>",
            2,
            "cannot be read",
        ),
        (">\n<xs:element name='a'>\n</xs:elem>", 3, ""),
    ] {
        let (file, found, message) = of(&[("a.xsd", include), ("b.xsd", body)]);
        assert_eq!((file.as_str(), found), ("b.xsd", line), "{message}: {body}");
        assert!(message.contains(reason), "{message}");
    }
}
