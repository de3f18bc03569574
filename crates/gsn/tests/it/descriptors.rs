//! Goal: GSN's descriptors are read exactly, become Chappe's with a report of each part, and survive the way
//! back.
//! Method: one fixture for each element and processing class; a fixture with each fault; descriptors made
//! at random, written and read again.

use std::num::NonZeroU64;
use std::time::Duration;

use chappe_gsn::descriptor::{
    Address, Extent, GsnDescriptor, History, Outcome, OutputField, ProcessingClass, Source, Stream,
    WebCommand, WebField, export, import,
};
use chappe_stream::{Descriptor, Selection};
use proptest::prelude::*;

const FULL: &str = include_str!("../descriptors/full.xml");
const OLD: &str = include_str!("../descriptors/old.xml");

macro_rules! fixtures {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../descriptors/", $name, ".xml")))),*]
    };
}

const FIXTURES: [(&str, &str); 15] = fixtures!(
    "full",
    "old",
    "clocked",
    "scheduled",
    "counter",
    "clean",
    "gps",
    "statistics",
    "filter",
    "splitter",
    "exporter",
    "chart",
    "email",
    "mqtt",
    "wrappers"
);

fn imported(name: &str, text: &str) -> chappe_gsn::descriptor::Imported {
    match import(&format!("{name}.xml"), text) {
        Ok(imported) => imported,
        Err(error) => panic!("{error} (hint: {:?})", error.hint),
    }
}

#[test]
fn every_element_is_read() {
    let read = GsnDescriptor::read("full.xml", FULL).expect("well-formed");
    assert_eq!(read.name, "RoofStation");
    assert!(read.is_protected && !read.class.unique_times);
    assert_eq!(read.priority.as_deref(), Some("7"));
    assert_eq!(read.time_zone.as_deref(), Some("Europe/Zurich"));
    assert_eq!(read.pool_size.as_deref(), Some("10"));
    assert_eq!(
        read.class.parameters[0],
        ("allow-nulls".into(), "false".into())
    );
    assert_eq!(read.class.rate, Some(Duration::from_millis(500)));
    assert_eq!(read.class.partition_field.as_deref(), Some("DEVICE"));
    assert_eq!(read.class.fields.len(), 7);
    assert_eq!(read.class.fields[1].unit.as_deref(), Some("°C"));
    assert_eq!(
        read.class.fields[0].description.as_deref(),
        Some("Name of the mote")
    );
    assert_eq!(read.class.commands[0].fields.len(), 5);
    assert_eq!(read.addressing[1], ("LATITUDE".into(), "46.52".into()));
    assert_eq!(
        read.history,
        Some(History::Age(Duration::from_secs(12 * 3_600)))
    );
    assert_eq!(read.own_database, ["url", "user", "password"]);
    let [data, second] = &read.streams[..] else {
        panic!("two streams");
    };
    assert_eq!(
        (data.rate, data.count),
        (Some(Duration::from_secs(1)), NonZeroU64::new(500))
    );
    let mote = &data.sources[0];
    assert_eq!(mote.alias, "mote");
    assert_eq!(mote.window, Some(Extent::Time(Duration::from_secs(600))));
    assert_eq!(mote.slide, Some(Extent::Elements(2)));
    assert_eq!(mote.sampling, Some(0.5));
    assert_eq!(mote.buffer.as_deref(), Some("10"));
    assert_eq!(mote.addresses.len(), 2);
    assert_eq!(mote.addresses[0].predicate(&["port"]), Some("22001"));
    assert_eq!(
        (second.name.as_deref(), second.sources[0].window),
        (None, None)
    );
    assert_eq!(read.unknown, []);
}

#[test]
fn a_file_becomes_this_toml() {
    let toml = imported("full", FULL).descriptor.to_toml();
    assert_eq!(toml, include_str!("../descriptors/full.toml"), "{toml}");
}

