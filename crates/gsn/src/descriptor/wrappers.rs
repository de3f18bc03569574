//! GSN's wrappers that have an equal kind here: from the predicates of an address to the keys of a wrapper in the
//! sensor's file, and back.
//!
//! The way back makes an address and takes it again: only if the same keys come of it, it is what the wrapper says.

use chappe_stream::descriptor::InlineWrapper;
use toml::{Table, Value};

use super::model::{Address, OutputField};
use super::types;
use crate::mapping::field_name;

/// A wrapper that was made of an address.
pub(super) struct Equal {
    pub(super) wrapper: InlineWrapper,
    /// What changes, for the report.
    pub(super) note: &'static str,
    /// The predicates that it has taken.
    pub(super) used: &'static [&'static str],
}

/// Why no wrapper was made of an address.
pub(super) enum Unequal {
    /// There is no such kind.
    Kind,
    /// There is one, and this is in the way.
    Reason(String),
}

type Made = Result<Equal, Unequal>;

/// GSN's ports if an address names none.
const DATA_PORT: &str = "22022";
const DIRECTORY_PORT: &str = "22023";

/// The wrapper of an address; `stream` is the name of its stream.
pub(super) fn equal(address: &Address, stream: &str) -> Made {
    match &*address.wrapper.to_ascii_lowercase() {
        "csv" => csv(address, stream),
        "http-get" => http_get(address, stream),
        "udp" => udp(address, stream),
        "system-time" => system_time(address, stream),
        "zeromq" | "zeromq-async" => zeromq(address, false),
        "zeromq-sync" => zeromq(address, true),
        "zeromq-push" => zeromq_push(address, stream),
        "memory-usage" | "memory-monitor" => because(
            "it measures the memory of GSN itself; a wrapper of kind system measures the host",
        ),
        _ => Err(Unequal::Kind),
    }
}

/// Whether the structure of an address names the fields of its wrapper.
pub(super) fn takes_fields(wrapper: &str) -> bool {
    ["http-get", "udp", "zeromq-push"].contains(&wrapper)
}

fn because(reason: impl Into<String>) -> Made {
    Err(Unequal::Reason(reason.into()))
}

fn text(text: impl Into<String>) -> Value {
    Value::String(text.into())
}

fn texts(items: impl IntoIterator<Item = String>) -> Value {
    Value::Array(items.into_iter().map(Value::String).collect())
}

fn table<const N: usize>(pairs: [(&str, Value); N]) -> Table {
    let pairs = pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value));
    pairs.collect()
}

fn needed<'a>(address: &'a Address, key: &str) -> Result<&'a str, Unequal> {
    let value = address.predicate(&[key]).filter(|value| !value.is_empty());
    value.ok_or_else(|| Unequal::Reason(format!("the predicate {key:?} is needed")))
}

/// A wrapper with one stream of these fields: name, path, type.
fn with_stream(mut keys: Table, stream: &str, fields: Vec<Table>) -> InlineWrapper {
    let fields = fields.into_iter().map(Value::Table).collect();
    let only = table([("name", text(stream)), ("fields", Value::Array(fields))]);
    keys.insert("stream".to_owned(), Value::Array(vec![Value::Table(only)]));
    InlineWrapper { keys, stream: None }
}

/// A message as the only field of an element.
fn whole_message(mut keys: Table, stream: &str, field: &str) -> InlineWrapper {
    let whole = table([
        ("name", text(field)),
        ("at", Value::Integer(0)),
        ("type", text("bytes")),
    ]);
    let layout = table([("layout", Value::Array(vec![Value::Table(whole)]))]);
    let format = table([("binary", Value::Table(layout))]);
    keys.insert("format".to_owned(), Value::Table(format));
    let field = table([("name", text(field)), ("type", text("bytes"))]);
    with_stream(keys, stream, vec![field])
}

/// The only field of an address, or `other`.
fn only_field(fields: &[OutputField], other: &str) -> String {
    match fields {
        [only] => field_name(&only.name),
        _ => other.to_owned(),
    }
}

