//! Goal: what is encoded decodes to the same, whatever the document, the schema and the options.
//! Method: schemas are made of nested sequences, choices, all-groups and mixed content with all kinds of
//! datatypes; documents are made by them, in the form in which they are written back; without strict
//! they also deviate from them: undeclared elements and attributes, values of other types, comments,
//! instructions. Options are drawn from all combinations that the specification allows.

use std::fmt::Write as _;
use std::sync::Arc;

use chappe_exi::{
    Alignment, Decoder, Encoder, Event, Float, HeaderOptions, Options, Preserve, QName,
    Representation, Schema, SchemaId, XsdSource, text,
};
use proptest::prelude::*;

/// What an element contains.
#[derive(Debug, Clone)]
enum Model {
    /// A value: which datatype.
    Value(usize),
    /// Children with their least and most occurrences, and whether text comes between them.
    Sequence(Vec<(Model, u32, u32)>, bool),
    Choice(Vec<Model>),
    All(Vec<Model>),
}

/// Datatypes: how a schema says them, and lexical forms as they are written back.
const DATATYPES: [(&str, &[&str]); 13] = [
    (
        "<xs:restriction base='xs:string'/>",
        &["", " a  b ", "same", "\u{1f600}\u{e4}", "&lt;"],
    ),
    (
        "<xs:restriction base='xs:int'/>",
        &["0", "-1", "2147483647", "-300"],
    ),
    (
        "<xs:restriction base='xs:integer'/>",
        &["5", "-99999999999999999999999", "18446744073709551616"],
    ),
    (
        "<xs:restriction base='xs:unsignedByte'/>",
        &["0", "255", "17"],
    ),
    ("<xs:restriction base='xs:boolean'/>", &["true", "false"]),
    (
        "<xs:restriction base='xs:decimal'/>",
        &["1.5", "-0.05", "12345678901234567890123.25"],
    ),
    (
        "<xs:restriction base='xs:double'/>",
        &["1.5", "-2e9", "INF", "NaN"],
    ),
    (
        "<xs:restriction base='xs:dateTime'/>",
        &["2026-11-21T10:00:00.5Z", "0001-01-01T23:59:59-05:30"],
    ),
    (
        "<xs:restriction base='xs:date'/>",
        &["2026-11-21", "2000-02-29Z"],
    ),
    ("<xs:restriction base='xs:base64Binary'/>", &["AAEC", ""]),
    ("<xs:restriction base='xs:hexBinary'/>", &["00FF", ""]),
    (
        "<xs:restriction base='xs:string'><xs:pattern value='[a-e]*'/></xs:restriction>",
        &["abc", "", "xyz", "ee"],
    ),
    (
        "<xs:restriction base='xs:token'><xs:enumeration value='one'/><xs:enumeration value='two'/>\
         <xs:enumeration value='three'/></xs:restriction>",
        &["one", "two", "three"],
    ),
];

fn model() -> impl Strategy<Value = Model> {
    let leaf = (0..DATATYPES.len()).prop_map(Model::Value);
    leaf.prop_recursive(3, 24, 4, |inner| {
        let occurs = prop_oneof![
            Just((0, 1)),
            Just((1, 1)),
            Just((0, 9)),
            Just((2, 12)),
            Just((0, 2))
        ];
        let child = (inner.clone(), occurs).prop_map(|(model, (min, max))| (model, min, max));
        prop_oneof![
            (prop::collection::vec(child, 0..4), any::<bool>())
                .prop_map(|(children, mixed)| Model::Sequence(children, mixed)),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Model::Choice),
            prop::collection::vec(inner, 1..4).prop_map(Model::All),
        ]
    })
}

/// The type of an element as a schema says it; names of children are numbers in order.
fn declare(model: &Model, next: &mut u32, xsd: &mut String) {
    let mut child = |model: &Model, min: u32, max: u32, xsd: &mut String| {
        let name = *next;
        *next += 1;
        let _ = write!(
            xsd,
            "<xs:element name='e{name}' minOccurs='{min}' maxOccurs='{max}'>"
        );
        declare(model, next, xsd);
        xsd.push_str("</xs:element>");
    };
    let mut open = |mixed: bool, group: &str| {
        let _ = write!(xsd, "<xs:complexType mixed='{mixed}'><xs:{group}>");
    };
    let group = match model {
        Model::Value(datatype) => {
            let derivation = DATATYPES[*datatype].0;
            let _ = write!(xsd, "<xs:simpleType>{derivation}</xs:simpleType>");
            return;
        }
        Model::Sequence(children, mixed) => {
            open(*mixed, "sequence");
            for (model, min, max) in children {
                child(model, *min, *max, xsd);
            }
            "sequence"
        }
        Model::Choice(children) => {
            open(false, "choice");
            children.iter().for_each(|model| child(model, 1, 1, xsd));
            "choice"
        }
        Model::All(children) => {
            open(false, "all");
            children.iter().for_each(|model| child(model, 0, 1, xsd));
            "all"
        }
    };
    let _ = write!(
        xsd,
        "</xs:{group}><xs:attribute name='k' type='xs:int'/><xs:attribute name='s'/></xs:complexType>"
    );
}