#[test]
fn each_part_is_reported_and_no_secret() {
    let full = imported("full", FULL);
    let lines: Vec<String> = full.report.lines.iter().map(ToString::to_string).collect();
    for expected in [
        "3: virtual-sensor@name: taken",
        "3: virtual-sensor@protected: changed: protected",
        "3: virtual-sensor@priority: ignored: each sensor",
        "3: virtual-sensor@time-zone: ignored: times are UTC",
        "32: life-cycle@pool-size: ignored",
        "38: storage@history-size: changed: output.retention",
        "38: storage@password: ignored: every stream",
        "4: processing-class@unique-timestamps: taken",
        "4: processing-class/output-specification@rate: changed: output.rate",
        "4: processing-class/output-structure@partition-field: ignored",
        "4: processing-class/web-input@password: ignored",
        "4: processing-class/class-name: taken",
        "4: processing-class/init-params/param[debug]: ignored",
        "13: processing-class/output-structure/field[0]@type: changed: a text",
        "14: processing-class/output-structure/field[1]@unit: changed: UCUM: Cel",
        "16: processing-class/output-structure/field[3]@unit: changed: not a UCUM code",
        "22: processing-class/web-input/command[planning]: changed: command: `chappe sensor call` stores each call in \
         the stream roofstation.command.planning",
        "33: addressing/predicate[LATITUDE]: changed: metadata",
        "40: streams/stream[0]@name: taken",
        "40: streams/stream[0]@rate: changed",
        "40: streams/stream[0]@count: taken",
        "41: streams/stream[0]/source[0]@sampling-rate: changed",
        "41: streams/stream[0]/source[0]@disconnected-buffer-size: ignored",
        "42: streams/stream[0]/source[0]/address[0]@wrapper: changed: stream mote_7, over a link: \
         chappe link add NAME http://gsn.example.org:22001 --streams mote_7",
        "47: streams/stream[0]/source[0]/address[1]: changed: fallback: the query of the first address applies",
        "51: streams/stream[0]/source[1]/address[0]@wrapper: changed: a wrapper of kind clock",
        "51: streams/stream[0]/source[1]/address[0]/predicate[clock-period]: taken",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(expected)),
            "{expected}\n{lines:#?}"
        );
    }
    assert_eq!(full.links.len(), 1);
    assert_eq!(full.links[0].stream, "mote_7");
    assert_eq!(
        full.links[0].server.as_deref(),
        Some("gsn.example.org:22001")
    );
    let Selection::Wrapper(cellar) = &full.descriptor.sources[2].selection else {
        panic!("GSN's proxy is read by a wrapper");
    };
    assert_eq!(cellar.stream(), Some("cellar"));
    assert_eq!(
        cellar.keys["address"].as_str(),
        Some("tcp://10.0.0.7:22022")
    );
    for (name, text) in FIXTURES {
        let imported = imported(name, text);
        let printed = format!("{:?} {}", imported.report, imported.descriptor.to_toml());
        assert!(!printed.contains("secret-of"), "{name}: {printed}");
        assert!(imported.report.count(Outcome::Taken) > 2, "{name}");
    }
}

