//! The register map of a file, checked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chappe_stream::descriptor::DescriptorFault;
use chappe_stream::{DescriptorError, Field, StreamSchema, check_name};
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::plan::{Merge, REGISTERS_MAX, Span, Table, plan};
use super::value::{Layout, LayoutKeys, Number, Order, TypeKey};
use crate::{StreamDefinition, WrapperFile};

/// Most `[[poll]]` tables; reason: a serial line has at most 247 devices.
const POLLS_MAX: usize = 256;
/// Most fields of one poll, as of every stream.
const FIELDS_MAX: usize = 256;
/// The port of Modbus over TCP (MODBUS Messaging on TCP/IP Implementation Guide 1.0b, section 4.3.1).
const PORT: u16 = 502;

/// The keys of a wrapper of kind `modbus`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// `modbus://HOST:PORT` for Modbus over TCP, `modbus+rtu://HOST:PORT` for frames of a serial line over TCP.
    address: Option<String>,
    /// The serial line, instead of an address.
    serial: Option<SerialTable>,
    /// The unit identifier (slave address) of the device. Default: 1.
    #[serde(default = "unit_id_default")]
    #[schemars(range(max = 255))]
    unit_id: u8,
    /// Time between two polls. Default: 1000.
    #[serde(default = "period_default")]
    #[schemars(range(min = 10, max = 86_400_000), extend("x-unit" = "milliseconds"))]
    period_ms: u64,
    /// Time to wait for an answer, and for a connection. Default: 1000.
    #[serde(default = "timeout_default")]
    #[schemars(range(min = 10, max = 60_000), extend("x-unit" = "milliseconds"))]
    timeout_ms: u64,
    /// Maximum number of unneeded registers between two that are read with one request. Default: 0.
    #[serde(default)]
    gap: u16,
    /// Maximum number of registers in one request, for devices that allow fewer than the protocol. Default:
    /// 125.
    #[serde(default = "request_registers_default")]
    #[schemars(range(min = 1, max = 125))]
    request_registers: u16,
    /// Which byte of a register comes first. Default: big.
    #[serde(default)]
    byte_order: Order,
    /// Which register of a number comes first. Default: big.
    #[serde(default)]
    word_order: Order,
    /// Registers that are read together and become one element.
    #[serde(rename = "poll")]
    #[schemars(with = "Vec<PollTable>", length(min = 1, max = 256))]
    polls: Vec<Spanned<PollTable>>,
}

fn unit_id_default() -> u8 {
    1
}

fn period_default() -> u64 {
    1_000
}

fn timeout_default() -> u64 {
    1_000
}

fn request_registers_default() -> u16 {
    REGISTERS_MAX
}

/// A serial line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SerialTable {
    /// Its device, such as `/dev/ttyUSB0`.
    pub(super) path: PathBuf,
    /// Bits per second. Default: 19200.
    #[serde(default = "baud_default")]
    #[schemars(range(min = 50, max = 4_000_000), extend("x-unit" = "bit/s"))]
    pub(super) baud: u32,
    /// Default: even, as the protocol requires.
    #[serde(default)]
    pub(super) parity: Parity,
    /// Default: 1, or 2 without parity.
    #[schemars(range(min = 1, max = 2))]
    pub(super) stop_bits: Option<u8>,
}

fn baud_default() -> u32 {
    19_200
}

/// The parity of the characters on a serial line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Parity {
    #[default]
    Even,
    Odd,
    None,
}

/// A `[[poll]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PollTable {
    /// The name of the stream. Default: the name of the wrapper.
    stream_name: Option<String>,
    /// The key of the elements, if several devices share a stream.
    stream_key: Option<String>,
    /// The unit identifier of the device. Default: that of the file.
    #[schemars(range(max = 255))]
    unit_id: Option<u8>,
    /// Time between two polls. Default: that of the file.
    #[schemars(range(min = 10, max = 86_400_000), extend("x-unit" = "milliseconds"))]
    period_ms: Option<u64>,
    /// The registers to read.
    #[schemars(with = "Vec<RegisterTable>", length(min = 1, max = 256))]
    registers: Vec<Spanned<RegisterTable>>,
}