fn udp(address: &Address, stream: &str) -> Made {
    let Ok(port) = needed(address, "port")?.parse::<u16>() else {
        return because("the predicate \"port\" is not a port");
    };
    let keys = table([
        ("kind", text("udp")),
        ("listen", text(format!("0.0.0.0:{port}"))),
    ]);
    let field = only_field(&address.fields, "raw_packet");
    Ok(Equal {
        wrapper: whole_message(keys, stream, &field),
        note: "a wrapper of kind udp; each datagram is an element",
        used: &["port"],
    })
}

fn system_time(address: &Address, stream: &str) -> Made {
    let period = address.predicate(&["clock-period"]).unwrap_or("1000");
    let period = period
        .parse::<u32>()
        .ok()
        .filter(|ms| (10..=86_400_000).contains(ms));
    let Some(period_ms) = period else {
        return because("the predicate \"clock-period\" is not 10 to 86400000 milliseconds");
    };
    let keys = table([
        ("kind", text("clock")),
        ("period_ms", Value::Integer(i64::from(period_ms))),
        ("stream_name", text(stream)),
    ]);
    Ok(Equal {
        wrapper: InlineWrapper {
            keys,
            stream: Some(stream.to_owned()),
        },
        note: "a wrapper of kind clock, whose field is `tick`",
        used: &["clock-period"],
    })
}

fn http_get(address: &Address, stream: &str) -> Made {
    let url = needed(address, "url")?;
    let authority = url.split("://").nth(1).unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    if authority.is_empty() || authority.contains('@') {
        return because("its address has no host, or has a password");
    }
    let rate = address.predicate(&["rate"]).unwrap_or("60000");
    let Ok(rate_ms) = rate.parse::<u32>() else {
        return because("the predicate \"rate\" is not a number of milliseconds");
    };
    let keys = table([
        ("kind", text("http_poll")),
        ("address", text(url)),
        (
            "period_s",
            Value::Integer(i64::from(rate_ms.div_ceil(1_000).max(1))),
        ),
    ]);
    let field = only_field(&address.fields, "data");
    Ok(Equal {
        wrapper: whole_message(keys, stream, &field),
        note: "a wrapper of kind http_poll; a document that has not changed is not an element",
        used: &["url", "rate"],
    })
}

/// A server's endpoint of one of its ports: the scheme, a user and a path are dropped.
fn endpoint(server: &str, port: &str) -> Option<String> {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = authority.rsplit('@').next().unwrap_or_default();
    let host = plain.split(':').next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    let is_port = port.parse::<u16>().is_ok();
    (!host.is_empty() && host.chars().all(fits) && is_port).then(|| format!("tcp://{host}:{port}"))
}

/// Whether an endpoint is on this machine.
fn is_local(endpoint: &str) -> bool {
    endpoint.starts_with("tcp://127.") || endpoint.starts_with("tcp://localhost:")
}

const ZEROMQ: &[&str] = &[
    "address",
    "remote-contact-point",
    "data_port",
    "meta_port",
    "vsensor",
    "name",
    "local_address",
    "local_port",
];

fn zeromq(address: &Address, is_sync: bool) -> Made {
    let server = address.predicate(&["address", "remote-contact-point"]);
    let Some(server) = server.filter(|server| !server.is_empty()) else {
        return because("it names no server");
    };
    let Some(sensor) = address.predicate(&["vsensor", "name"]) else {
        return because("it names no sensor");
    };
    // A contact point may have the port of the data.
    let in_point = server.rsplit(':').next().unwrap_or_default();
    let in_point = in_point.split('/').next().unwrap_or_default();
    let in_point = Some(in_point).filter(|port| port.parse::<u16>().is_ok());
    let data_port = address.predicate(&["data_port"]).or(in_point);
    let meta_port = address.predicate(&["meta_port"]).unwrap_or(DIRECTORY_PORT);
    let data = endpoint(server, data_port.unwrap_or(DATA_PORT));
    let (Some(data), Some(directory)) = (data, endpoint(server, meta_port)) else {
        return because("its server is not a host and a port");
    };
    let mut keys = table([
        ("directory", text(directory.as_str())),
        ("sensor", text(sensor)),
    ]);
    let own = match is_sync {
        false => {
            keys.insert("kind".to_owned(), text("gsn-zeromq-async"));
            keys.insert("address".to_owned(), text(data.as_str()));
            data
        }
        true => {
            let (host, port) = (
                needed(address, "local_address")?,
                needed(address, "local_port")?,
            );
            let Some(listen) = endpoint(host, port) else {
                return because("its local address is not a host and a port");
            };
            keys.insert("kind".to_owned(), text("gsn-zeromq-sync"));
            keys.insert("listen".to_owned(), text(listen.as_str()));
            listen
        }
    };
    if !is_local(&own) || !is_local(&directory) {
        keys.insert("insecure".to_owned(), Value::Boolean(true));
    }
    let stream = types::stream_name(sensor);
    keys.insert("stream_name".to_owned(), text(stream.as_str()));
    Ok(Equal {
        wrapper: InlineWrapper {
            keys,
            stream: Some(stream),
        },
        note: match is_sync {
            true => "a wrapper of kind gsn-zeromq-sync, without encryption as in GSN",
            false => "a wrapper of kind gsn-zeromq-async, without encryption as in GSN",
        },
        used: ZEROMQ,
    })
}