#[test]
fn wrappers_with_an_equal_kind_become_wrappers_of_the_sensor() {
    let (name, text) = FIXTURES
        .iter()
        .find(|(name, _)| *name == "wrappers")
        .unwrap();
    let imported = imported(name, text);
    let sensor = &imported.descriptor;
    let kinds = sensor.sources.iter().map(|source| match &source.selection {
        Selection::Wrapper(wrapper) => wrapper.keys["kind"].as_str().unwrap(),
        other => panic!("{other:?}"),
    });
    let kinds: Vec<&str> = kinds.collect();
    assert_eq!(
        kinds,
        [
            "file",
            "http_poll",
            "gsn-zeromq-async",
            "gsn-zeromq-sync",
            "gsn-zeromq-push"
        ]
    );
    let weather = &sensor.sources[0];
    let streams: Vec<_> = weather
        .choices()
        .map(|choice| sensor.stream_of(choice))
        .collect();
    let expected = ["yard.weather.w", "spare", "yard.weather.w.3"];
    assert_eq!(streams, expected.map(|name| Some(name.to_owned())));
    assert_eq!(sensor.wrapper_name(weather, 2), "yard.weather.w.3");
    let toml = sensor.to_toml();
    for line in [
        "[statement.source.wrapper]",
        "time_format = \"%d/%m/%Y %H:%M:%S\"",
        "time_zone = \"+01:00\"",
        "period_s = 90",
        "insecure = true",
    ] {
        assert!(toml.contains(line), "{line}\n{toml}");
    }
    let lines: Vec<String> = imported
        .report
        .lines
        .iter()
        .map(ToString::to_string)
        .collect();
    for expected in [
        "10: streams/stream[0]/source[0]/address[0]@wrapper: changed: a wrapper of kind file",
        "10: streams/stream[0]/source[0]/address[0]/predicate[formats]: taken",
        "10: streams/stream[0]/source[0]/address[0]/predicate[sampling]: taken",
        "20: streams/stream[0]/source[0]/address[1]: ignored: the wrapper tinyos-mig is not run here",
        "21: streams/stream[0]/source[0]/address[2]: changed: fallback",
        "22: streams/stream[0]/source[0]/address[3]@wrapper: changed: a wrapper of kind udp",
    ] {
        let found = lines.iter().any(|line| line.starts_with(expected));
        assert!(found, "{expected}\n{lines:#?}");
    }
    for (from, to, reason) in [
        ("Etc/GMT-1", "Europe/Zurich", "not an offset"),
        ("Timestamp(HH:mm:ss)", "Timestamp(ww)", "no counterpart"),
        (", String", "", "5 fields and 4 formats"),
    ] {
        let changed = import("yard.xml", &text.replace(from, to)).unwrap();
        let mut lines = changed.report.lines.iter();
        let line = lines.find(|line| line.item.ends_with("source[0]/address[0]@wrapper"));
        let line = line.unwrap();
        assert!(line.reason.contains(reason), "{line}");
        assert!(line.reason.contains("chappe write"), "{line}");
    }
}

#[test]
fn old_spellings_are_understood() {
    let old = imported("old", OLD);
    let source = &old.descriptor.sources[0];
    assert_eq!(source.selection, Selection::Stream("lab".into()));
    assert_eq!(
        source.sql.as_deref(),
        Some("select light from wrapper where light < 5")
    );
    assert_eq!(
        old.descriptor.output.retention.unwrap().elements,
        Some(1_000)
    );
    assert!(old.descriptor.output.unique_times);
    let ignored = |item: &str| {
        let mut lines = old.report.lines.iter();
        lines.any(|line| line.item.ends_with(item) && line.outcome == Outcome::Ignored)
    };
    assert!(ignored("@index") && ignored("@defaultvalue") && ignored("@statistics"));
}

#[test]
fn an_order_for_each_key_becomes_a_window_for_each() {
    let text = OLD.replace(
        "wrapper=\"local\"",
        "wrapper=\"local\" partial-order-key=\"DEVICE\"",
    );
    let once = imported("old", &text).descriptor;
    assert_eq!(once.sources[0].per.as_ref().unwrap().column, "device");
    let (exported, _) = export(&once).expect("GSN has it");
    assert_eq!(imported("old", &exported.to_xml()).descriptor, once);
}

#[test]
fn processing_classes_become_statements_and_settings() {
    let of = |wanted: &str| {
        let (name, text) = FIXTURES.iter().find(|(name, _)| *name == wanted).unwrap();
        imported(name, text)
    };
    for (name, slide) in [("clocked", 5), ("scheduled", 3)] {
        let source = &of(name).descriptor.sources[0];
        assert_eq!(source.timing.clock, chappe_stream::WindowClock::Node);
        assert_eq!(
            source.slide,
            chappe_stream::Extent::Time(Duration::from_secs(slide))
        );
    }
    for (name, sql) in [
        ("counter", "select sequence as n from a"),
        (
            "clean",
            "select iif(abs(last(v, source_time) - avg(v)) <= 1.5, last(v, source_time), avg(v)) \
             as v, last(id, source_time) as id from a",
        ),
        (
            "gps",
            "select nmea(raw, 'latitude') as latitude, nmea(raw, 'longitude') as longitude, \
             cast(nmea(raw, 'satellites') as integer) as satellites from a where nmea(raw, \
             'latitude') is not null",
        ),
        ("chart", "select * from a"),
    ] {
        assert_eq!(of(name).descriptor.statements[0].sql, sql, "{name}");
    }
    for (name, reason) in [
        ("statistics", "/metrics"),
        ("filter", "WHERE"),
        ("splitter", "key"),
        ("exporter", "chappe query"),
        ("chart", "console"),
        ("email", "live"),
        ("mqtt", "DDS"),
    ] {
        let imported = of(name);
        let mut lines = imported.report.lines.iter();
        let line = lines
            .find(|line| line.item.ends_with("class-name"))
            .unwrap();
        assert_eq!(line.outcome, Outcome::Changed, "{name}");
        assert!(line.reason.contains(reason), "{name}: {}", line.reason);
    }
}