/// A value in the registers of a device.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RegisterTable {
    /// The name of its field.
    name: String,
    /// `holding`, `input`, `coils` or `discrete`.
    table: Table,
    /// The address of its first register in the protocol, from 0.
    address: u16,
    /// The type of the value in the registers.
    #[serde(rename = "type")]
    type_key: TypeKey,
    /// The bit of a register, from 0 for the least significant one.
    #[schemars(range(max = 15))]
    bit: Option<u8>,
    /// Registers of a text.
    #[schemars(range(min = 1, max = 125))]
    length: Option<u16>,
    /// Which byte of a register comes first. Default: that of the file.
    byte_order: Option<Order>,
    /// Which register of a number comes first. Default: that of the file.
    word_order: Option<Order>,
    /// Factor by which the number in the registers is multiplied.
    scale: Option<Number>,
    /// The number that is added after scaling.
    offset: Option<Number>,
    /// The number in the registers that means "no value".
    null_number: Option<i64>,
    /// The unit of the value, a UCUM code.
    unit: Option<String>,
    /// The property that the value describes.
    observed_property: Option<String>,
    /// For a person to read.
    description: Option<String>,
}

/// How a device is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Modbus over TCP: host and port.
    Tcp(String),
    /// Frames of a serial line over TCP: host and port.
    RtuOverTcp(String),
    /// A serial line.
    Serial(SerialTable),
}

impl Line {
    /// The line of an address.
    ///
    /// # Errors
    /// Why it is none.
    pub(super) fn parse(address: &str) -> Result<Self, String> {
        let form =
            || format!("{address:?} is neither modbus://HOST:PORT nor modbus+rtu://HOST:PORT");
        let (scheme, place) = address.split_once("://").ok_or_else(form)?;
        let place = place.trim_end_matches('/');
        let is_host = !place.is_empty() && !place.contains(['/', '@', '?', '#', ' ']);
        let place = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                port.parse::<u16>().map_err(|_| form())?;
                (!host.is_empty()).then(|| place.to_owned())
            }
            _ => Some(format!("{place}:{PORT}")),
        };
        match (scheme, place.filter(|_| is_host)) {
            ("modbus", Some(place)) => Ok(Self::Tcp(place)),
            ("modbus+rtu", Some(place)) => Ok(Self::RtuOverTcp(place)),
            _ => Err(form()),
        }
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Tcp(place) => format!("modbus://{place}"),
            Self::RtuOverTcp(place) => format!("modbus+rtu://{place}"),
            Self::Serial(serial) => serial.path.display().to_string(),
        }
    }
}

/// A value of a poll.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Register {
    pub(super) name: String,
    pub(super) span: Span,
    pub(super) layout: Layout,
}

/// What is read together and becomes one element.
#[derive(Debug, Clone)]
pub(super) struct Poll {
    pub(super) stream: Arc<str>,
    pub(super) definition: Arc<StreamDefinition>,
    pub(super) key: Option<String>,
    pub(super) unit_id: u8,
    pub(super) period: Duration,
    pub(super) registers: Vec<Register>,
    /// The requests; they become smaller if the device refuses them.
    pub(super) reads: Vec<Span>,
}

/// A checked file.
#[derive(Debug, Clone)]
pub(super) struct Map {
    pub(super) line: Line,
    pub(super) unit_id: u8,
    pub(super) timeout: Duration,
    pub(super) merge: Merge,
    /// The orders of the file: bytes, registers.
    pub(super) orders: (Order, Order),
    pub(super) polls: Vec<Poll>,
}

impl Map {
    /// The map of a file.
    ///
    /// # Errors
    /// The first fault, with line, key and hint.
    pub(super) fn of(file: &WrapperFile) -> Result<Self, DescriptorError> {
        let settings: Settings = file.settings()?;
        let wrong = |key: &str, text: &str| Err(file.fault(key, text.to_owned(), None));
        if !file.keys.streams.is_empty() || file.keys.format.is_some() {
            return wrong("stream", "the kind `modbus` has its streams in [[poll]]");
        }
        if !(10..=60_000).contains(&settings.timeout_ms) {
            return wrong("timeout_ms", "it is not within 10 to 60000");
        }
        if !(1..=REGISTERS_MAX).contains(&settings.request_registers) {
            return wrong("request_registers", "it is not within 1 to 125");
        }
        if !(1..=POLLS_MAX).contains(&settings.polls.len()) {
            return wrong("poll", "a file has 1 to 256 [[poll]] tables");
        }
        let line = line(file, &settings)?;
        let merge = Merge {
            gap: settings.gap,
            registers_max: settings.request_registers,
        };
        let mut polls: Vec<Poll> = Vec::new();
        for table in &settings.polls {
            let poll = poll(file, &settings, merge, table)?;
            let mut same = polls.iter().filter(|it| it.stream == poll.stream);
            let is_wrong =
                |it: &Poll| it.key == poll.key || it.definition.schema != poll.definition.schema;
            if same.any(is_wrong) {
                let message = format!(
                    "two polls of the stream {:?} need equal fields and two keys",
                    poll.stream
                );
                let hint = "give each a `stream_key` of its own, or another `stream_name`";
                return Err(place(
                    file,
                    table.span().start,
                    "stream_name",
                    message,
                    Some(hint),
                ));
            }
            polls.push(poll);
        }
        Ok(Self {
            line,
            unit_id: settings.unit_id,
            timeout: Duration::from_millis(settings.timeout_ms),
            merge,
            orders: (settings.byte_order, settings.word_order),
            polls,
        })
    }
}