fn zeromq_push(address: &Address, stream: &str) -> Made {
    let (host, port) = (
        needed(address, "local_address")?,
        needed(address, "local_port")?,
    );
    let Some(listen) = endpoint(host, port) else {
        return because("its local address is not a host and a port");
    };
    if address.fields.is_empty() {
        return because("it needs an output-structure");
    }
    let mut keys = table([
        ("kind", text("gsn-zeromq-push")),
        ("listen", text(listen.as_str())),
    ]);
    if !is_local(&listen) {
        keys.insert("insecure".to_owned(), Value::Boolean(true));
    }
    let mut fields = Vec::new();
    for field in &address.fields {
        let (field_type, _) = types::field_type(&field.field_type).map_err(Unequal::Reason)?;
        let word = match field_type {
            chappe_stream::FieldType::Integer => "integer",
            chappe_stream::FieldType::Double => "double",
            chappe_stream::FieldType::Bytes => "bytes",
            _ => "text",
        };
        fields.push(table([
            ("name", text(field_name(&field.name))),
            ("type", text(word)),
        ]));
    }
    Ok(Equal {
        wrapper: with_stream(keys, stream, fields),
        note: "a wrapper of kind gsn-zeromq-push, without encryption as in GSN",
        used: ZEROMQ,
    })
}