fn schema(model: &Model) -> Arc<Schema> {
    let mut xsd = String::from(
        "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:element name='r'>",
    );
    declare(model, &mut 0, &mut xsd);
    xsd.push_str("</xs:element></xs:schema>");
    let source = XsdSource {
        name: "r.xsd".into(),
        document: xsd.clone().into_bytes(),
    };
    let made = Schema::from_xsd(vec![source], &mut |_, _| None);
    Arc::new(made.unwrap_or_else(|error| panic!("{error}: {xsd}")))
}

/// Draws from a list of numbers, again and again.
struct Draw<'d> {
    from: &'d [u16],
    at: usize,
}

impl Draw<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.at += 1;
        let drawn = self.from[self.at % self.from.len()];
        (usize::from(drawn).wrapping_add(self.at / self.from.len())) % bound.max(1)
    }
}

/// Writes a document by a model, as it will be written back under the options.
struct Document<'d> {
    draw: Draw<'d>,
    options: &'d Options,
    /// Deviate from the schema.
    deviate: bool,
    sent: String,
    back: String,
}

impl Document<'_> {
    fn both(&mut self, text: &str) {
        self.sent.push_str(text);
        self.back.push_str(text);
    }

    /// What may come anywhere within an element.
    fn misc(&mut self) {
        match self.draw.below(12) {
            0 => {
                self.sent.push_str("<!-- c -->");
                if self.options.preserve.comments {
                    self.back.push_str("<!-- c -->");
                }
            }
            1 => {
                self.sent.push_str("<?p some text?>");
                if self.options.preserve.pis {
                    self.back.push_str("<?p some text?>");
                }
            }
            2 if self.deviate => self.both("<u v=\"1\">undeclared<w/></u>"),
            3 if self.deviate && self.options.preserve.prefixes => {
                self.both("<p:u xmlns:p=\"u:p\" xmlns:q=\"u:q\" q:v=\"1\"><p:w/></p:u>");
            }
            _ => {}
        }
    }

    fn element(&mut self, name: &str, model: &Model, next: &mut u32) {
        let first = *next;
        self.both(&format!("<{name}"));
        if !matches!(model, Model::Value(_)) {
            let number = ["7", "-12"][self.draw.below(2)];
            match self.draw.below(6) {
                0 => self.both(&format!(" k=\"{number}\"")),
                1 => self.both(&format!(" k=\"{number}\" s=\"same\"")),
                2 if self.deviate => self.both(" k=\"none\" s=\"same\" z=\"undeclared\""),
                3 if self.deviate => self.both(" a=\"undeclared\""),
                _ => {}
            }
        }
        let (sent, back) = (self.sent.len(), self.back.len());
        self.both(">");
        self.children(model, next);
        // An element of nothing is written so.
        match self.back.len() == back + 1 {
            true => {
                self.back.truncate(back);
                self.back.push_str("/>");
            }
            false => {
                let _ = write!(self.back, "</{name}>");
            }
        }
        debug_assert!(self.sent.len() > sent);
        let _ = write!(self.sent, "</{name}>");
        // Names go on as the schema has them, whatever of it occurs.
        *next = first;
        skip(model, next);
    }

    fn children(&mut self, model: &Model, next: &mut u32) {
        match model {
            Model::Value(datatype) => {
                let forms = DATATYPES[*datatype].1;
                let mut form = forms[self.draw.below(forms.len())].to_owned();
                if self.deviate && self.draw.below(5) == 0 {
                    form = "no value!".to_owned();
                } else if let (6, Some(value)) = (*datatype, Float::parse(&form)) {
                    form = value.to_string();
                }
                self.both(&form);
            }
            Model::Sequence(children, mixed) => {
                for (model, min, max) in children {
                    let number = min + self.draw.below((max - min) as usize + 1) as u32;
                    for _ in 0..number {
                        self.misc();
                        if *mixed && self.draw.below(3) == 0 {
                            self.both("text ");
                        }
                        self.child(model, *next);
                    }
                    *next += 1;
                    skip(model, next);
                }
                self.misc();
            }
            Model::Choice(children) => {
                let chosen = self.draw.below(children.len());
                for (at, model) in children.iter().enumerate() {
                    if at == chosen {
                        self.child(model, *next);
                    }
                    *next += 1;
                    skip(model, next);
                }
            }
            Model::All(children) => {
                let mut places = Vec::new();
                for model in children {
                    places.push((model, *next));
                    *next += 1;
                    skip(model, next);
                }
                let turn = self.draw.below(places.len());
                places.rotate_left(turn);
                for (model, name) in places {
                    if self.draw.below(3) > 0 {
                        self.child(model, name);
                    }
                }
            }
        }
    }

    fn child(&mut self, model: &Model, name: u32) {
        self.element(&format!("e{name}"), model, &mut (name + 1));
    }
}

