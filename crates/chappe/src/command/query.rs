//! `chappe query`: SQL on streams, SPARQL on the registry.

use std::io::Read;

use chappe_stream::Timestamp;
use serde_json::{Value, json};

use super::node_client::NodeClient;
use crate::cli::{Format, Query};
use crate::output::{self, Failure, Outcome, Table};

/// Maximum length of a query from standard input in bytes.
const QUERY_BYTES_MAX: u64 = 1 << 20;

/// Sends the query and prints the rows.
pub(crate) fn run(flags: Query, json: bool) -> Outcome {
    super::network::block_on(async move {
        let text = text(&flags.query)?;
        let node = NodeClient::new(&flags.node)?;
        let format = if json { Format::Json } else { flags.format };
        if flags.sparql {
            let inferred = if flags.inferred { "&inferred=true" } else { "" };
            let path = format!("/api/v1/sparql?query={}{inferred}", percent(&text));
            let media_type = format.sparql_media_type();
            let accept = media_type.unwrap_or(ROWS_OR_TURTLE);
            let (kind, answer) = node.get_text(&path, accept).await?;
            if media_type.is_none() && kind.starts_with("application/sparql-results+json") {
                return sparql(&serde_json::from_str(&answer)?, format, flags.limit);
            }
            match json {
                true => output::json(&json!({"media_type": kind, "text": answer})),
                false => output::line(answer.trim_end()),
            }
            return Ok(());
        }
        if format.sparql_media_type().is_some() {
            let failure = Failure::new("rows of SQL have the formats table, csv and json")
                .coded("argument_invalid");
            return Err(failure.hint("use --format csv; or --sparql for a query of the registry"));
        }
        let body = json!({
            "sql": text, "limit": flags.limit, "from": flags.from, "to": flags.to,
            "partial": flags.partial,
        });
        let answer = node.post("/api/v1/streams/query", body).await?;
        sql(&answer, format, flags.limit)
    })
}

/// The default formats of the two kinds of answers.
const ROWS_OR_TURTLE: &str = "application/sparql-results+json, text/turtle";

fn text(query: &str) -> Result<String, Failure> {
    if query != "-" {
        return Ok(query.to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .take(QUERY_BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Percent-encodes all but unreserved characters (RFC 3986, section 2.1).
pub(crate) fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn sql(answer: &Value, format: Format, limit: usize) -> Outcome {
    if format == Format::Json {
        output::json(answer);
    } else {
        rows(answer, format);
    }
    omissions(answer, limit).iter().for_each(output::note);
    Ok(())
}

/// The columns of every stream that are times, in nanoseconds since 1970. Other columns have no known type.
const TIMES: [&str; 2] = ["source_time", "receive_time"];

fn rows(answer: &Value, format: Format) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let head: Vec<String> = list(&answer["columns"]).iter().map(cell).collect();
    let rows = list(&answer["rows"]);
    let rows = rows.iter().map(|row| {
        let cells = head.iter().zip(row.as_array().into_iter().flatten());
        cells
            .map(|(name, value)| shown(name, value, format))
            .collect()
    });
    print(head.clone(), rows.collect(), format);
}

/// A cell of an answer to SQL: in a table, which people read, a time as RFC 3339.
fn shown(name: &str, value: &Value, format: Format) -> String {
    match value.as_i64() {
        Some(time) if format == Format::Table && TIMES.contains(&name) => {
            Timestamp(time).to_string()
        }
        _ => cell(value),
    }
}

/// Omissions of a partial answer, one line each.
fn omissions(answer: &Value, limit: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for read in answer["read"].as_array().into_iter().flatten() {
        let stream = cell(&read["stream"]);
        if let Some(former) = read["former_name"].as_str() {
            lines.push(format!("{former} is a former name of {stream}"));
        }
        if read["complete"] == false {
            lines.push(format!(
                "partial: only the newest {} matching elements of {stream} were read; \
                 it keeps {}",
                read["elements"], read["kept"]
            ));
        }
        if read["damaged"] != 0 {
            lines.push(format!(
                "partial: up to {} damaged elements of {stream} are missing",
                read["damaged"]
            ));
        }
    }
    if answer["truncated"] == true {
        let count = answer["rows"].as_array().map_or(0, Vec::len);
        let remedy = match count < limit {
            true => "the node's limit; select less",
            false => "raise --limit",
        };
        lines.push(format!("more than these {count} rows exist: {remedy}"));
    }
    lines
}

fn sparql(answer: &Value, format: Format, limit: usize) -> Outcome {
    if format == Format::Json {
        output::json(answer);
        return Ok(());
    }
    if let Some(truth) = answer["boolean"].as_bool() {
        output::line(truth);
        return if truth {
            Ok(())
        } else {
            Err(Failure::negative())
        };
    }
    let names: Vec<String> = answer["head"]["vars"]
        .as_array()
        .into_iter()
        .flatten()
        .map(cell)
        .collect();
    let bindings = answer["results"]["bindings"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let row = |binding: &Value| {
        names
            .iter()
            .map(|name| cell(&binding[name]["value"]))
            .collect()
    };
    print(
        names.clone(),
        bindings.iter().take(limit).map(row).collect(),
        format,
    );
    if bindings.len() > limit {
        output::note("more rows exist: raise --limit");
    }
    Ok(())
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn print(head: Vec<String>, rows: Vec<Vec<String>>, format: Format) {
    if format == Format::Csv {
        output::line(csv(&head));
        rows.iter().for_each(|row| output::line(csv(row)));
        return;
    }
    let mut table = Table::with_head(head);
    rows.into_iter().for_each(|row| table.row(row));
    output::line(table);
}

/// One line of comma-separated values (RFC 4180).
fn csv(cells: &[String]) -> String {
    let quoted = cells.iter().map(|cell| {
        if cell.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.clone()
        }
    });
    quoted.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded_for_a_url() {
        assert_eq!(percent("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }

    #[test]
    fn times_are_for_people_in_tables_alone() {
        let (time, number) = (json!(1_500_000_000), json!(7));
        assert_eq!(
            shown("source_time", &time, Format::Table),
            "1970-01-01T00:00:01.5Z"
        );
        assert_eq!(shown("source_time", &time, Format::Csv), "1500000000");
        assert_eq!(shown("n", &number, Format::Table), "7");
        assert_eq!(shown("receive_time", &Value::Null, Format::Table), "");
    }

    #[test]
    fn csv_quotes_special_cells() {
        assert_eq!(
            csv(&["a,b".into(), "say \"x\"".into(), "1".into()]),
            "\"a,b\",\"say \"\"x\"\"\",1"
        );
    }
}