fn place(
    file: &WrapperFile,
    at: usize,
    key: &str,
    message: String,
    hint: Option<&str>,
) -> DescriptorError {
    let fault = DescriptorFault::Value;
    file.place()
        .error(fault, at, key, message, hint.map(str::to_owned))
}

fn line(file: &WrapperFile, settings: &Settings) -> Result<Line, DescriptorError> {
    match (&settings.address, &settings.serial) {
        (Some(address), None) => {
            Line::parse(address).map_err(|text| file.fault("address", text, None))
        }
        (None, Some(serial)) => {
            let text = match (serial.baud, serial.stop_bits) {
                (50..=4_000_000, None | Some(1 | 2)) => return Ok(Line::Serial(serial.clone())),
                (50..=4_000_000, _) => "a character has 1 or 2 stop bits",
                _ => "baud is not within 50 to 4000000",
            };
            Err(file.fault("serial", text.to_owned(), None))
        }
        _ => {
            let text = "a device has either an address or a serial line".to_owned();
            let hint = "address = \"modbus://HOST:502\", or serial = { path = \"/dev/ttyUSB0\" }";
            Err(file.fault("address", text, Some(hint.to_owned())))
        }
    }
}

fn poll(
    file: &WrapperFile,
    settings: &Settings,
    merge: Merge,
    table: &Spanned<PollTable>,
) -> Result<Poll, DescriptorError> {
    let (at, table) = (table.span().start, table.get_ref());
    let wrong = |key: &str, text: String| Err(place(file, at, key, text, None));
    let period_ms = table.period_ms.unwrap_or(settings.period_ms);
    if !(10..=86_400_000).contains(&period_ms) {
        return wrong("period_ms", "it is not within 10 to 86400000".to_owned());
    }
    let own = file.name.replace('_', "-");
    let name = table.stream_name.clone();
    let name = name.unwrap_or_else(|| own.trim_matches('-').to_owned());
    if let Err(error) = check_name(&name) {
        return wrong("stream_name", error.to_string());
    }
    if !(1..=FIELDS_MAX).contains(&table.registers.len()) {
        return wrong("registers", "a poll has 1 to 256 registers".to_owned());
    }
    let (mut registers, mut fields) = (Vec::new(), Vec::new());
    for table in &table.registers {
        let (register, field) = register(file, settings, table)?;
        registers.push(register);
        fields.push(field);
    }
    let schema = StreamSchema {
        fields,
        key: table.stream_key.is_some().then(|| "device".to_owned()),
    };
    if let Err(error) = schema.check_names() {
        return wrong("registers", error.to_string());
    }
    let spans: Vec<Span> = registers.iter().map(|it| it.span).collect();
    let definition = StreamDefinition {
        schema,
        level: file.keys.level,
        description: None,
    };
    Ok(Poll {
        stream: name.into(),
        definition: Arc::new(definition),
        key: table.stream_key.clone(),
        unit_id: table.unit_id.unwrap_or(settings.unit_id),
        period: Duration::from_millis(period_ms),
        reads: plan(&spans, merge),
        registers,
    })
}

fn register(
    file: &WrapperFile,
    settings: &Settings,
    table: &Spanned<RegisterTable>,
) -> Result<(Register, Field), DescriptorError> {
    let (at, table) = (table.span().start, table.get_ref());
    let layout = Layout::new(LayoutKeys {
        type_key: table.type_key,
        is_bit: table.table.has_bits(),
        bit: table.bit,
        length: table.length,
        bytes: table.byte_order.unwrap_or(settings.byte_order),
        words: table.word_order.unwrap_or(settings.word_order),
        scale: table.scale,
        offset: table.offset,
        null_number: table.null_number,
    });
    let named = |text: String| format!("{:?}: {text}", table.name);
    let layout = layout.map_err(|(key, text)| place(file, at, key, named(text), None))?;
    let span = Span {
        table: table.table,
        address: table.address,
        count: layout.count(),
    };
    if let Err(text) = check_span(span, settings.request_registers) {
        return Err(place(file, at, "address", named(text), None));
    }
    let field = Field {
        name: table.name.clone(),
        field_type: layout.field_type(),
        unit: table.unit.clone(),
        observed_property: table.observed_property.clone(),
        description: table.description.clone(),
    };
    let register = Register {
        name: table.name.clone(),
        span,
        layout,
    };
    Ok((register, field))
}

