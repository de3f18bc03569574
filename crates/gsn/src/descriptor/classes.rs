//! Processing classes of GSN: each as a bridge with other statements, windows or settings, where that gives
//! the same elements.

use std::time::Duration;

use chappe_stream::descriptor::Source;
use chappe_stream::{Descriptor, Extent, FieldType, LatePolicy, WindowClock};

use super::model::{GsnDescriptor, ProcessingClass};
use super::report::Report;
use super::sql::passes_on;

/// A class without a counterpart, and what to use in its place.
pub(super) struct NoCounterpart {
    pub(super) message: String,
    pub(super) hint: &'static str,
}

const CLASS: &str = "processing-class/class-name";

/// Applies the class of `from` to a descriptor whose statements are those of its streams.
pub(super) fn apply(
    from: &GsnDescriptor,
    to: &mut Descriptor,
    report: &mut Report,
) -> Result<(), NoCounterpart> {
    let class = &from.class;
    let place = class.place;
    let mut used: Vec<&str> = Vec::new();
    let changed = |report: &mut Report, reason: &str| report.changed(place, CLASS, reason);
    let passes_with = |reason: &str, report: &mut Report| changed(report, reason);
    match simple_name(&class.name).as_str() {
        "bridge" => {
            used.push("allow-nulls");
            if let Some(value) = parameter(class, &["allow-nulls"]) {
                to.output.drops_nulls = value.eq_ignore_ascii_case("false");
                report.taken(place, "processing-class/init-params/param[allow-nulls]");
            }
            report.taken(place, CLASS);
        }
        "clockedbridge" | "scheduledbridge" => {
            used.extend(PERIODS);
            if let Some(table) = parameter(class, &["table_name"]) {
                return Err(NoCounterpart {
                    message: format!(
                        "the class copies the rows of the table {table:?} into the sensor"
                    ),
                    hint: "use BridgeVirtualSensor, and read that sensor in a further stream, by the wrapper local",
                });
            }
            let period = period(class)?;
            follow_clock(to, period);
            let fields = field_list(to);
            for statement in &mut to.statements {
                let is_done = without_time(&fields, &statement.sql).is_some();
                if !is_done {
                    statement.sql = with_time_of_period(&fields, &statement.sql);
                }
            }
            changed(
                report,
                "clock = \"node\", slide: evaluated once in each period of the node's clock, whose end is the time of \
                 the element",
            );
        }
        "statsbridge" | "bridgestats" | "statistics" => passes_with(
            "a bridge; the node counts elements of each stream (/metrics, chappe stream \
             completeness)",
            report,
        ),
        "counter" => counter(to, report, class)?,
        "dataclean" | "datacleaning" => {
            used.extend(["model", "window-size", "size", "error-bound", "error"]);
            clean(to, report, class)?;
        }
        "gpsnmea" | "nmea" => {
            used.extend(["field", "input", "column"]);
            nmea(from, to, report)?;
        }
        "myfilter" | "filter" => passes_with(
            "a bridge; put the condition into the query's WHERE: a result without rows is not an element",
            report,
        ),
        "splitter" | "streamsplitter" => passes_with(
            "a bridge: the parts stay in one stream; for a stream of each part, write a sensor with \
             a WHERE, or give the output a column `key`",
            report,
        ),
        "streamexporter" | "streamrrdexporter" => passes_with(
            "a bridge without the export; read the stored stream over REST, with `chappe query` or \
             over a link",
            report,
        ),
        "scheduledstreamexporter" => {
            used.extend(PERIODS);
            let period = period(class)?;
            follow_clock(to, period);
            changed(
                report,
                "clock = \"node\", slide, without the export; read the stored stream over REST, with `chappe query` \
                 or over a link",
            );
        }
        "mqttexporter" => passes_with(
            "a bridge without the export; let the program that publishes follow the stream over \
             REST (live), or publish it over DDS ([dds])",
            report,
        ),
        "chart" => passes_with("a bridge; the console draws charts of every stream", report),
        "email" | "sms" | "emailandsms" | "smsoremail" => passes_with(
            "a bridge without messages; let a program follow the stream over REST (live) and send them",
            report,
        ),
        name @ ("r" | "matlab" | "scriptlet" | "scriptletprocessor" | "groovy"
        | "groovyscriptlet" | "modelling" | "model" | "gridmodel" | "gridrenderer") => {
            return Err(NoCounterpart {
                message: format!("the class {name:?} computes in a runtime of its own"),
                hint: "write the computation in SQL, or let a program read the source's stream and \
                       write its results with `chappe write`; then use BridgeVirtualSensor over \
                       that stream",
            });
        }
        "smacleaner" => {
            return Err(NoCounterpart {
                message: "the class marks numbers that differ from the mean of those before"
                    .to_owned(),
                hint: "use BridgeVirtualSensor with a window of one element more than `size`, and compare the last \
                       number with the mean of the others",
            });
        }
        _ => {
            return Err(NoCounterpart {
                message: format!("the class {:?} is not known", class.name),
                hint: "if it passes elements on, write BridgeVirtualSensor; if it computes, write \
                       that in SQL",
            });
        }
    }
    for (name, _) in &class.parameters {
        if !used.iter().any(|used| used.eq_ignore_ascii_case(name)) {
            let item = format!("processing-class/init-params/param[{name}]");
            report.ignored(place, item, "the class is a bridge here");
        }
    }
    Ok(())
}

