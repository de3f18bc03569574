//! Two texts of the same document give the same canonical stream, and different documents give
//! different ones, with and without a schema.

use std::sync::Arc;

use chappe_exi::{CanonicalOptions, Encoder, Options, Preserve, Schema, XsdSource, text};

const XSD: &[u8] = br#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:element name="r"><xs:complexType><xs:sequence>
    <xs:element name="f" type="xs:double" minOccurs="0"/>
    <xs:element name="d" type="xs:decimal" minOccurs="0"/>
    <xs:element name="t" type="xs:dateTime" minOccurs="0"/>
    <xs:element name="s" type="xs:string" minOccurs="0"/>
    <xs:element name="k" type="xs:token" minOccurs="0"/>
  </xs:sequence><xs:attribute name="a"/><xs:attribute name="b"/></xs:complexType></xs:element>
</xs:schema>"#;

fn schema() -> Arc<Schema> {
    let source = XsdSource {
        name: "r.xsd".into(),
        document: XSD.to_vec(),
    };
    Arc::new(Schema::from_xsd(vec![source], &mut |_, _| None).expect("it is a schema"))
}

fn stream(schema: &Arc<Schema>, options: &Options, utc_time: bool, document: &str) -> Vec<u8> {
    let canonical = CanonicalOptions {
        omit_options_document: true,
        utc_time,
    };
    let mut encoder = Encoder::new(schema.clone());
    let made = text::encode_canonical(&mut encoder, options, canonical, document.as_bytes());
    made.expect("it is a document").to_vec()
}

#[test]
fn equal_values_give_equal_streams() {
    let schema = schema();
    let options = Options::default();
    let same = |utc, a: &str, b: &str| {
        let (a, b) = (format!("<r>{a}</r>"), format!("<r>{b}</r>"));
        stream(&schema, &options, utc, &a) == stream(&schema, &options, utc, &b)
    };
    for (a, b) in [
        ("<f>1200</f>", "<f>12.00e2</f>"),
        ("<f>-0</f>", "<f>0.0</f>"),
        ("<d>-0.0</d>", "<d>+00</d>"),
        (
            "<t>1999-12-31T24:00:00Z</t>",
            "<t>2000-01-01T00:00:00.0+00:00</t>",
        ),
        ("<k>a b</k>", "<k>  a\n\tb </k>"),
        ("<s></s>", "<s/>"),
        ("\n  <s> x </s>\n", "<s> x </s>"),
    ] {
        assert!(same(false, a, b), "{a} {b}");
    }
    let (there, here) = (
        "<t>2026-02-28T23:30:00-01:00</t>",
        "<t>2026-03-01T00:30:00Z</t>",
    );
    assert!(same(true, there, here));
    assert!(!same(false, there, here));
    assert!(!same(false, "<s> x</s>", "<s>x</s>"));
    assert!(!same(false, "<s> </s>", "<s/>"));
}

#[test]
fn attribute_and_declaration_order_is_ignored() {
    let options = Options {
        preserve: Preserve {
            prefixes: true,
            ..Preserve::default()
        },
        ..Options::default()
    };
    for schema in [schema(), Arc::new(Schema::none())] {
        let one = stream(
            &schema,
            &options,
            false,
            "<r xmlns:p='u:p' xmlns:o='u:o' b='1' a='2'/>",
        );
        let other = stream(
            &schema,
            &options,
            false,
            "<r a='2' b='1' xmlns:o='u:o' xmlns:p='u:p'></r>",
        );
        assert_eq!(one, other);
    }
}

#[test]
fn significant_white_space_is_kept() {
    let (schema, options) = (Arc::new(Schema::none()), Options::default());
    let same = |a, b| stream(&schema, &options, false, a) == stream(&schema, &options, false, b);
    assert!(same("<a> <b/> </a>", "<a><b/></a>"));
    assert!(!same("<a> </a>", "<a/>"));
    assert!(!same(
        "<a xml:space='preserve'> <b/></a>",
        "<a xml:space='preserve'><b/></a>"
    ));
    assert!(!same("<a> x<b/></a>", "<a>x<b/></a>"));
}

#[test]
fn compression_is_left_to_the_transport() {
    let schema = Arc::new(Schema::none());
    let compressed = Options {
        compression: true,
        ..Options::default()
    };
    let made = stream(&schema, &compressed, false, "<a>text</a>");
    let mut decoder = chappe_exi::Decoder::new(schema.clone());
    let read = text::decode(&mut decoder, &made, Some(&compressed.canonical()));
    assert_eq!(read.as_deref(), Ok("<a>text</a>"));
}