fn csv(address: &Address, stream: &str) -> Made {
    let file = needed(address, "file")?;
    let names: Vec<&str> = needed(address, "fields")?
        .split(',')
        .map(str::trim)
        .collect();
    let formats = split_formats(needed(address, "formats")?);
    if names.len() != formats.len() {
        return because(format!(
            "there are {} fields and {} formats",
            names.len(),
            formats.len()
        ));
    }
    let (mut times, mut patterns, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    for (name, format) in names.iter().zip(&formats) {
        let lower = format.to_ascii_lowercase();
        let word = match &*lower {
            "numeric" => "double",
            "bigint" => "integer",
            "string" => "text",
            _ => {
                let pattern = format
                    .get("timestamp(".len()..)
                    .filter(|_| lower.starts_with("timestamp("))
                    .and_then(|rest| rest.strip_suffix(')'))
                    .and_then(from_java);
                let Some(pattern) = pattern else {
                    return because(format!("the format {format:?} has no counterpart"));
                };
                times.push((*name).to_owned());
                patterns.push(pattern);
                continue;
            }
        };
        fields.push(table([
            ("name", text(field_name(name))),
            ("path", text(*name)),
            ("type", text(word)),
        ]));
    }
    if fields.is_empty() {
        return because("it has no fields besides the time");
    }
    let mut options = table([("columns", texts(names.iter().map(|&name| name.to_owned())))]);
    if !times.is_empty() {
        options.insert("time".to_owned(), texts(times));
        options.insert("time_format".to_owned(), text(patterns.join(" ")));
    }
    if let Some(zone) = address
        .predicate(&["timezone"])
        .filter(|zone| !zone.is_empty())
    {
        match offset(zone) {
            Some(Some(zone)) => {
                options.insert("time_zone".to_owned(), text(zone));
            }
            Some(None) => {}
            None => {
                return because(format!("the time zone {zone:?} is not an offset from UTC"));
            }
        }
    }
    for (predicate, option, default) in [("separator", "delimiter", ","), ("quote", "quote", "\"")]
    {
        let given = address.predicate(&[predicate]);
        if let Some(sign) = given.filter(|sign| !sign.is_empty() && *sign != default) {
            let sign = if sign == "\\t" { "\t" } else { sign };
            options.insert(option.to_owned(), text(sign));
        }
    }
    if let Some(skip) = address.predicate(&["skip-first-lines"]) {
        match skip.parse::<u32>() {
            Ok(0) => {}
            Ok(lines) => {
                options.insert("skip_lines".to_owned(), Value::Integer(i64::from(lines)));
            }
            Err(_) => return because("the predicate \"skip-first-lines\" is not a number"),
        }
    }
    if let Some(bad) = address
        .predicate(&["bad-values"])
        .filter(|bad| !bad.is_empty())
    {
        let bad = bad.split(',').map(|one| one.trim().to_owned());
        options.insert("null".to_owned(), texts(bad));
    }
    let format = table([("csv", Value::Table(options))]);
    let mut keys = table([
        ("kind", text("file")),
        ("path", text(file)),
        ("format", Value::Table(format)),
    ]);
    if let Some(period) = address.predicate(&["sampling"]) {
        let period = period.parse().ok();
        let Some(ms) = period.filter(|ms| (10..=3_600_000).contains(ms)) else {
            return because("the predicate \"sampling\" is not 10 to 3600000 milliseconds");
        };
        keys.insert("poll_ms".to_owned(), Value::Integer(ms));
    }
    Ok(Equal {
        wrapper: with_stream(keys, stream, fields),
        note: "a wrapper of kind file, which follows the file as it grows; the path is relative to the sensor's file",
        used: &[
            "file",
            "fields",
            "formats",
            "timezone",
            "separator",
            "quote",
            "skip-first-lines",
            "bad-values",
            "sampling",
        ],
    })
}

/// The formats of fields, between commas that are not in parentheses.
fn split_formats(written: &str) -> Vec<String> {
    let (mut formats, mut depth) = (vec![String::new()], 0_u32);
    for c in written.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                formats.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = formats.last_mut() {
            last.push(c);
        }
    }
    formats
        .into_iter()
        .map(|format| format.trim().to_owned())
        .collect()
}

/// Letters of Java's patterns of times, and the conversions that mean the same.
const TIMES: [(&str, &str); 14] = [
    ("yyyy", "%Y"),
    ("yy", "%y"),
    ("y", "%Y"),
    ("MMM", "%b"),
    ("MM", "%m"),
    ("dd", "%d"),
    ("HH", "%H"),
    ("hh", "%I"),
    ("mm", "%M"),
    ("ss", "%S"),
    ("SSS", "%f"),
    ("a", "%p"),
    ("Z", "%z"),
    ("DDD", "%j"),
];
/// The same for numbers without leading zeros, which the conversions take, too.
const SHORT_TIMES: [(&str, &str); 7] = [
    ("M", "%m"),
    ("d", "%d"),
    ("H", "%H"),
    ("k", "%H"),
    ("h", "%I"),
    ("m", "%M"),
    ("s", "%S"),
];