#[test]
fn every_fixture_survives_the_way_back() {
    for (name, text) in FIXTURES {
        let once = imported(name, text).descriptor;
        let (exported, report) = export(&once).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!report.lines.is_empty());
        let xml = exported.to_xml();
        let twice = imported(name, &xml).descriptor;
        assert_eq!(twice, once, "{name}:\n{xml}\n{}", twice.to_toml());
    }
}

#[test]
fn each_fault_has_its_place() {
    let mut wrong = Vec::new();
    for (from, to, place, key, message) in [
        (
            "name=\"Roof Station\"",
            "",
            (3, 1),
            "virtual-sensor@name",
            "missing",
        ),
        (
            "protected=\"true\"",
            "protected=\"yes\"",
            (3, 1),
            "virtual-sensor@protected",
            "neither",
        ),
        (
            "<class-name>ch.epfl.gsn.vsensor.Bridge",
            "<class-name>x.Rubbish",
            (4, 3),
            "processing-class/class-name",
            "not known",
        ),
        (
            "<class-name>ch.epfl.gsn.vsensor.Bridge",
            "<class-name>x.Matlab",
            (4, 3),
            "processing-class/class-name",
            "runtime of its own",
        ),
        (
            "<class-name>ch.epfl.gsn.vsensor.Bridge",
            "<class-name>x.SMACleaner",
            (4, 3),
            "processing-class/class-name",
            "differ from the mean",
        ),
        (
            "rate=\"500\"",
            "rate=\"0.5\"",
            (11, 5),
            "output-specification@rate",
            "not a whole number",
        ),
        (
            "type=\"numeric\"",
            "type=\"time\"",
            (15, 7),
            "processing-class/output-structure/field[2]",
            "not supported",
        ),
        (
            "type=\"numeric\"",
            "type=\"decimal\"",
            (15, 7),
            "processing-class/output-structure/field[2]",
            "not a type",
        ),
        (
            "name=\"WIND\"",
            "name=\"temperature\"",
            (16, 7),
            "field@name",
            "another field",
        ),
        (
            "name=\"WIND\"",
            "name=\"quality\"",
            (16, 7),
            "output.field[3].name",
            "besides",
        ),
        (
            "*binary:2mb",
            "*binary:2x",
            (23, 9),
            "processing-class/web-input/command/field@type",
            "not a size",
        ),
        (
            "radio:fast|slow",
            "dial:1",
            (24, 9),
            "processing-class/web-input/command/field@type",
            "\"dial\" is not",
        ),
        (
            "history-size=\"12h\"",
            "history-size=\"12d\"",
            (38, 3),
            "storage@history-size",
            "not a number",
        ),
        (
            "count=\"500\"",
            "count=\"-1\"",
            (40, 5),
            "stream@count",
            "not a whole number",
        ),
        (
            "alias=\"Mote\"",
            "alias=\"a-b\"",
            (41, 7),
            "statement[0].source[0].alias",
            "usable alias",
        ),
        (
            "sampling-rate=\"0.5\"",
            "sampling-rate=\"2\"",
            (41, 7),
            "source@sampling-rate",
            "share",
        ),
        (
            "slide=\"2\"",
            "slide=\"2d\"",
            (41, 7),
            "source@slide",
            "not a number",
        ),
        (
            "<address wrapper=\"remote-rest\">",
            "<address>",
            (42, 9),
            "address@wrapper",
            "missing",
        ),
        (
            "select * from Mote_7 where TEMPERATURE is not null",
            "select * from a, b",
            (42, 9),
            "streams/stream[0]/source[0]/address[0]",
            "one sensor",
        ),
        (
            "<query>select * from wrapper</query>",
            "<query>select rand() from wrapper</query>",
            (48, 9),
            "streams/stream[0]/source[0]/query",
            "another value each time",
        ),
        (
            "select TIMED from wrapper",
            "select TIMED from rapper",
            (52, 9),
            "statement[0].source[1].sql",
            "no such table: rapper",
        ),
        (
            "from mote, clock",
            "from moat, clock",
            (54, 7),
            "statement[0].sql",
            "no such table: moat",
        ),
        (
            "casewhen(mote.temperature &gt; 60, null, mote.temperature)",
            "frobnicate(1)",
            (54, 7),
            "streams/stream[0]/query",
            "calls frobnicate()",
        ),
        ("</virtual-sensor>", "", (66, 1), "", "truncated"),
        (
            "<!-- Every",
            "<!DOCTYPE x [<!ENTITY a \"b\">]>\n<!-- Every",
            (2, 1),
            "",
            "document type",
        ),
        (
            "&amp; its",
            "&motes; its",
            (31, 47),
            "",
            "entity &motes; is not defined",
        ),
    ] {
        assert!(FULL.contains(from), "{from}");
        let error = import("full.xml", &FULL.replacen(from, to, 1)).expect_err(to);
        let is_right = (error.line, error.column) == place && error.key == key;
        if !is_right || !error.message.contains(message) {
            wrong.push(format!("{place:?} {key} {message}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (text, message) in [
        ("", "truncated"),
        ("<sensor/>", "not <virtual-sensor>"),
        (&"<a>".repeat(40), "limit depth of 16"),
        (&format!("<a>{}</a>", "<b/>".repeat(60_000)), "limit events"),
        (&"x".repeat(300_000), "limit bytes"),
    ] {
        let error = import("x.xml", text).expect_err(text);
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn what_gsn_cannot_say_is_refused() {
    let toml = "name = 'x'\n[[source]]\nalias = 'a'\nstream = 's'\nwindow = '1500ms'\n[output]\n\
                sql = 'select 1 as b from a'\n[[output.field]]\nname = 'b'\ntype = 'double'\n";
    for (from, to, key) in [
        ("", "", "source[0].window"),
        (
            "stream = 's'",
            "query = { name_prefix = 's' }",
            "source[0].query",
        ),
        ("type = 'double'", "type = 'samples'", "output.field[0]"),
    ] {
        let descriptor = Descriptor::parse("x.toml", &toml.replacen(from, to, 1)).expect("good");
        assert_eq!(export(&descriptor).expect_err(key).key, key);
    }
}

fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9_]{0,6}"
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,6}",
        "[!-~]([ -~]{0,9}[!-~])?",
        "\u{e9}[<&>\"\u{e9}]{0,4}x"
    ]
}

fn fields() -> impl Strategy<Value = Vec<OutputField>> {
    let field = (
        word(),
        text(),
        proptest::option::of(text()),
        proptest::option::of(text()),
    );
    let field = field.prop_map(|(name, field_type, unit, description)| OutputField {
        name,
        field_type,
        unit,
        description,
        ..OutputField::default()
    });
    proptest::collection::vec(field, 1..4).prop_map(|mut fields| {
        fields.sort_by(|one, other| one.name.cmp(&other.name));
        fields.dedup_by(|one, other| one.name == other.name);
        fields
    })
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    proptest::collection::vec((text(), text()), 0..3)
}

fn extent() -> impl Strategy<Value = Option<Extent>> {
    prop_oneof![
        Just(None),
        (1_usize..1_000).prop_map(|count| Some(Extent::Elements(count))),
        (1_u64..100_000).prop_map(|seconds| Some(Extent::Time(Duration::from_secs(seconds)))),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    let address = (text(), proptest::option::of(text()), pairs(), fields());
    let address = address.prop_map(|(wrapper, order_key, predicates, fields)| Address {
        wrapper,
        order_key,
        predicates,
        fields,
        ..Address::default()
    });
    let addresses = proptest::collection::vec(address, 1..3);
    let sampling = proptest::option::of(0.001_f64..1.0);
    (
        word(),
        extent(),
        extent(),
        sampling,
        proptest::option::of(text()),
        addresses,
    )
        .prop_map(
            |(alias, window, slide, sampling, query, addresses)| Source {
                alias,
                window,
                slide,
                sampling,
                query,
                addresses,
                ..Source::default()
            },
        )
}

fn stream() -> impl Strategy<Value = Stream> {
    let sources = proptest::collection::vec(source(), 1..3);
    (
        proptest::option::of(text()),
        0_u64..5_000,
        0_u64..9,
        text(),
        sources,
    )
        .prop_map(|(name, rate, count, query, sources)| Stream {
            name,
            rate: Some(Duration::from_millis(rate)).filter(|rate| !rate.is_zero()),
            count: NonZeroU64::new(count),
            query,
            sources,
            ..Stream::default()
        })
}

fn descriptor() -> impl Strategy<Value = GsnDescriptor> {
    let command = (text(), proptest::collection::vec((text(), text()), 0..3));
    let command = command.prop_map(|(name, fields)| WebCommand {
        name,
        fields: fields
            .into_iter()
            .map(|(name, input)| WebField {
                name,
                input,
                ..WebField::default()
            })
            .collect(),
        ..WebCommand::default()
    });
    let commands = proptest::collection::vec(command, 0..2);
    let class = (text(), pairs(), any::<bool>(), fields(), commands);
    let class =
        class.prop_map(
            |(name, parameters, unique_times, fields, commands)| ProcessingClass {
                name,
                parameters,
                unique_times,
                fields,
                commands,
                ..ProcessingClass::default()
            },
        );
    let streams = proptest::collection::vec(stream(), 1..3);
    (
        word(),
        any::<bool>(),
        class,
        proptest::option::of(text()),
        pairs(),
        streams,
    )
        .prop_map(
            |(name, is_protected, class, description, addressing, streams)| GsnDescriptor {
                name,
                is_protected,
                class,
                description,
                addressing,
                streams,
                history: NonZeroU64::new(7).map(History::Elements),
                ..GsnDescriptor::default()
            },
        )
}

proptest! {
    #[test]
    fn what_is_written_is_read(descriptor in descriptor()) {
        let written = descriptor.to_xml();
        let mut read = GsnDescriptor::read("x.xml", &written)
            .map_err(|error| TestCaseError::fail(format!("{error}\n{written}")))?;
        forget_places(&mut read);
        prop_assert_eq!(read, descriptor, "{}", written);
    }

    #[test]
    fn no_change_of_a_file_panics(at in 0..FULL.len(), with in "[ -~\u{e9}]{0,3}", cut in 0_usize..30) {
        let mut text = FULL.to_owned();
        let mut ends = [at, (at + cut).min(text.len())];
        for end in &mut ends {
            while !text.is_char_boundary(*end) {
                *end += 1;
            }
        }
        text.replace_range(ends[0]..ends[1], &with);
        if let Err(error) = import("x.xml", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.matches('\n').count() + 1);
        }
    }
}

fn forget_places(descriptor: &mut GsnDescriptor) {
    descriptor.places = Default::default();
    let class = &mut descriptor.class;
    class.place = Default::default();
    let of_streams = descriptor.streams.iter_mut();
    for stream in of_streams {
        (stream.place, stream.query_place) = Default::default();
        for source in &mut stream.sources {
            (source.place, source.query_place) = Default::default();
            for address in &mut source.addresses {
                address.place = Default::default();
                address
                    .fields
                    .iter_mut()
                    .for_each(|field| field.place = Default::default());
            }
        }
    }
    class
        .fields
        .iter_mut()
        .for_each(|field| field.place = Default::default());
    for command in &mut class.commands {
        command.place = Default::default();
        command
            .fields
            .iter_mut()
            .for_each(|field| field.place = Default::default());
    }
}