/// Passes over the names within a model.
fn skip(model: &Model, next: &mut u32) {
    let mut one = |model: &Model| {
        *next += 1;
        skip(model, next);
    };
    match model {
        Model::Value(_) => {}
        Model::Sequence(children, _) => children.iter().for_each(|(model, ..)| one(model)),
        Model::Choice(children) | Model::All(children) => children.iter().for_each(one),
    }
}

fn options() -> impl Strategy<Value = Options> {
    let flags = prop::collection::vec(any::<bool>(), 9);
    let small = || prop::option::of(0..4u32);
    (0..4u8, flags, small(), small(), 0..3usize).prop_map(
        |(layout, flags, capacity, length, block)| {
            let channels = layout >= 2;
            let strict = flags[0];
            let name = |namespace: &str, local: &str| QName {
                namespace: namespace.into(),
                local: local.into(),
            };
            let as_string = ["decimal", "boolean"].map(|local| Representation {
                datatype: name("http://www.w3.org/2001/XMLSchema", local),
                representation: name("http://www.w3.org/2009/exi", "string"),
            });
            Options {
                alignment: match layout {
                    1 => Alignment::ByteAligned,
                    2 => Alignment::PreCompression,
                    _ => Alignment::BitPacked,
                },
                compression: layout == 3,
                strict,
                fragment: flags[1],
                self_contained: flags[2] && !strict && !channels,
                preserve: Preserve {
                    comments: flags[3] && !strict,
                    pis: flags[4] && !strict,
                    dtd: flags[5] && !strict,
                    prefixes: flags[6] && !strict,
                    lexical_values: flags[7],
                },
                datatype_representation_map: if flags[8] {
                    as_string.to_vec()
                } else {
                    Vec::new()
                },
                block_size: [1, 3, Options::BLOCK_SIZE][block],
                value_partition_capacity: capacity,
                value_max_length: length,
                ..Options::default()
            }
        },
    )
}

/// Encodes a document, with marks of self-contained elements here and there.
fn encode(
    schema: &Arc<Schema>,
    options: &Options,
    header: HeaderOptions,
    document: &str,
) -> Result<Vec<u8>, String> {
    let mut encoder = Encoder::new(schema.clone());
    let writing = encoder.begin_with(options, header);
    let mut writing = writing.map_err(|error| error.to_string())?;
    let document = document.as_bytes();
    let read = text::read(
        document,
        options,
        text::TextLimits::default(),
        &mut |event| {
            let contained =
                matches!(event, Event::StartElement(name) if name.local.ends_with(['1', '3', 'r']));
            writing.event(event)?;
            if contained && options.self_contained {
                writing.event(Event::SelfContained)?;
            }
            Ok(())
        },
    );
    read.map_err(|error| error.to_string())?;
    let stream = writing.finish().map_err(|error| error.to_string())?;
    Ok(stream.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn decoding_is_the_way_back(
        model in model(),
        options in options(),
        drawn in prop::collection::vec(any::<u16>(), 1..60),
        which in 0..3u8,
        in_band in any::<bool>(),
        cookie in any::<bool>(),
    ) {
        let (schema, schema_id) = match which {
            0 => (Arc::new(Schema::none()), SchemaId::None),
            1 => (Arc::new(Schema::built_in_types()), SchemaId::BuiltInTypes),
            _ => {
                let schema = Schema::clone(&schema(&model)).with_id("r");
                (Arc::new(schema), SchemaId::Named("r".into()))
            }
        };
        let options = Options { schema_id, ..options };
        let mut document = Document {
            draw: Draw { from: &drawn, at: 0 },
            options: &options,
            deviate: !options.strict,
            sent: String::new(),
            back: String::new(),
        };
        if options.preserve.dtd && !options.fragment {
            document.both("<!DOCTYPE r>\n");
        }
        document.element("r", &model, &mut 0);
        let Document { sent, back, .. } = document;
        let header = HeaderOptions { cookie, options: in_band };
        let stream = encode(&schema, &options, header, &sent);
        let stream = stream.unwrap_or_else(|error| panic!("{error}: {sent}"));
        let mut decoder = Decoder::new(schema);
        let known = (!in_band).then_some(&options);
        let read = text::decode(&mut decoder, &stream, known);
        prop_assert_eq!(read.as_deref(), Ok(back.as_str()), "{}", sent);
    }
}