/// The class without its package and the usual ends of names.
fn simple_name(name: &str) -> String {
    let name = name.trim().rsplit('.').next().unwrap_or_default();
    let mut name = name.to_ascii_lowercase();
    for end in ["virtualsensor", "vsensor", "vs"] {
        if let Some(stem) = name.strip_suffix(end).filter(|stem| !stem.is_empty()) {
            name = stem.to_owned();
            break;
        }
    }
    name
}

const PERIODS: [&str; 6] = [
    "rate",
    "fixed-rate",
    "clock-rate",
    "clock-period",
    "period",
    "interval",
];

fn parameter<'c>(class: &'c ProcessingClass, names: &[&str]) -> Option<&'c str> {
    names.iter().find_map(|name| {
        let mut parameters = class.parameters.iter();
        let found = parameters.find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    })
}

fn period(class: &ProcessingClass) -> Result<Duration, NoCounterpart> {
    let period = parameter(class, &PERIODS).and_then(|text| text.parse::<u64>().ok());
    let period = period.filter(|ms| *ms > 0).map(Duration::from_millis);
    period.ok_or_else(|| NoCounterpart {
        message: format!("the class {:?} has no period", class.name),
        hint: "add <param name=\"rate\">, a number of milliseconds",
    })
}

/// Evaluates every source once in each period of the node's clock.
fn follow_clock(to: &mut Descriptor, period: Duration) {
    for source in &mut to.sources {
        source.slide = Extent::Time(period);
        source.first = 1;
        source.timing.clock = WindowClock::Node;
        // Elements that were received together have the same time on this clock.
        source.timing.unique_times = false;
        source.late = LatePolicy::Insert;
    }
}

fn field_list(descriptor: &Descriptor) -> String {
    let fields = descriptor.output.schema.fields.iter();
    let names: Vec<&str> = fields.map(|field| field.name.as_str()).collect();
    names.join(", ")
}

/// A statement without the times of its elements, which then have the end of the period.
fn with_time_of_period(fields: &str, sql: &str) -> String {
    format!("select {fields} from ({sql})")
}

/// What [`with_time_of_period`] was made from.
fn without_time<'s>(fields: &str, sql: &'s str) -> Option<&'s str> {
    let whole = with_time_of_period(fields, "");
    sql.strip_prefix(&whole[..whole.len() - 1])?
        .strip_suffix(')')
}

/// The statement of a stream of a scheduled class, from Chappe's.
pub(super) fn scheduled_statement<'s>(descriptor: &Descriptor, sql: &'s str) -> &'s str {
    without_time(&field_list(descriptor), sql).unwrap_or(sql)
}

/// The only source of the only statement, which passes the source's elements on.
fn only_source<'d>(
    to: &'d mut Descriptor,
    class: &ProcessingClass,
) -> Result<&'d mut Source, NoCounterpart> {
    let is_plain = match (&to.statements[..], &to.sources[..]) {
        ([statement], [source]) => passes_on(&statement.sql, source.table()),
        _ => false,
    };
    match to.sources.first_mut().filter(|_| is_plain) {
        Some(source) => Ok(source),
        None => Err(NoCounterpart {
            message: format!(
                "the class {:?} is supported for one stream with one source, whose query is \
                 `select * from` the source",
                class.name
            ),
            hint: "write the computation as the stream's query, with BridgeVirtualSensor",
        }),
    }
}

fn counter(
    to: &mut Descriptor,
    report: &mut Report,
    class: &ProcessingClass,
) -> Result<(), NoCounterpart> {
    let source = only_source(to, class)?;
    let table = source.table().to_owned();
    let plain = source.sql.is_none();
    match &to.output.schema.fields[..] {
        [field] if field.field_type == FieldType::Integer && plain => {
            let sql = format!("select sequence as {} from {table}", field.name);
            to.statements[0].sql = sql;
            let reason = "SQL: the number of the element in its stream, which a restart does not \
                          reset";
            report.changed(class.place, CLASS, reason);
            Ok(())
        }
        _ => Err(NoCounterpart {
            message: "a counter has one field, an integer, and a source that selects everything"
                .to_owned(),
            hint: "select the column `sequence`, with BridgeVirtualSensor",
        }),
    }
}