/// Checks that a request can read or write entries.
///
/// # Errors
/// Why none can.
pub(super) fn check_span(span: Span, registers_max: u16) -> Result<(), String> {
    if span.end() > 65_536 {
        return Err(format!("{span} goes beyond the last address, 65535"));
    }
    if span.count > registers_max {
        return Err(format!(
            "it needs {} registers, and a request reads {registers_max}",
            span.count
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;

    const TEXT: &str = r#"
kind = "modbus"
address = "modbus://plc.example"
word_order = "little"
[[poll]]
stream_name = "boiler"
registers = [
    { name = "celsius", table = "input", address = 16, type = "i16", scale = 0.1, unit = "Cel" },
    { name = "energy", table = "input", address = 17, type = "u64", unit = "W.h" },
    { name = "burner", table = "coils", address = 0, type = "bool" },
]
[[poll]]
stream_name = "pumps"
stream_key = "north"
unit_id = 7
period_ms = 100
registers = [{ name = "alarm", table = "holding", address = 9, type = "bool", bit = 3 }]
[[poll]]
stream_name = "pumps"
stream_key = "south"
unit_id = 8
registers = [{ name = "alarm", table = "holding", address = 19, type = "bool", bit = 4 }]
"#;

    #[test]
    fn a_file_becomes_polls_with_merged_requests() {
        let map = Map::of(&wrapper_file(TEXT)).unwrap();
        assert_eq!(map.line, Line::Tcp("plc.example:502".to_owned()));
        let boiler = &map.polls[0];
        let reads: Vec<String> = boiler.reads.iter().map(Span::to_string).collect();
        assert_eq!(reads, ["input 16 to 20", "coils 0"]);
        assert_eq!((boiler.unit_id, boiler.period.as_millis()), (1, 1_000));
        let pumps = &map.polls[1];
        assert_eq!((pumps.unit_id, pumps.period.as_millis()), (7, 100));
        assert_eq!(pumps.definition.schema.key.as_deref(), Some("device"));
        assert_eq!(map.polls[2].key.as_deref(), Some("south"));
    }

    #[test]
    fn faults_name_their_line() {
        for (from, to, line, key) in [
            ("modbus://plc.example", "tcp://x", 3, "address"),
            ("modbus://plc.example", "modbus://:502", 3, "address"),
            ("modbus://plc.example", "modbus://x:99999", 3, "address"),
            ("\"boiler\"", "\"Boiler\"", 5, "stream_name"),
            ("address = 17", "address = 65533", 9, "address"),
            ("\"u64\"", "\"u65\"", 9, "type"),
            ("\"bool\" },", "\"u16\" },", 10, "type"),
            ("\"celsius\"", "\"energy\"", 5, "registers"),
            ("period_ms = 100", "period_ms = 1", 12, "period_ms"),
            ("\"south\"", "\"north\"", 18, "stream_name"),
            (
                "address = 19, type = \"bool\", bit = 4",
                "address = 19, type = \"u16\"",
                18,
                "stream_name",
            ),
            (
                "word_order",
                "serial = { path = \"a\" }\nword_order",
                3,
                "address",
            ),
        ] {
            let file = wrapper_file(&TEXT.replace(from, to));
            let error = Map::of(&file).unwrap_err();
            let found = error.key.rsplit(['.', ']']).next().unwrap();
            assert_eq!((error.line, found), (line, key), "{to}: {error}");
        }
    }

    #[test]
    fn addresses_are_read() {
        let tcp = |place: &str| Ok(Line::Tcp(place.to_owned()));
        assert_eq!(Line::parse("modbus://10.0.0.1:1502/"), tcp("10.0.0.1:1502"));
        assert_eq!(Line::parse("modbus://[::1]"), tcp("[::1]:502"));
        assert_eq!(Line::parse("modbus://[::1]:7"), tcp("[::1]:7"));
        let rtu = Line::RtuOverTcp("gateway:502".to_owned());
        assert_eq!(Line::parse("modbus+rtu://gateway"), Ok(rtu));
        for wrong in [
            "modbus://",
            "modbus://a/b",
            "modbus://a b",
            "plc",
            "http://a",
        ] {
            assert!(Line::parse(wrong).is_err(), "{wrong}");
        }
    }
}