/// A pattern of Java as a time format; `None` if a part has no counterpart.
fn from_java(pattern: &str) -> Option<String> {
    let mut made = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        if first == '\'' {
            let (quoted, after) = rest[1..].split_once('\'')?;
            made.push_str(&quoted.replace('%', "%%"));
            rest = after;
        } else if first.is_ascii_alphabetic() {
            let length = rest.chars().take_while(|c| *c == first).count();
            let (letters, after) = rest.split_at(length);
            let known = TIMES.iter().chain(&SHORT_TIMES);
            let (_, conversion) = known.into_iter().find(|(java, _)| *java == letters)?;
            made.push_str(conversion);
            rest = after;
        } else {
            if first == '%' {
                made.push('%');
            }
            made.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    (!made.is_empty()).then_some(made)
}

/// A time format as a pattern of Java.
fn to_java(format: &str) -> Option<String> {
    let mut made = String::new();
    let mut signs = format.chars();
    while let Some(c) = signs.next() {
        if c == '%' {
            let conversion = format!("%{}", signs.next()?);
            let (java, _) = TIMES.iter().find(|(_, known)| *known == conversion)?;
            made.push_str(java);
        } else if c.is_ascii_alphabetic() {
            made.push_str(&format!("'{c}'"));
        } else {
            made.push(c);
        }
    }
    Some(made)
}

/// The offset of a time zone; the inner `None` is UTC.
fn offset(zone: &str) -> Option<Option<String>> {
    let upper = zone.trim().to_ascii_uppercase();
    if ["UTC", "GMT", "Z", "ETC/UTC", "ETC/GMT"].contains(&&*upper) {
        return Some(None);
    }
    // The signs of these are those of POSIX: they count westward.
    let (text, is_west) = match upper.strip_prefix("ETC/GMT") {
        Some(rest) => (rest, true),
        None => {
            let rest = upper.strip_prefix("UTC").or(upper.strip_prefix("GMT"));
            (rest.unwrap_or(&upper), false)
        }
    };
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (is_west, digits),
        ("-", digits) => (!is_west, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if digits.len() == 4 => digits.split_at(2),
        None => (digits, "0"),
    };
    let (hours, minutes) = (hours.parse::<u8>().ok()?, minutes.parse::<u8>().ok()?);
    if hours > 14 || minutes > 59 {
        return None;
    }
    let sign = if sign { '-' } else { '+' };
    Some(Some(format!("{sign}{hours:02}:{minutes:02}")))
}

/// The address of a wrapper; `None` if no address says the same. `stream` is the stream that an address of the
/// source would have.
pub(super) fn address(wrapper: &InlineWrapper, stream: &str) -> Option<Address> {
    let keys = &wrapper.keys;
    let word = |key: &str| keys.get(key).and_then(Value::as_str);
    let of = |wrapper: &str, predicates: Vec<(&str, String)>| Address {
        wrapper: wrapper.to_owned(),
        predicates: predicates
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        ..Address::default()
    };
    let host_and_port = |key: &str| {
        let endpoint = word(key)?.strip_prefix("tcp://")?;
        let (host, port) = endpoint.rsplit_once(':')?;
        Some((host.to_owned(), port.to_owned()))
    };
    let mut made = match word("kind")? {
        "udp" => {
            let port = word("listen")?.rsplit(':').next()?.to_owned();
            of("udp", vec![("port", port)])
        }
        "clock" => {
            let period_ms = keys.get("period_ms")?.as_integer()?.to_string();
            of("system-time", vec![("clock-period", period_ms)])
        }
        "http_poll" => {
            let period_s = keys.get("period_s")?.as_integer()?;
            let rate = period_s.checked_mul(1_000)?.to_string();
            of(
                "http-get",
                vec![("url", word("address")?.to_owned()), ("rate", rate)],
            )
        }
        kind @ ("gsn-zeromq-async" | "gsn-zeromq-sync") => {
            let (host, meta_port) = host_and_port("directory")?;
            let mut predicates = vec![
                ("address", format!("tcp://{host}")),
                ("meta_port", meta_port),
                ("vsensor", word("sensor")?.to_owned()),
            ];
            if kind == "gsn-zeromq-async" {
                predicates.push(("data_port", host_and_port("address")?.1));
                of("zeromq-async", predicates)
            } else {
                let (local, port) = host_and_port("listen")?;
                predicates.extend([("local_address", local), ("local_port", port)]);
                of("zeromq-sync", predicates)
            }
        }
        "gsn-zeromq-push" => {
            let (local, port) = host_and_port("listen")?;
            of(
                "zeromq-push",
                vec![("local_address", local), ("local_port", port)],
            )
        }
        "file" => of("csv", csv_predicates(keys)?),
        _ => return None,
    };
    if made.wrapper != "csv" && wrapper.stream.is_none() {
        made.fields = fields_of(keys)?;
    }
    let again = equal(&made, stream).ok()?;
    (again.wrapper == *wrapper).then_some(made)
}

/// The fields of the only stream of a wrapper.
fn fields_of(keys: &Table) -> Option<Vec<OutputField>> {
    let only = keys.get("stream")?.as_array()?.first()?;
    let fields = only.get("fields")?.as_array()?.iter().map(|field| {
        let gsn = match field.get("type")?.as_str()? {
            "integer" => "bigint",
            "double" => "double",
            "bytes" => "binary",
            _ => "string",
        };
        Some(OutputField {
            name: field.get("name")?.as_str()?.to_owned(),
            field_type: gsn.to_owned(),
            ..OutputField::default()
        })
    });
    fields.collect()
}

fn csv_predicates(keys: &Table) -> Option<Vec<(&'static str, String)>> {
    let options = keys.get("format")?.get("csv")?;
    let word = |key: &str| options.get(key).and_then(Value::as_str);
    let list = |key: &str| -> Option<Vec<&str>> {
        let items = options.get(key)?.as_array()?;
        items.iter().map(Value::as_str).collect()
    };
    let columns = list("columns")?;
    let times = list("time").unwrap_or_default();
    let patterns = to_java(word("time_format").unwrap_or_default())?;
    // One column has the whole pattern; of several, each has one part.
    let patterns: Vec<&str> = match times.len() {
        1 => vec![&patterns],
        _ => patterns.split(' ').collect(),
    };
    let only = keys.get("stream")?.as_array()?.first()?;
    let fields = only.get("fields")?.as_array()?;
    let mut formats = Vec::new();
    for column in &columns {
        if let Some(at) = times.iter().position(|time| time == column) {
            formats.push(format!("Timestamp({})", patterns.get(at)?));
            continue;
        }
        let of_column = |field: &&Value| field.get("path").and_then(Value::as_str) == Some(column);
        let field = fields.iter().find(of_column)?;
        let format = match field.get("type")?.as_str()? {
            "integer" => "BigInt",
            "double" => "Numeric",
            "text" => "String",
            _ => return None,
        };
        formats.push(format.to_owned());
    }
    let path = keys.get("path")?.as_str()?.to_owned();
    let mut predicates = vec![
        ("file", path),
        ("fields", columns.join(", ")),
        ("formats", formats.join(", ")),
    ];
    for (option, predicate) in [
        ("time_zone", "timezone"),
        ("delimiter", "separator"),
        ("quote", "quote"),
    ] {
        if let Some(given) = word(option) {
            predicates.push((predicate, given.replace('\t', "\\t")));
        } else if predicate == "timezone" {
            // GSN takes times without a zone as those of its server's.
            predicates.push((predicate, "UTC".to_owned()));
        }
    }
    if let Some(lines) = options.get("skip_lines").and_then(Value::as_integer) {
        predicates.push(("skip-first-lines", lines.to_string()));
    }
    if let Some(ms) = keys.get("poll_ms").and_then(Value::as_integer) {
        predicates.push(("sampling", ms.to_string()));
    }
    if let Some(bad) = list("null") {
        predicates.push(("bad-values", bad.join(",")));
    }
    Some(predicates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_times_are_converted() {
        for (java, format) in [
            ("yyyy-MM-dd HH:mm:ss.SSS", "%Y-%m-%d %H:%M:%S.%f"),
            ("d/M/yy k:m", "%d/%m/%y %H:%M"),
            ("yyyy-MM-dd'T'HH:mm", "%Y-%m-%dT%H:%M"),
            ("hh:mm a Z", "%I:%M %p %z"),
        ] {
            assert_eq!(from_java(java).as_deref(), Some(format));
            let again = to_java(format).unwrap();
            assert_eq!(from_java(&again).as_deref(), Some(format), "{again}");
        }
        for wrong in ["", "yyyy ww", "G", "'open", "SS"] {
            assert_eq!(from_java(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn time_zones_are_offsets() {
        let of = |zone: &str| offset(zone);
        let some = |zone: &str| Some(Some(zone.to_owned()));
        assert_eq!(of("Etc/GMT-1"), some("+01:00"));
        assert_eq!(of("GMT+5:30"), some("+05:30"));
        assert_eq!(of("-0330"), some("-03:30"));
        assert_eq!(of("UTC"), Some(None));
        assert_eq!(of("Europe/Zurich"), None);
        assert_eq!(of("CET"), None);
    }

    #[test]
    fn an_endpoint_has_neither_user_nor_path() {
        let point = "tcp://user:secret@10.0.0.7:22022/x";
        assert_eq!(endpoint(point, "5").as_deref(), Some("tcp://10.0.0.7:5"));
        assert_eq!(
            endpoint("gsn.example.org", "5").as_deref(),
            Some("tcp://gsn.example.org:5")
        );
        assert_eq!(endpoint("a b", "5"), None);
        assert_eq!(endpoint("a", "port"), None);
    }
}