fn clean(
    to: &mut Descriptor,
    report: &mut Report,
    class: &ProcessingClass,
) -> Result<(), NoCounterpart> {
    let wrong = |message: &str, hint: &'static str| {
        Err(NoCounterpart {
            message: message.to_owned(),
            hint,
        })
    };
    if let Some(model) = parameter(class, &["model"])
        && !["sma", "average", "moving-average", "simple-moving-average"]
            .contains(&model.to_ascii_lowercase().as_str())
    {
        return wrong(
            "only cleaning by a moving average is supported",
            "write the computation in SQL, with BridgeVirtualSensor",
        );
    }
    let size = parameter(class, &["window-size", "size"]).and_then(|text| text.parse().ok());
    let Some(size) = size.filter(|size| (2..=1_000_000).contains(size)) else {
        return wrong(
            "the class has no window size",
            "add <param name=\"window-size\">, a number of elements from 2",
        );
    };
    let bound = parameter(class, &["error-bound", "error"]).and_then(|it| it.parse::<f64>().ok());
    let Some(bound) = bound.filter(|bound| bound.is_finite() && *bound >= 0.0) else {
        return wrong(
            "the class has no error bound",
            "add <param name=\"error-bound\">, the greatest distance from the mean",
        );
    };
    let source = only_source(to, class)?;
    source.window = Extent::Count(size);
    source.first = size;
    let table = source.table().to_owned();
    let columns = to.output.schema.fields.iter().map(|field| {
        let name = &field.name;
        let last = format!("last({name}, source_time)");
        match field.field_type {
            FieldType::Double => format!(
                "iif(abs({last} - avg({name})) <= {bound:?}, {last}, avg({name})) as {name}"
            ),
            _ => format!("{last} as {name}"),
        }
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    to.statements[0].sql = format!("select {columns} from {table}");
    let reason = format!(
        "SQL: a number further than {bound} from the mean of the last {size} elements becomes that \
         mean"
    );
    report.changed(class.place, CLASS, reason);
    Ok(())
}

fn nmea(
    from: &GsnDescriptor,
    to: &mut Descriptor,
    report: &mut Report,
) -> Result<(), NoCounterpart> {
    let class = &from.class;
    let addresses = from.streams.iter().flat_map(|stream| &stream.sources);
    let mut texts = addresses
        .flat_map(|source| source.addresses.first())
        .flat_map(|address| &address.fields)
        .filter(|field| field.field_type.to_ascii_lowercase().contains("char"))
        .map(|field| field.name.as_str());
    let given = parameter(class, &["field", "input", "column"]);
    let column = given.or_else(|| texts.next().filter(|_| texts.next().is_none()));
    let column = column.map(str::to_ascii_lowercase);
    let is_name = |name: &String| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let Some(column) = column.filter(is_name) else {
        return Err(NoCounterpart {
            message: "it is not known which field has the sentences".to_owned(),
            hint: "add <param name=\"field\">, the name of the field",
        });
    };
    let table = only_source(to, class)?.table().to_owned();
    let mut columns = Vec::new();
    for field in &to.output.schema.fields {
        let value = match field.name.as_str() {
            "latitude" | "lat" => "latitude",
            "longitude" | "lon" | "long" | "lng" => "longitude",
            "altitude" | "alt" | "elevation" => "altitude",
            "speed" => "speed",
            "course" | "heading" => "course",
            "satellites" => "satellites",
            "hdop" => "hdop",
            name => {
                return Err(NoCounterpart {
                    message: format!("the field {name:?} is not a value of a sentence"),
                    hint: "name fields latitude, longitude, altitude, speed, course, satellites or \
                           hdop",
                });
            }
        };
        let value = format!("nmea({column}, '{value}')");
        columns.push(match field.field_type {
            FieldType::Integer => format!("cast({value} as integer) as {}", field.name),
            _ => format!("{value} as {}", field.name),
        });
    }
    let columns = columns.join(", ");
    to.statements[0].sql =
        format!("select {columns} from {table} where nmea({column}, 'latitude') is not null");
    let reason = "SQL: nmea(), for sentences with a position; a speed is in metres a second";
    report.changed(class.place, CLASS, reason);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::simple_name;

    #[test]
    fn a_class_is_known_by_its_own_name() {
        for (name, simple) in [
            ("ch.epfl.gsn.vsensor.BridgeVirtualSensor", "bridge"),
            ("gsn.vsensor.ClockedBridgeVirtualSensor", "clockedbridge"),
            ("gsn.processor.ScriptletProcessor", "scriptletprocessor"),
            ("MyFilterVS", "myfilter"),
            (" gsn.vsensor.GPSNMEAVS ", "gpsnmea"),
            ("VS", "vs"),
        ] {
            assert_eq!(simple_name(name), simple);
        }
    }
}
